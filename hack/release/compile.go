package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// linkedVersion is the variable that `capstan version` prints.
const linkedVersion = "github.com/capstan-hub/capstan/cmd/capstan/cli.release"

// programs are the binaries that have an image.
func programs() []string { return []string{"capstan", "capa-annotator"} }

// binary is the path of a compiled program.
func (r *release) binary(program string, p platform) string {
	name := program
	if p.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(r.work, p.file(), name)
}

// compile builds programs for a platform, unless this run did so already.
func (r *release) compile(ctx context.Context, p platform, names ...string) error {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, err := os.Stat(r.binary(name, p))
		return err == nil
	})
	if len(names) == 0 {
		return nil
	}
	directory := filepath.Join(r.work, p.file())
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	// No paths of this machine, no commit, no symbols and no DWARF: the same source gives the same
	// bytes. The commit is in the labels of the image.
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -X " + linkedVersion + "=" + r.version, "-o", directory + string(filepath.Separator)}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	_, _ = fmt.Fprintf(r.log, "  compiling %s for %s (minutes on a cold cache)\n", strings.Join(names, " and "), p)
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = r.root
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	// Settings of the caller must not change the bytes.
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch,
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off", "GOFLAGS=-mod=readonly -gcflags=all=-dwarf=false")
	if err := command.Run(); err != nil {
		return fmt.Errorf("compile %s for %s: %w", strings.Join(names, ", "), p, err)
	}
	return nil
}
