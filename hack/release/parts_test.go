package main

import (
	"archive/zip"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// Bad input is refused before anything is compiled, and the message says what to write.
func TestBadInput(t *testing.T) {
	for _, row := range []struct {
		name    string
		args    []string
		message string
	}{
		{"no command", nil, "name a command"},
		{"unknown command", []string{"publish"}, `unknown command "publish"`},
		{"an argument too many", []string{"image", "v1"}, `unexpected argument "v1"`},
		{"a tag in the image", []string{"image", "-image", "example.org/capstan:v1"}, "leave out the tag"},
		{"no repository", []string{"image", "-image", "Example Org"}, `image "Example Org"`},
		{"no architecture", []string{"image", "-platforms", "linux"}, "such as linux/amd64"},
		{"an image for another system", []string{"image", "-platforms", "windows/amd64", "-version", "v1"}, "images are for linux"},
		{"no tag", []string{"image", "-version", "1.2.3+4"}, "cannot be the tag of an image"},
		{"no semantic version", []string{"all", "-version", "1.2"}, "such as v1.2.3"},
		{"no version", []string{"all"}, "such as v1.2.3"},
		{"nothing to push", []string{"push"}, "run `make image` or `make release` first"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			args := row.args
			if len(args) > 0 {
				args = append([]string{args[0], "-out", filepath.Join(t.TempDir(), "dist")}, args[1:]...)
			}
			g.Expect(run(t.Context(), args, t.Output())).To(MatchError(ContainSubstring(row.message)))
		})
	}
}

// A release is not mixed with the files of an earlier one.
func TestAReleaseNeedsAnEmptyDirectory(t *testing.T) {
	g := NewWithT(t)
	out := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(out, "old"), nil, 0o600)).To(Succeed())
	g.Expect(run(t.Context(), []string{"all", "-version", "v1.2.3", "-out", out}, t.Output())).To(MatchError(ContainSubstring("remove it first")))
}

// Kubelets read a short name as one of docker.io/library, and containerd has only full names.
func TestNamesOfRepositories(t *testing.T) {
	for _, row := range []struct{ image, hub, annotator, chart string }{
		{"capstan", "docker.io/library/capstan", "docker.io/library/capa-annotator", "docker.io/library/charts/capstan"},
		{"example.org/team/hub", "example.org/team/hub", "example.org/team/capa-annotator", "example.org/team/charts/capstan"},
		{"127.0.0.1:5000/capstan", "127.0.0.1:5000/capstan", "127.0.0.1:5000/capa-annotator", "127.0.0.1:5000/charts/capstan"},
	} {
		g := NewWithT(t)
		named, err := parseRepository(row.image)
		g.Expect(err).NotTo(HaveOccurred())
		r := release{repository: named}
		g.Expect(named.Name()).To(Equal(row.hub))
		annotator, err := r.neighbour("capa-annotator")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(annotator.Name()).To(Equal(row.annotator))
		chart, err := r.neighbour("charts/capstan")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(chart.Name()).To(Equal(row.chart))
		repository, tag := cutTag(row.hub + ":v1")
		g.Expect([]string{repository, tag}).To(Equal([]string{row.hub, "v1"}))
	}
}

// SOURCE_DATE_EPOCH replaces the time of the commit, and must be a number.
func TestTheTimeOfTheSource(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	s, err := readSource(t.Context(), t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s).To(Equal(source{describe: "devel", time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}))
	t.Setenv("SOURCE_DATE_EPOCH", "today")
	_, err = readSource(t.Context(), t.TempDir())
	g.Expect(err).To(MatchError(ContainSubstring("such as 1767225600")))
}

// The archive for Windows has the program and the same bytes each time.
func TestTheArchiveForWindows(t *testing.T) {
	g := NewWithT(t)
	directory := t.TempDir()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	entries := []entry{{name: "LICENSE", mode: 0o644, content: []byte("text")}, {name: "capstan.exe", mode: 0o755, content: []byte("MZ")}}
	for _, name := range []string{"a.zip", "b.zip"} {
		g.Expect(writeZip(filepath.Join(directory, name), at, entries)).To(Succeed())
	}
	g.Expect(read(g, directory, "a.zip")).To(Equal(read(g, directory, "b.zip")))
	reader, err := zip.OpenReader(filepath.Join(directory, "a.zip"))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = reader.Close() }()
	g.Expect(reader.File).To(HaveLen(2))
	g.Expect(reader.File[1].Name).To(Equal("capstan.exe"))
	g.Expect(reader.File[1].Modified.UTC()).To(Equal(at))
}
