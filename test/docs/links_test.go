package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	. "github.com/onsi/gomega"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	// mention is a file of the repository named in running text.
	mention = regexp.MustCompile("`((?:config|docs|hack|test|cmd|hub|clusters|watchers|strategy|internal|index|playground|api)/[A-Za-z0-9_./-]+)`")
)

// documents of the repository, by path from its root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	g := NewWithT(t)
	all := map[string]string{}
	g.Expect(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == "bin" || name == "testdata" || name == ".git" || name == ".playground" || name == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		all[name] = string(raw)
		return err
	})).To(Succeed())
	g.Expect(all).To(And(HaveKey("README.md"), HaveKey("docs/security.md")))
	return all
}

// anchors of a document, as GitHub makes them of its headings.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		var b strings.Builder
		for _, r := range strings.ToLower(h[1]) {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				b.WriteRune(r)
			case r == ' ':
				b.WriteByte('-')
			}
		}
		all[b.String()] = true
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	g := NewWithT(t)
	all := documents(t)
	followed := 0
	for path, text := range all {
		prose := fence.ReplaceAllString(text, "")
		for _, found := range link.FindAllStringSubmatch(prose, -1) {
			to := found[1]
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			followed++
			file, anchor, _ := strings.Cut(to, "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			g.Expect(filepath.Join(root, target)).To(Or(BeAnExistingFile(), BeADirectory()), "%s: %s", path, to)
			if anchor != "" {
				g.Expect(anchors(all[target])).To(HaveKey(anchor), "%s: %s", path, to)
			}
		}
		for _, found := range mention.FindAllStringSubmatch(prose, -1) {
			g.Expect(filepath.Join(root, found[1])).To(Or(BeAnExistingFile(), BeADirectory()), "%s names %s", path, found[1])
		}
	}
	g.Expect(followed).To(BeNumerically(">", 30))
}

// Each document is in the list of them.
func TestEveryDocumentIsListed(t *testing.T) {
	g := NewWithT(t)
	all := documents(t)
	for path := range all {
		if filepath.Dir(path) == "docs" && path != "docs/README.md" {
			g.Expect(all["docs/README.md"]).To(ContainSubstring("("+filepath.Base(path)+")"), "list it in docs/README.md")
		}
	}
}
