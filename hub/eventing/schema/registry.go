package schema

import (
	"fmt"
	"slices"
	"strings"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// Registry has the schemas of the backend types.
type Registry struct {
	schemas []Schema
	// sources and sinks are Options.SQSSourceNamespaces and Options.SQSSinkNamespaces.
	sources, sinks Namespaces
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

// Resolve returns the configuration of an EventingBackend, or its validation errors. It reads
// the namespace, the name and the spec.
func (r *Registry) Resolve(b *eventingv1.EventingBackend) (Config, []eventingv1.ValidationError) {
	s, known := r.Schema(b.Spec.Type)
	if !known {
		return Config{}, []eventingv1.ValidationError{{
			Type: eventingv1.InvalidValue, Config: "type", Value: cut(b.Spec.Type),
			Error: "must be one of " + strings.Join(r.Types(), ", "),
		}}
	}
	c, invalid := s.Resolve(b.Spec.Config)
	if len(invalid) == 0 {
		invalid = append(c.checkName(b.Name), r.checkNamespace(c, b.Namespace)...)
	}
	if len(invalid) > 0 {
		return Config{}, invalid
	}
	return c, nil
}

// checkNamespace returns an error when a configuration would use the hub's AWS credentials for
// a namespace in which the administrator of the hub does not allow it.
func (r *Registry) checkNamespace(c Config, namespace string) []eventingv1.ValidationError {
	if c.Type != TypeSQS {
		return nil
	}
	role, allowed, flag := c.String(RoleKey), r.sinks, SinkNamespacesFlag
	if c.IsSource() {
		allowed, flag = r.sources, SourceNamespacesFlag
	}
	if allowed.Include(namespace) {
		return nil
	}
	return []eventingv1.ValidationError{{
		Type: eventingv1.InvalidValue, Config: RoleKey, Value: role,
		Error: fmt.Sprintf("must not be %s in namespace %s: it uses the AWS credentials of the hub, which --%s allows %s", role, namespace, flag, allowed),
	}}
}

// Flags of the namespaces whose EventingBackends of type sqs the hub uses.
const (
	SourceNamespacesFlag = "sqs-source-namespaces"
	SinkNamespacesFlag   = "sqs-sink-namespaces"
)

// AllNamespaces is the member of Namespaces that includes every namespace.
const AllNamespaces = "*"

// Namespaces is a set of namespaces. None is included when it is empty.
type Namespaces []string

// Include reports whether the set has a namespace.
func (n Namespaces) Include(namespace string) bool {
	return slices.Contains(n, namespace) || slices.Contains(n, AllNamespaces)
}

// String returns a text that continues "is allowed".
func (n Namespaces) String() string {
	if len(n) == 0 {
		return "in no namespace"
	}
	return "only in " + strings.Join(n, ", ")
}

// Options of the hub's types.
type Options struct {
	// NATSURL is the value of --nats-url.
	NATSURL string
	// EventsAddress is the value of --events-addr. It is no default if it has a user and password.
	EventsAddress string
	// SQSSourceNamespaces are the namespaces in which an EventingBackend of type sqs may have
	// role source: its queue labels and remediates machines of every namespace.
	// SQSSinkNamespaces are those in which it may have role sink. Both use the hub's AWS
	// credentials, and every role that these may assume.
	SQSSourceNamespaces, SQSSinkNamespaces Namespaces
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
	flux := Flux("")
	// The flag may have a user and a password, which a default must not show.
	if o.EventsAddress != "" && flux.key("url").check(o.EventsAddress) == "" {
		flux = Flux(o.EventsAddress)
	}
	r := NewRegistry(nats, BEB(), SQS(), HTTP(), flux, Slack(), MSTeams(), CommitStatus())
	r.sources, r.sinks = o.SQSSourceNamespaces, o.SQSSinkNamespaces
	return r, nil
}
