package schema

import (
	"fmt"
	"strings"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// Registry knows the backend types.
type Registry struct {
	schemas []Schema
}

// NewRegistry of schemas, in the order in which they are shown. It panics when one of
// them contradicts itself: that is a fault of the program.
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
				panic(fmt.Sprintf("key %q of backend type %s is there twice, or has no name or description", key.Name, s.Type))
			}
			names[key.Name] = true
			for _, spelt := range []string{key.Default, key.Example} {
				if spelt != "" {
					sample := Key{Type: key.Type, Default: spelt}
					value, text := parse(key.Type, sample.defaultJSON())
					if text == "" {
						text = key.check(value)
					}
					if text != "" {
						panic(fmt.Sprintf("key %s of backend type %s: %q %s", key.Name, s.Type, spelt, text))
					}
				}
			}
		}
		r.schemas = append(r.schemas, s)
	}
	return r
}

// Types that are registered, in their order.
func (r *Registry) Types() []string {
	types := make([]string, len(r.schemas))
	for i, s := range r.schemas {
		types[i] = s.Type
	}
	return types
}

// Schema of a type, whose case does not matter.
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

// Resolve the spec of an EventingBackend: its configuration, or what is wrong with it.
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

// Options of the types that the hub has.
type Options struct {
	// NATSURL is --nats-url.
	NATSURL string
}

// Types is the registry of the types that the hub has. It fails when an option is not
// what the schema would take.
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
