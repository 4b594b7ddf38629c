// Package gittest serves real Git repositories over HTTP, by git's own http-backend,
// for tests.
//
// Contract: a Repository is a bare one in a folder of the test. Handler speaks the
// smart protocol to clients with the password. Methods do what people do to a repository:
// commit, merge, force-push, delete a branch.
package gittest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi" //nolint:gosec // It is not reached from outside of a test, and git is its one program.
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Base is the branch that a Repository begins with.
const Base = "main"

// Person is the person who commits by hand.
const Person = "Ann Operator <ann@example.com>"

// Repository is a bare Git repository.
type Repository struct {
	t   testing.TB
	dir string

	// mu guards the fields that follow, and the index: it is held during a commit.
	mu sync.Mutex
	// by is the committer; author is the author if it is another person.
	by, author string
}

// New makes a repository whose branch Base has the files.
func New(t testing.TB, files map[string]string) *Repository {
	t.Helper()
	r := &Repository{t: t, dir: filepath.Join(t.TempDir(), "apps.git")}
	r.git(nil, "init", "--quiet", "--bare", "--initial-branch="+Base, r.dir)
	r.git(nil, "config", "http.receivepack", "true")
	r.git(nil, "config", "gc.auto", "0")
	r.git(nil, "config", "receive.autogc", "false")
	r.git(nil, "config", "core.compression", "0") // The disk is a test's, and patience is not.
	r.Commit(Base, "files", files)
	return r
}

// git runs git in the repository and returns its output.
func (r *Repository) git(stdin []byte, args ...string) string {
	r.t.Helper()
	out, err := r.try(stdin, args...)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return out
}

func (r *Repository) try(stdin []byte, args ...string) (string, error) {
	command := exec.Command("git", args...) //nolint:noctx // Git ends by itself.
	if args[0] != "init" {
		command.Dir = r.dir
	}
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(r.dir), "GIT_CONFIG_NOSYSTEM=1", "GIT_INDEX_FILE=" + filepath.Join(r.dir, "by-hand"),
	}
	if args[0] == "commit-tree" {
		by := cmp.Or(r.by, Person)
		for role, who := range map[string]string{"COMMITTER": by, "AUTHOR": cmp.Or(r.author, by)} {
			name, email, _ := strings.Cut(strings.TrimSuffix(who, ">"), " <")
			command.Env = append(command.Env, "GIT_"+role+"_NAME="+name, "GIT_"+role+"_EMAIL="+email)
		}
	}
	command.Stdin = bytes.NewReader(stdin)
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, complaints.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// Commit commits files to a branch as a person, and returns the commit. It removes a file
// whose content is "". If the branch does not exist, it creates it without parent.
func (r *Repository) Commit(branch, message string, files map[string]string) string {
	r.t.Helper()
	return r.CommitAs(branch, Person, message, files)
}

// Amend amends the head commit of a branch as a person: its author stays, the person
// becomes its committer.
func (r *Repository) Amend(branch string, files map[string]string) string {
	r.t.Helper()
	author, message := r.Show(branch, "%an <%ae>"), r.Show(branch, "%B")
	r.Set(branch, r.git(nil, "rev-parse", branch+"^"))
	r.mu.Lock()
	r.author = author
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.author = ""
	}()
	return r.Commit(branch, message, files)
}

// CommitAs is Commit by another person, given as "Name <e-mail>".
func (r *Repository) CommitAs(branch, by, message string, files map[string]string) string {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	parent, exists := r.Head(branch)
	r.git(nil, "read-tree", "--empty")
	args := []string{"commit-tree", "-m", message}
	if exists {
		r.git(nil, "read-tree", parent)
		args = append(args, "-p", parent)
	}
	// One call of each kind for any number of files.
	var index bytes.Buffer
	scratch := r.t.TempDir()
	var names, paths []string
	for at, content := range files {
		if content == "" {
			fmt.Fprintf(&index, "0 0000000000000000000000000000000000000000\t%s\n", at)
			continue
		}
		name := filepath.Join(scratch, fmt.Sprint(len(names)))
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			r.t.Fatal(err)
		}
		names, paths = append(names, name), append(paths, at)
	}
	if len(names) > 0 {
		hashes := strings.Fields(r.git([]byte(strings.Join(names, "\n")+"\n"), "hash-object", "-w", "--no-filters", "--stdin-paths"))
		for i, hash := range hashes {
			fmt.Fprintf(&index, "100644 %s\t%s\n", hash, paths[i])
		}
	}
	r.git(index.Bytes(), "update-index", "--add", "--index-info")
	tree := r.git(nil, "write-tree")
	r.by = by
	made := r.git(nil, append(args, tree)...)
	r.by = ""
	r.git(nil, "update-ref", "refs/heads/"+branch, made)
	return made
}

// Head returns the head commit of a branch.
func (r *Repository) Head(branch string) (string, bool) {
	hash, err := r.try(nil, "rev-parse", "--verify", "--quiet", "refs/heads/"+branch)
	return hash, err == nil
}

// Set sets a branch to a commit.
func (r *Repository) Set(branch, commit string) {
	r.t.Helper()
	r.git(nil, "update-ref", "refs/heads/"+branch, commit)
}

// Delete deletes a branch.
func (r *Repository) Delete(branch string) {
	r.t.Helper()
	r.git(nil, "update-ref", "-d", "refs/heads/"+branch)
}

// Branches returns the names of the branches.
func (r *Repository) Branches() []string {
	r.t.Helper()
	return strings.Fields(r.git(nil, "for-each-ref", "--format=%(refname:short)", "refs/heads"))
}

// File returns the content of a file at a branch or commit.
func (r *Repository) File(at, path string) string {
	r.t.Helper()
	out, err := exec.Command("git", "--git-dir", r.dir, "show", at+":"+path).Output() //nolint:noctx // Git ends by itself.
	if err != nil {
		r.t.Fatalf("git show %s:%s: %v", at, path, err)
	}
	return string(out)
}

// Show runs git log with a format on one commit.
func (r *Repository) Show(at, format string) string {
	r.t.Helper()
	return r.git(nil, "show", "--no-patch", "--format="+format, at)
}

// Changed returns the files that differ between two commits.
func (r *Repository) Changed(from, to string) []string {
	r.t.Helper()
	return strings.Fields(r.git(nil, "diff", "--name-only", from, to))
}

// Configure sets a value as git config does.
func (r *Repository) Configure(key, value string) {
	r.t.Helper()
	r.git(nil, "config", key, value)
}

// Hook installs a shell script as one of Git's hooks.
func (r *Repository) Hook(name, script string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Join(r.dir, "hooks"), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "hooks", name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // Git wants to run it.
		r.t.Fatal(err)
	}
}

// errConflict of a merge.
var errConflict = errors.New("the branches conflict")

// Merge merges a branch that is at a commit into base by a merge commit, as services do.
func (r *Repository) Merge(head, base, commit string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	onto, ok := r.Head(base)
	if now, exists := r.Head(head); !ok || !exists || now != commit {
		return "", fmt.Errorf("%s is not at %s", head, commit)
	}
	tree, err := r.try(nil, "merge-tree", "--write-tree", "--allow-unrelated-histories", onto, commit)
	if err != nil {
		return "", errConflict
	}
	made, err := r.try(nil, "commit-tree", "-p", onto, "-p", commit, "-m", "Merge branch "+head, strings.Fields(tree)[0])
	if err != nil {
		return "", err
	}
	_, err = r.try(nil, "update-ref", "refs/heads/"+base, made, onto)
	return made, err
}

// Handler serves the repository at any path with the end of Git's paths, to clients with
// the password.
func (r *Repository) Handler(password func() string) http.Handler {
	backend, err := r.try(nil, "--exec-path")
	if err != nil {
		r.t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if _, given, ok := request.BasicAuth(); !ok || given != password() {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		for _, suffix := range []string{"/info/refs", "/git-upload-pack", "/git-receive-pack"} {
			if before, ok := strings.CutSuffix(request.URL.Path, suffix); ok {
				(&cgi.Handler{
					Path: filepath.Join(backend, "git-http-backend"), Root: before, Dir: r.dir,
					Env: []string{"GIT_PROJECT_ROOT=" + r.dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=capstan", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + filepath.Dir(r.dir)},
				}).ServeHTTP(w, request)
				return
			}
		}
		http.NotFound(w, request)
	})
}
