package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"
)

// docs/chart.md has every value of the chart with its default and its comment.
func TestValuesOfTheChartAreCurrent(t *testing.T) {
	g := NewWithT(t)
	raw, err := os.ReadFile(filepath.Join(root, "config", "chart", "values.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var document yaml.Node
	g.Expect(yaml.Unmarshal(raw, &document)).To(Succeed())
	var b strings.Builder
	b.WriteString(`# Values of the Helm chart

Generated from config/chart/values.yaml by ` + "`make generate`" + `. values.schema.json has their types, and Helm refuses other values.
The flags of ` + "`settings`" + ` are in [flags.md](flags.md).

| value | default | what it is |
|---|---|---|
`)
	g.Expect(document.Content).To(HaveLen(1))
	rows(&b, "", document.Content[0])
	current(t, "docs/chart.md", b.String())
}

// rows writes a row for each scalar, list and empty mapping, and for each mapping with a comment.
func rows(b *strings.Builder, prefix string, mapping *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		comment := explained(key)
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			if comment != "" {
				fmt.Fprintf(b, "| `%s` | | %s |\n", name, comment)
			}
			rows(b, name+".", value)
			continue
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", name, inline(value), comment)
	}
}

// explained returns the comment directly above a key, as one line.
func explained(key *yaml.Node) string {
	paragraphs := strings.Split(key.HeadComment, "\n\n")
	var words []string
	for line := range strings.Lines(paragraphs[len(paragraphs)-1]) {
		words = append(words, strings.Fields(strings.TrimPrefix(line, "#"))...)
	}
	return strings.ReplaceAll(strings.Join(words, " "), "|", `\|`)
}

// inline returns a default as YAML in one line.
func inline(value *yaml.Node) string {
	switch {
	case value.Kind == yaml.SequenceNode && len(value.Content) == 0:
		return "[]"
	case value.Kind == yaml.MappingNode:
		return "{}"
	case value.Value == "":
		return `""`
	}
	return value.Value
}
