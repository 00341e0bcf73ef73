module ring

go 1.21
