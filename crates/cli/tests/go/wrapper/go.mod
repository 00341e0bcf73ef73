module wrapper

go 1.21
