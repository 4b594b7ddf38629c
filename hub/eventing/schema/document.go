package schema

import (
	"fmt"
	"strings"
)

//go:generate go test . -run TestDocumentIsCurrent -update

// Document returns the tables of all types as Markdown, for docs/eventing.md.
func (r *Registry) Document() string {
	var b strings.Builder
	for _, s := range r.schemas {
		fmt.Fprintf(&b, "\n### Keys of %s: %s\n\n", s.Type, s.Title)
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
