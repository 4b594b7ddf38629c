package schema

import (
	"fmt"
	"reflect"
	"time"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// Config is a configuration that the schema allows, with its defaults. The methods
// panic when the schema has no such key of that data type: that is a fault of the
// program, not of a manifest.
type Config struct {
	// Type of the backend.
	Type   string
	schema Schema
	values map[string]any
	set    map[string]bool
}

// IsSet tells whether the manifest itself sets the key.
func (c Config) IsSet(name string) bool {
	c.declared(name)
	return c.set[name]
}

// Int of an Int key, or the bytes of a Quantity; 0 when it is not set.
func (c Config) Int(name string) int64 { return get[int64](c, name, Int, Quantity) }

// Bool of a Bool key; false when it is not set.
func (c Config) Bool(name string) bool { return get[bool](c, name, Bool) }

// String of a String, URL, Enum or SecretRef key; empty when it is not set.
func (c Config) String(name string) string {
	return get[string](c, name, String, URL, Enum, SecretRef)
}

// Duration of a Duration key; 0 when it is not set.
func (c Config) Duration(name string) time.Duration { return get[time.Duration](c, name, Duration) }

// List of a List key, which the caller may not change; nil when it is not set.
func (c Config) List(name string) []string { return get[[]string](c, name, List) }

// Equal tells whether two configurations mean the same, however they are spelt.
func (c Config) Equal(other Config) bool {
	return c.Type == other.Type && reflect.DeepEqual(c.values, other.values)
}

// Fixed are the keys that cannot be changed, and their values; nil when the type has none.
func (c Config) Fixed() map[string]string {
	var fixed map[string]string
	for _, key := range c.schema.Keys {
		if value, has := c.values[key.Name]; key.Immutable && has {
			if fixed == nil {
				fixed = map[string]string{}
			}
			fixed[key.Name] = fmt.Sprint(value)
		}
	}
	return fixed
}

// Moved are the errors of keys that cannot be changed and are not as they were, in the
// order of the schema. was is what Fixed returned then.
func (c Config) Moved(was map[string]string) []eventingv1.ValidationError {
	var moved []eventingv1.ValidationError
	now := c.Fixed()
	for _, key := range c.schema.Keys {
		if before, known := was[key.Name]; known && key.Immutable && now[key.Name] != before {
			moved = append(moved, eventingv1.ValidationError{
				Type: eventingv1.InvalidValue, Config: key.Name, Value: cut(now[key.Name]),
				Error: fmt.Sprintf("cannot be changed from %s while the backend exists", before),
			})
		}
	}
	return moved
}

// Named are the errors of a configuration in an EventingBackend of that name: it is not
// its own dead letter backend.
func (c Config) Named(name string) []eventingv1.ValidationError {
	const key = "deadLetterBackend"
	if c.values[key] != name {
		return nil
	}
	return []eventingv1.ValidationError{{Type: eventingv1.InvalidValue, Config: key, Value: name, Error: "must be the name of another EventingBackend"}}
}

func get[T any](c Config, name string, types ...DataType) T {
	key := c.declared(name)
	for _, t := range types {
		if key.Type == t {
			value, _ := c.values[name].(T)
			return value
		}
	}
	panic(fmt.Sprintf("key %s of backend type %s is of type %s, not %v", name, c.Type, key.Type, types))
}

func (c Config) declared(name string) *Key {
	key := c.schema.key(name)
	if key == nil {
		panic(fmt.Sprintf("the schema of backend type %s has no key %s", c.Type, name))
	}
	return key
}
