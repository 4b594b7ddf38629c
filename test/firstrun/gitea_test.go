package firstrun

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

const (
	provideGitea = "hack/gitea/provide.sh"
	// releasedTags are those of a released binary; ownTags those of one with files beside it.
	releasedTags = " : bindata, timetzdata, sqlite, sqlite_unlock_notify"
	ownTags      = " : sqlite, sqlite_unlock_notify"
)

// withGitea is a repository that needs Gitea 1.26.
func withGitea(t *testing.T) *repository {
	t.Helper()
	r := newRepository(t, provideGitea)
	r.write("hack/gitea/go.mod", "module x\n\nrequire code.gitea.io/gitea v1.26.2\n", textMode)
	r.program("hack/gitea/build.sh", `echo "built from modules"`)
	r.program("hack/gitea/files.sh", `mkdir -p "$1/options"`)
	return r
}

// giteaBinary prints a version as the real one does.
func giteaBinary(r *repository, version, tags string) string {
	r.t.Helper()
	path := r.program(filepath.Join(r.t.TempDir(), "gitea-linux-amd64"), `echo "Gitea version `+version+` built with GNU Make 4.4.1, go1.26.1`+tags+`"`)
	resolved, err := filepath.EvalSymlinks(path)
	NewWithT(r.t).Expect(err).NotTo(HaveOccurred())
	return resolved
}

func TestTheGiteaOfTheUserIsUsed(t *testing.T) {
	g := NewWithT(t)
	r := withGitea(t)
	binary := giteaBinary(r, "1.26.0", releasedTags)
	variables := []string{"CAPSTAN_GITEA=" + binary}
	g.Expect(r.run(provideGitea, variables)).To(Equal("Gitea: " + binary + "\n"))
	g.Expect(r.linkOf("bin/gitea")).To(Equal(binary))
	g.Expect(r.path("bin/gitea-files")).To(BeADirectory())
	g.Expect(r.path("bin/gitea-files/options")).NotTo(BeADirectory(), "a released binary contains its files")

	g.Expect(r.run(provideGitea, variables)).To(BeEmpty(), "the second run has nothing to do")
	g.Expect(r.run(provideGitea, nil)).To(BeEmpty(), "what an earlier run chose is kept")
	g.Expect(r.run(provideGitea, []string{"CAPSTAN_GITEA=" + r.path("bin/gitea")})).To(BeEmpty(), "bin/gitea is no link to itself")

	g.Expect(os.Remove(binary)).To(Succeed())
	g.Expect(r.run(provideGitea, nil)).To(Equal(builtMark))
}

func TestAGiteaWithoutFilesGetsThoseOfItsVersion(t *testing.T) {
	g := NewWithT(t)
	r := withGitea(t)
	binary := giteaBinary(r, "1.26.2", ownTags)
	g.Expect(r.run(provideGitea, []string{"CAPSTAN_GITEA=" + binary})).To(Equal("Gitea: " + binary + "\n"))
	g.Expect(r.path("bin/gitea-files/options")).To(BeADirectory())
}

func TestAnUnusableGiteaIsNamedAndNotUsed(t *testing.T) {
	for name, c := range map[string]struct{ version, tags, want string }{
		"an older version":               {"1.25.4", releasedTags, "it reports version 1.25.4, and 1.26.x is needed"},
		"no version":                     {"main", releasedTags, "it reports version (none), and 1.26.x is needed"},
		"no SQLite":                      {"1.26.2", " : bindata", "it was built without SQLite"},
		"no tags":                        {"1.26.2", "", "it was built without SQLite"},
		"no files, and another version":  {"1.26.0", ownTags, "it does not contain its files"},
		"a tag with a similar beginning": {"1.26.2", " : bindata, sqlite_unlock_notify", "it was built without SQLite"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := withGitea(t)
			binary := giteaBinary(r, c.version, c.tags)
			if c.version == "main" {
				r.program(binary, "echo Gitea version main")
			}
			g.Expect(r.run(provideGitea, []string{"CAPSTAN_GITEA=" + binary})).To(And(
				ContainSubstring("CAPSTAN_GITEA="+binary+" is not used: "+c.want), HaveSuffix(builtMark)))
		})
	}
	t.Run("a path that does not exist", func(t *testing.T) {
		r := withGitea(t)
		NewWithT(t).Expect(r.run(provideGitea, []string{"CAPSTAN_GITEA=/does/not/exist"})).To(And(
			ContainSubstring("there is no such program"), HaveSuffix(builtMark)))
	})
}

func TestGiteaIsBuiltWhereNoneIsNamed(t *testing.T) {
	NewWithT(t).Expect(withGitea(t).run(provideGitea, nil)).To(Equal(builtMark))
}
