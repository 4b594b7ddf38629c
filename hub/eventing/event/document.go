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
	b.WriteString("Generated from hub/eventing/event by `make generate`. The hub publishes these CloudEvents 1.0.\n\n")
	b.WriteString("The type of an event is the prefix of the backend (`eventTypePrefix`, by default `" + DefaultPrefix + "`) and the\n")
	b.WriteString("kind. The key `eventTypes` of a backend selects by kind: `promotion.*`, `cluster.unreachable.v1`, `*`.\n")
	b.WriteString("Level events report a state: while an object flaps, the hub publishes only the newest one, at a limited rate.\n\n")
	b.WriteString("| attribute | meaning |\n|---|---|\n")
	b.WriteString("| `id` | the same each time the event of one transition is sent; remember it to process the event once |\n")
	b.WriteString("| `source` | `/hubs/` and the name of the hub |\n")
	b.WriteString("| `time` | time of the transition, in whole seconds |\n")
	b.WriteString("| `subject` | the object; events of one subject are published in order |\n")
	b.WriteString("| `dataschema` | URL of the JSON schema of the data |\n")
	fmt.Fprintf(&b, "| `%s` | name of the cluster or Pipeline |\n", PartitionKeyExtension)
	fmt.Fprintf(&b, "| `%s` | %s, %s or %s |\n", SeverityExtension, Info, Warning, Error)
	b.WriteString("\n## Kinds\n\n| kind | published when | severity | level |\n|---|---|---|---|\n")
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
		fmt.Fprintf(&b, "\n## Data of %s events\n\n| field | type | meaning |\n|---|---|---|\n", object)
		writeFields(&b, "", schemas[object])
	}
	return b.String()
}

// writeFields writes the fields of an object, each followed by its own fields.
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
