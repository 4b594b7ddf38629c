package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// Each row of the table of threats names tests that exist, as "package: TestA, TestB; package: TestC".
func TestThreatsHaveTests(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	g.Expect(err).NotTo(HaveOccurred())
	_, table, found := strings.Cut(string(text), "| threat | control | shown by |\n|---|---|---|\n")
	g.Expect(found).To(BeTrue())
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	g.Expect(len(rows)).To(BeNumerically(">", 20))
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		g.Expect(cells).To(HaveLen(3), row)
		expectTests(t, cells[2], cells[0])
	}
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// testsOf returns the tests of a package.
func testsOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		for _, match := range testFunction.FindAllStringSubmatch(string(text), -1) {
			all = append(all, match[1])
		}
	}
	return all
}
