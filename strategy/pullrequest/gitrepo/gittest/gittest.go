// Package gittest serves real Git repositories over HTTP, by git's own http-backend,
// for tests.
//
// Contract: a Repository is a bare one in a folder of the test. Handler speaks the
// smart protocol to clients with the password. Methods do what people do to a repository:
// commit, merge, force-push, delete a branch.
package gittest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi" //nolint:gosec // It is not reached from outside of a test, and git is its one program.
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

	// commits serialises commits and merges.
	commits sync.Mutex
}

// config of a repository: HTTP clients may push, and no command collects garbage or compresses.
const config = `[core]
	repositoryformatversion = 0
	filemode = true
	bare = true
	compression = 0
[http]
	receivepack = true
[gc]
	auto = 0
[receive]
	autogc = false
`

// New makes a repository whose branch Base has the files.
func New(t testing.TB, files map[string]string) *Repository {
	t.Helper()
	r := &Repository{t: t, dir: filepath.Join(t.TempDir(), "apps.git")}
	// The layout of gitrepository-layout(5), without the six processes of git init and git config.
	for _, dir := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(r.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"HEAD": "ref: refs/heads/" + Base + "\n", "config": config} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.Commit(Base, "files", files)
	return r
}

// git runs git in the repository and returns its output.
func (r *Repository) git(stdin io.Reader, args ...string) string {
	r.t.Helper()
	out, err := r.try(stdin, args...)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return out
}

func (r *Repository) try(stdin io.Reader, args ...string) (string, error) {
	command := exec.Command("git", args...) //nolint:noctx // Git ends by itself.
	command.Dir = r.dir
	name, email := identity(Person)
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(r.dir), "GIT_CONFIG_NOSYSTEM=1",
		"GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + email, "GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + email,
	}
	command.Stdin = stdin
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, complaints.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// identity returns the name and the e-mail address of a person, given as "Name <e-mail>".
func identity(person string) (name, email string) {
	name, email, _ = strings.Cut(strings.TrimSuffix(person, ">"), " <")
	return name, email
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
	return r.commit(branch, author, Person, message, files)
}

// CommitAs is Commit by another person, given as "Name <e-mail>".
func (r *Repository) CommitAs(branch, by, message string, files map[string]string) string {
	r.t.Helper()
	return r.commit(branch, by, by, message, files)
}

// bulk is the size from which the objects of a commit stay in one pack, in bytes.
const bulk = 1 << 20

// commit makes a commit by git fast-import, for any number of files. The objects of a small
// commit are loose, as those of git commit.
func (r *Repository) commit(branch, author, committer, message string, files map[string]string) string {
	r.t.Helper()
	r.commits.Lock()
	defer r.commits.Unlock()
	var stream []io.Reader // Large contents are not copied.
	say := func(format string, args ...any) {
		stream = append(stream, strings.NewReader(fmt.Sprintf(format, args...)))
	}
	data := func(content string) {
		say("data %d\n", len(content))
		stream = append(stream, strings.NewReader(content), strings.NewReader("\n"))
	}
	say("commit refs/heads/%s\nmark :1\n", branch)
	for _, role := range []struct{ name, person string }{{"author", author}, {"committer", committer}} {
		name, email := identity(role.person)
		say("%s %s <%s> now\n", role.name, name, email)
	}
	data(strings.TrimSuffix(message, "\n") + "\n")
	if parent, exists := r.Head(branch); exists {
		say("from %s\n", parent)
	}
	size := 0
	for at, content := range files {
		if content == "" {
			say("D %s\n", at)
			continue
		}
		size += len(content)
		say("M 100644 inline %s\n", at)
		data(content)
	}
	say("\nget-mark :1\ndone\n")
	unpack := "fastimport.unpackLimit=1000000"
	if size >= bulk {
		unpack = "fastimport.unpackLimit=1"
	}
	return r.git(io.MultiReader(stream...), "-c", unpack, "fast-import", "--quiet", "--done", "--date-format=now", "--depth=0")
}

// Head returns the head commit of a branch.
func (r *Repository) Head(branch string) (string, bool) {
	// Git replaces the file of a reference at once. It has none for a packed reference.
	if hash, err := os.ReadFile(filepath.Join(r.dir, "refs", "heads", filepath.FromSlash(branch))); err == nil && isHash(string(hash)) {
		return strings.TrimSpace(string(hash)), true
	}
	hash, err := r.try(nil, "rev-parse", "--verify", "--quiet", "refs/heads/"+branch)
	return hash, err == nil
}

var isHash = regexp.MustCompile(`^[0-9a-f]{40}\n$`).MatchString

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
	r.commits.Lock()
	defer r.commits.Unlock()
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

// Merged makes a merge commit of two parents with a tree, as a person.
func (r *Repository) Merged(tree, first, second string) string {
	r.t.Helper()
	return r.git(nil, "commit-tree", "-p", first, "-p", second, "-m", "merge", tree)
}

// Contains reports whether a branch has the head of another branch.
func (r *Repository) Contains(branch, other string) bool {
	_, err := r.try(nil, "merge-base", "--is-ancestor", other, branch)
	return err == nil
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
