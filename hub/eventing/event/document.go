package event

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Document returns the catalogue as Markdown, for docs/events.md.
func Document() string {
	var b strings.Builder
	b.WriteString("# Events\n\n")
	b.WriteString("Generated from hub/eventing/event by `make generate`. What the hub tells, as CloudEvents 1.0.\n\n")
	b.WriteString("The type of an event is the prefix of the backend (`eventTypePrefix`, by default `" + DefaultPrefix + "`) and the\n")
	b.WriteString("kind. The key `eventTypes` of a backend chooses by kind: `promotion.*`, `cluster.unreachable.v1`, `*`.\n")
	b.WriteString("News of a level tell of a state: while an object flaps, only the newest is told, at most one in a while.\n\n")
	b.WriteString("| attribute | is |\n|---|---|\n")
	b.WriteString("| `id` | the same for the same transition, however often it is sent: remember it to act once |\n")
	b.WriteString("| `source` | `/hubs/` and the name of the hub |\n")
	b.WriteString("| `time` | when it happened, in whole seconds |\n")
	b.WriteString("| `subject` | the object: events of one subject come in order |\n")
	b.WriteString("| `dataschema` | where the JSON schema of the data is served |\n")
	fmt.Fprintf(&b, "| `%s` | the cluster or Pipeline |\n", PartitionKeyExtension)
	fmt.Fprintf(&b, "| `%s` | %s, %s or %s |\n", SeverityExtension, Info, Warning, Error)
	b.WriteString("\n## Kinds\n\n| kind | told when | severity | level |\n|---|---|---|---|\n")
	var objects []string
	for _, entry := range catalogue {
		level := ""
		if entry.Level {
			level = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", entry.Kind, entry.When, entry.Severity, level)
		if object := entry.Kind.Object(); !slices.Contains(objects, object) {
			objects = append(objects, object)
		}
	}
	for _, object := range objects {
		fmt.Fprintf(&b, "\n## Data of %s events\n\n| field | type | is |\n|---|---|---|\n", object)
		writeFields(&b, "", schemas[object])
	}
	return b.String()
}

// writeFields of an object, those of its parts after it.
func writeFields(b *strings.Builder, prefix string, s *jsonschema.Schema) {
	for _, name := range s.PropertyOrder {
		field := s.Properties[name]
		fmt.Fprintf(b, "| `%s%s` | %s | %s |\n", prefix, name, typeOf(field, slices.Contains(s.Required, name)), field.Description)
		if len(field.PropertyOrder) > 0 {
			writeFields(b, prefix+name+".", field)
		}
	}
}

func typeOf(s *jsonschema.Schema, required bool) string {
	name := s.Type
	for _, t := range s.Types {
		if t != "null" {
			name = t
		}
	}
	if s.Items != nil {
		name = "array of " + s.Items.Type
	}
	if !required {
		name += ", optional"
	}
	return name
}
