package schema

import (
	"fmt"
	"strings"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// Registry has the schemas of the backend types.
type Registry struct {
	schemas []Schema
}

// NewRegistry returns a Registry of schemas, in the order of documents and answers. It
// panics when one of them is inconsistent: that is a bug of the program.
func NewRegistry(schemas ...Schema) *Registry {
	r := &Registry{}
	for _, s := range schemas {
		if s.Type == "" || s.Type != strings.ToLower(s.Type) || r.find(s.Type) != nil {
			panic(fmt.Sprintf("backend type %q is empty, not in lower case, or registered twice", s.Type))
		}
		names := map[string]bool{}
		for i := range s.Keys {
			key := &s.Keys[i]
			if names[key.Name] || key.Name == "" || key.Description == "" {
				panic(fmt.Sprintf("key %q of backend type %s is a duplicate, or has no name or description", key.Name, s.Type))
			}
			names[key.Name] = true
			for _, sample := range []string{key.Default, key.Example} {
				if sample != "" {
					k := Key{Type: key.Type, Default: sample}
					value, text := parse(key.Type, k.defaultJSON())
					if text == "" {
						text = key.check(value)
					}
					if text != "" {
						panic(fmt.Sprintf("key %s of backend type %s: %q %s", key.Name, s.Type, sample, text))
					}
				}
			}
		}
		r.schemas = append(r.schemas, s)
	}
	return r
}

// Types returns the registered types, in their order.
func (r *Registry) Types() []string {
	types := make([]string, len(r.schemas))
	for i, s := range r.schemas {
		types[i] = s.Type
	}
	return types
}

// Schema returns the schema of a type, in any case.
func (r *Registry) Schema(backendType string) (Schema, bool) {
	if s := r.find(strings.ToLower(backendType)); s != nil {
		return *s, true
	}
	return Schema{}, false
}

func (r *Registry) find(backendType string) *Schema {
	for i := range r.schemas {
		if r.schemas[i].Type == backendType {
			return &r.schemas[i]
		}
	}
	return nil
}

// Resolve returns the configuration of the spec of an EventingBackend, or its validation
// errors.
func (r *Registry) Resolve(spec eventingv1.EventingBackendSpec) (Config, []eventingv1.ValidationError) {
	s, known := r.Schema(spec.Type)
	if !known {
		return Config{}, []eventingv1.ValidationError{{
			Type: eventingv1.InvalidValue, Config: "type", Value: cut(spec.Type),
			Error: "must be one of " + strings.Join(r.Types(), ", "),
		}}
	}
	return s.Resolve(spec.Config)
}

// Options of the hub's types.
type Options struct {
	// NATSURL is the value of --nats-url.
	NATSURL string
}

// Types returns the registry of the hub's types. It fails when an option violates the
// schema.
func Types(o Options) (*Registry, error) {
	nats := NATS("")
	if o.NATSURL != "" {
		if text := nats.key("url").check(o.NATSURL); text != "" {
			return nil, fmt.Errorf("--nats-url %s", text)
		}
		nats = NATS(o.NATSURL)
	}
	return NewRegistry(nats, BEB(), SQS(), HTTP()), nil
}
