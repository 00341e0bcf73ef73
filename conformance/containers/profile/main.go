// Writes the seccomp part of a container's configuration, as Docker does.
//
//	go run . CONFIG [PROFILE]
//
// CONFIG is the container's config.json: which calls are allowed depends on its capabilities.
// PROFILE is a file of the same form as Docker's own; without it Docker's default profile is taken.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("usage: profile CONFIG [PROFILE]")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var spec specs.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	filter, err := load(args[1:], &spec)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(filter)
}

func load(named []string, spec *specs.Spec) (*specs.LinuxSeccomp, error) {
	if len(named) == 0 {
		return seccomp.GetDefaultProfile(spec)
	}
	text, err := os.ReadFile(named[0])
	if err != nil {
		return nil, err
	}
	return seccomp.LoadProfile(string(text), spec)
}
