module profile

go 1.23.0

require (
	github.com/moby/profiles/seccomp v0.2.4
	github.com/opencontainers/runtime-spec v1.2.1
)

require golang.org/x/sys v0.33.0 // indirect
