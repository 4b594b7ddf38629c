package fleet

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/leaks"
)

func buildOf(t *testing.T, script string) (*giteaBuild, *teardown, string) {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "provide.sh")
	g.Expect(os.WriteFile(program, []byte("#!/bin/sh\ncd "+dir+"\n"+script), 0o700)).To(Succeed())
	down := &teardown{}
	files, err := newFiles(filepath.Join(dir, "files"), down)
	g.Expect(err).NotTo(HaveOccurred())
	b, err := startGiteaBuild(program, files, down)
	g.Expect(err).NotTo(HaveOccurred())
	return b, down, dir
}

func TestProgressOfGiteasBuildIsPrinted(t *testing.T) {
	defer leaks.VerifyNone(t)
	g := NewWithT(t)
	// The program goes on when the story waits.
	b, down, dir := buildOf(t, `echo early; echo compiling; while [ ! -e waiting ]; do :; done; echo "go: downloading x"; echo built`)
	out := &onWrite{then: func() { _ = os.WriteFile(filepath.Join(dir, "waiting"), nil, 0o600) }}
	g.Expect(b.wait(t.Context(), out)).To(Succeed())
	g.Expect(out.String()).To(And(HavePrefix("\nWaiting for Gitea"), HaveSuffix("      built\n"), Not(ContainSubstring("downloading"))))
	g.Expect(b.wait(t.Context(), out)).To(Succeed(), "a build that has ended needs no wait")
	g.Expect(down.all()).To(Succeed())
}

// onWrite calls then at the first write.
type onWrite struct {
	bytes.Buffer
	then func()
}

func (w *onWrite) Write(p []byte) (int, error) {
	if w.then != nil {
		w.then()
		w.then = nil
	}
	return w.Buffer.Write(p)
}

func TestAFailedBuildOfGiteaSaysWhy(t *testing.T) {
	defer leaks.VerifyNone(t)
	g := NewWithT(t)
	b, down, _ := buildOf(t, "echo 'gitea: no C compiler' >&2; exit 3")
	g.Expect(b.wait(t.Context(), &bytes.Buffer{})).To(MatchError(And(
		ContainSubstring("ended with code 3"), ContainSubstring("gitea: no C compiler"))))
	g.Expect(down.all()).To(Succeed())
}

func TestTheBuildOfGiteaEndsWithTheFleet(t *testing.T) {
	defer leaks.VerifyNone(t)
	g := NewWithT(t)
	b, down, _ := buildOf(t, "sleep 3600")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	g.Expect(b.wait(ctx, &bytes.Buffer{})).To(MatchError(context.DeadlineExceeded))
	g.Expect(down.all()).To(Succeed())
	g.Expect(b.process.Ended()).To(BeClosed())
}

func TestWithoutABuildNothingIsAwaited(t *testing.T) {
	g := NewWithT(t)
	b, err := startGiteaBuild("", nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.wait(t.Context(), nil)).To(Succeed())
}

func TestNestedPartsEndAtTheirPlace(t *testing.T) {
	g := NewWithT(t)
	var down teardown
	var order []string
	ended := func(name string) func() error {
		return func() error { order = append(order, name); return nil }
	}
	down.add(ended("plane"))
	later := (&parts{down: &down}).nested()
	down.add(ended("hub"))
	later.down.add(ended("Gitea"))
	later.down.add(ended("sync"))
	g.Expect(down.all()).To(Succeed())
	g.Expect(order).To(Equal([]string{"hub", "sync", "Gitea", "plane"}))
}
