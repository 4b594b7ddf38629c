package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const decisions = "docs/decisions"

var (
	// decisionFile is the name of a decision: its number, then its subject.
	decisionFile  = regexp.MustCompile(`^([0-9]{4})-[a-z0-9-]+\.md$`)
	decisionTitle = regexp.MustCompile(`\A# ([0-9]{4})\. (.+)\n\nDate: ([0-9]{4}-[0-9]{2}-[0-9]{2})\n`)
	section       = regexp.MustCompile(`(?m)^## (.+)$`)
)

// Every decision has a number, a date, the four sections with a text in each, and a row
// in the index.
func TestEveryDecisionHasTheForm(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob(filepath.Join(root, decisions, "*.md"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(files)).To(BeNumerically(">", 10))
	index, err := os.ReadFile(filepath.Join(root, decisions, "README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	numbers := map[string]string{}
	rows := 0
	for _, path := range files {
		name := filepath.Base(path)
		if name == "README.md" {
			continue
		}
		number := decisionFile.FindStringSubmatch(name)
		g.Expect(number).NotTo(BeNil(), "%s: name it NNNN-subject.md", name)
		g.Expect(numbers).NotTo(HaveKey(number[1]), "%s has a number that is taken", name)
		numbers[number[1]] = name

		raw, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		text := string(raw)
		title := decisionTitle.FindStringSubmatch(text)
		g.Expect(title).NotTo(BeNil(), "%s: begin it with `# NNNN. Title`, an empty line and `Date: YYYY-MM-DD`", name)
		g.Expect(title[1]).To(Equal(number[1]), name)
		_, err = time.Parse(time.DateOnly, title[3])
		g.Expect(err).NotTo(HaveOccurred(), name)

		var sections []string
		for _, found := range section.FindAllStringSubmatchIndex(text, -1) {
			sections = append(sections, text[found[2]:found[3]])
			body, _, _ := strings.Cut(text[found[1]:], "\n## ")
			g.Expect(strings.TrimSpace(body)).NotTo(BeEmpty(), "%s: %s", name, sections[len(sections)-1])
		}
		g.Expect(sections).To(Equal([]string{"Context", "Decision", "Alternatives", "Consequences"}), name)

		rows++
		row := "| [" + number[1] + "](" + name + ") | " + title[2] + " | " + title[3] + " |"
		g.Expect(strings.Split(string(index), "\n")).To(ContainElement(row), "add the row to %s/README.md", decisions)
	}
	g.Expect(strings.Count(string(index), "\n| [")).To(Equal(rows), "%s/README.md has rows without a decision", decisions)
}
