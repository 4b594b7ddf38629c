package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Files of a release whose names have no version.
const (
	imagesFile    = "images.json"
	checksumsFile = "SHA256SUMS"
	krewFile      = "capstan-krew.yaml"
)

// releaseVersion is a semantic version with a v. Metadata after + is refused, since tags of
// images cannot have it.
var releaseVersion = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// all writes all files of a release into the output directory, which must be empty.
func (r *release) all(ctx context.Context) error {
	if !releaseVersion.MatchString(r.version) {
		return fmt.Errorf("version %q: a release needs a semantic version such as v1.2.3 or v1.2.3-rc.1", r.version)
	}
	// Checksums must not contain a file of an earlier run.
	if found, err := os.ReadDir(r.out); err == nil && len(found) > 0 {
		return fmt.Errorf("directory %s has files of an earlier run: remove it first", r.out)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	done, err := r.begin()
	if err != nil {
		return err
	}
	defer done()
	artifacts, err := r.images(ctx)
	if err != nil {
		return err
	}
	if err := r.manifests(artifacts); err != nil {
		return err
	}
	chart, err := r.chart(ctx)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	artifacts = append(artifacts, chart)
	if err := r.list(artifacts); err != nil {
		return err
	}
	archives, err := r.archives(ctx)
	if err != nil {
		return err
	}
	if err := r.krew(archives); err != nil {
		return err
	}
	if err := r.bills(ctx); err != nil {
		return err
	}
	return r.checksums()
}

func (r *release) write(name string, content []byte) error {
	return writeFile(filepath.Join(r.out, name), func(out io.Writer) error {
		_, err := out.Write(content)
		return err
	})
}

// list writes images.json, which push reads.
func (r *release) list(artifacts []built) error {
	text, err := json.MarshalIndent(artifacts, "", "  ")
	if err != nil {
		return err
	}
	return r.write(imagesFile, append(text, '\n'))
}

// archives compiles the CLI for each platform and returns the name of its archive.
func (r *release) archives(ctx context.Context) (map[platform]string, error) {
	names := map[platform]string{}
	for _, p := range r.cliPlatforms {
		if err := r.compile(ctx, p, "capstan"); err != nil {
			return nil, err
		}
		binary := r.binary("capstan", p)
		entries := []entry{
			{name: "LICENSE", mode: 0o644, path: filepath.Join(r.root, "LICENSE")},
			{name: filepath.Base(binary), mode: 0o755, path: binary},
		}
		write, suffix := writeTarGz, ".tar.gz"
		if p.os == "windows" {
			write, suffix = writeZip, ".zip"
		}
		name := "capstan_" + r.version + "_" + p.file() + suffix
		if err := write(filepath.Join(r.out, name), r.source.time, entries); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		names[p] = name
	}
	return names, nil
}

// bills writes a bill of materials for each binary of the images and of the CLI.
func (r *release) bills(ctx context.Context) error {
	for _, program := range programs() {
		platforms := r.imagePlatforms
		if program == "capstan" {
			platforms = append(slices.Clone(platforms), r.cliPlatforms...)
		}
		for _, p := range platforms {
			if err := r.compile(ctx, p, program); err != nil {
				return err
			}
			bill, err := r.bill(program, r.binary(program, p))
			if err != nil {
				return fmt.Errorf("bill of materials of %s for %s: %w", program, p, err)
			}
			if err := r.write(program+"_"+r.version+"_"+p.file()+".cdx.json", bill); err != nil {
				return err
			}
		}
	}
	return nil
}

// checksums writes the SHA-256 of each file, in the form of sha256sum.
func (r *release) checksums() error {
	found, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, file := range found {
		sum, err := sha256Of(filepath.Join(r.out, file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, file.Name())
	}
	return r.write(checksumsFile, []byte(lines.String()))
}

func sha256Of(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
