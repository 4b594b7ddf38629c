package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// Each row of the tables of requirements names what exists: the place, as paths, and the tests, as "package: TestA, TestB;
// package: TestC". Its last cell says how Capstan differs and why, or "as asked".
func TestRequirementsHaveTests(t *testing.T) {
	for file, least := range map[string]int{"promotions.md": 12, "capacity-annotations.md": 35, "instance-events.md": 12, "event-backends.md": 14} {
		t.Run(file, func(t *testing.T) {
			g := NewWithT(t)
			text, err := os.ReadFile(filepath.Join(root, "docs", "requirements", file))
			g.Expect(err).NotTo(HaveOccurred())
			_, table, found := strings.Cut(string(text), "\n| requirement | where | shown by | difference, and why |\n|---|---|---|---|\n")
			g.Expect(found).To(BeTrue(), "it has the table")
			table, _, _ = strings.Cut(table, "\n\n")
			rows := strings.Split(strings.TrimSpace(table), "\n")
			g.Expect(len(rows)).To(BeNumerically(">=", least))
			for _, row := range rows {
				cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(row, "| "), " |"), " | ")
				g.Expect(cells).To(HaveLen(4), row)
				g.Expect(cells).NotTo(ContainElement(BeEmpty()), row)
				for _, path := range strings.Split(cells[1], ", ") {
					g.Expect(filepath.Join(root, strings.Trim(path, "`"))).To(BeAnExistingFile(), row)
				}
				expectTests(t, cells[2], row)
			}
		})
	}
}

// expectTests fails unless a cell of a table names tests that exist.
func expectTests(t *testing.T, cell, row string) {
	t.Helper()
	g := NewWithT(t)
	for _, group := range strings.Split(cell, "; ") {
		dir, names, ok := strings.Cut(group, ": ")
		g.Expect(ok).To(BeTrue(), "%q is not package: Test", group)
		tests := testsOf(t, dir)
		for _, name := range strings.Split(names, ", ") {
			g.Expect(tests).To(ContainElement(name), "%s, in %s", row, dir)
		}
	}
}

// The requirements of the annotator forbid dependencies of OpenShift (TR1.3 to TR1.5).
func TestNoDependencyOfOpenShift(t *testing.T) {
	for _, file := range []string{"go.mod", "go.sum", "api/go.mod"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(strings.Contains(string(text), "github.com/openshift/")).To(BeFalse(), file)
	}
}
