package schema

import (
	"fmt"
	"strings"
)

//go:generate go test . -run TestDocumentIsCurrent -update

// Document returns the tables of all types as Markdown, for docs/eventing-config.md.
func (r *Registry) Document() string {
	var b strings.Builder
	b.WriteString("# Configuration of event backends\n\n")
	b.WriteString("Generated from hub/eventing/schema by `make generate`; `GET /backend/{type}` tells the same.\n")
	b.WriteString("A duration is written as 30s, 5m or 168h, a quantity as a number of bytes or as 256Mi.\n")
	for _, s := range r.schemas {
		fmt.Fprintf(&b, "\n## %s: %s\n\n", s.Type, s.Title)
		b.WriteString("| key | type | default | what it is | constraint |\n|---|---|---|---|---|\n")
		for _, key := range s.Describe().Config {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n",
				key.Name, key.DataType, key.defaultCell(), key.descriptionCell(), strings.ReplaceAll(key.Constraint, "|", `\|`))
		}
	}
	return b.String()
}

func (k KeyDescription) defaultCell() string {
	switch {
	case k.DefaultValue != nil && k.Required:
		return fmt.Sprintf("`%s` (written into the object)", *k.DefaultValue)
	case k.DefaultValue != nil:
		return fmt.Sprintf("`%s`", *k.DefaultValue)
	case k.Required:
		return "**required**"
	}
	return ""
}

func (k KeyDescription) descriptionCell() string {
	text := k.Description
	if k.Roles != nil {
		text += fmt.Sprintf(" Role %s only.", strings.Join(k.Roles, ", "))
	}
	if k.Immutable {
		text += " It cannot be changed."
	}
	return text
}
