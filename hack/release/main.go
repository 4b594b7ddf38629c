package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // The program creates its context.
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

// run executes one command: image, all or push, followed by flags. It writes progress to out.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("name a command: image, all or push")
	}
	command := args[0]
	flags := flag.NewFlagSet("release "+command, flag.ContinueOnError)
	root := flags.String("root", "../..", "the root of the repository")
	directory := flags.String("out", "", "the directory for the files; it is created (default: dist in the root)")
	image := flags.String("image", "capstan", "the repository of the hub's image, such as registry.example.org/team/capstan; that of capa-annotator and of the chart are its neighbours")
	version := flags.String("version", "", "the version, such as v1.2.3 (image: by default what `git describe` prints)")
	imagePlatforms := flags.String("platforms", "linux/amd64,linux/arm64", "the platforms of the images")
	cliPlatforms := flags.String("cli-platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "the platforms of the CLI")
	helm := flags.String("helm", "", "the program Helm 4 (default: bin/helm in the root)")
	insecure := flags.Bool("insecure", false, "push by HTTP, for tests")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}

	r := release{log: out}
	var err error
	if r.root, err = filepath.Abs(*root); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(orElse(*directory, filepath.Join(r.root, "dist"))); err != nil {
		return err
	}
	if r.helm, err = filepath.Abs(orElse(*helm, filepath.Join(r.root, "bin", "helm"))); err != nil {
		return err
	}
	if command == "push" {
		return push(ctx, r.out, *insecure, out)
	}
	if r.source, err = readSource(ctx, r.root); err != nil {
		return err
	}
	r.version = *version
	if *image == "" {
		return errors.New("the repository of the hub's image is empty: set IMAGE, such as IMAGE=registry.example.org/team/capstan")
	}
	if r.repository, err = parseRepository(*image); err != nil {
		return err
	}
	if r.imagePlatforms, err = parsePlatforms(*imagePlatforms); err != nil {
		return err
	}
	if r.cliPlatforms, err = parsePlatforms(*cliPlatforms); err != nil {
		return err
	}
	switch command {
	case "image":
		if r.version == "" {
			r.version = r.source.describe
		}
		artifacts, err := r.images(ctx)
		if err != nil {
			return err
		}
		return r.list(artifacts)
	case "all":
		return r.all(ctx)
	default:
		return fmt.Errorf("unknown command %q: use image, all or push", command)
	}
}

func orElse(value, otherwise string) string {
	if value != "" {
		return value
	}
	return otherwise
}

// platform is a target of the compiler, such as linux/amd64.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// file is the platform in the names of files, such as linux_amd64.
func (p platform) file() string { return p.os + "_" + p.arch }

func parsePlatforms(list string) ([]platform, error) {
	var platforms []platform
	for item := range strings.SplitSeq(list, ",") {
		system, arch, found := strings.Cut(strings.TrimSpace(item), "/")
		if !found || system == "" || arch == "" || strings.Contains(arch, "/") {
			return nil, fmt.Errorf("platform %q: write OS/ARCHITECTURE, such as linux/amd64", item)
		}
		platforms = append(platforms, platform{os: system, arch: arch})
	}
	return platforms, nil
}
