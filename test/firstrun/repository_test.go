package firstrun

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const (
	programMode = 0o755
	textMode    = 0o644
)

// repository is a copy of the scripts, with a bin/ of its own.
type repository struct {
	t    *testing.T
	root string
	home string
}

func newRepository(t *testing.T, scripts ...string) *repository {
	t.Helper()
	g := NewWithT(t)
	r := &repository{t: t, root: t.TempDir(), home: t.TempDir()}
	_, file, _, _ := runtime.Caller(0)
	source := filepath.Join(filepath.Dir(file), "..", "..")
	for _, name := range append([]string{"hack/compile.sh"}, scripts...) {
		raw, err := os.ReadFile(filepath.Join(source, name))
		g.Expect(err).NotTo(HaveOccurred())
		r.write(name, string(raw), programMode)
	}
	return r
}

func (r *repository) path(name string) string { return filepath.Join(r.root, name) }

func (r *repository) write(name, text string, mode os.FileMode) string {
	r.t.Helper()
	g := NewWithT(r.t)
	path := name
	if !filepath.IsAbs(name) {
		path = r.path(name)
	}
	g.Expect(os.MkdirAll(filepath.Dir(path), programMode)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte(text), mode)).To(Succeed())
	return path
}

// program writes a shell script.
func (r *repository) program(name, script string) string {
	r.t.Helper()
	return r.write(name, "#!/usr/bin/env bash\n"+script+"\n", programMode)
}

// run a script of the copy, with variables as NAME=value, and return what it prints.
func (r *repository) run(script string, variables []string, args ...string) string {
	r.t.Helper()
	command := exec.CommandContext(r.t.Context(), r.path(script), args...)
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		switch name {
		case "CAPSTAN_GITEA", "CAPSTAN_DOWNLOAD", "KUBEBUILDER_ASSETS", "XDG_DATA_HOME", "HOME":
		default:
			command.Env = append(command.Env, variable)
		}
	}
	command.Env = append(append(command.Env, "HOME="+r.home, "GOCACHE="+r.home), variables...)
	out, err := command.CombinedOutput()
	NewWithT(r.t).Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

// read a file of the copy; empty if it does not exist.
func (r *repository) read(name string) string {
	raw, err := os.ReadFile(r.path(name))
	if err != nil {
		return ""
	}
	return string(raw)
}

// linkOf a program in bin/.
func (r *repository) linkOf(name string) string {
	r.t.Helper()
	to, err := filepath.EvalSymlinks(r.path(name))
	NewWithT(r.t).Expect(err).NotTo(HaveOccurred())
	return to
}
