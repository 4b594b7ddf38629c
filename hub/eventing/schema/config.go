package schema

import (
	"fmt"
	"reflect"
	"time"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// Config is a valid configuration with its defaults. The methods panic when the schema
// has no such key of that data type: that is a bug of the program, not an error in a
// manifest.
type Config struct {
	// Type of the backend.
	Type   string
	schema Schema
	values map[string]any
	set    map[string]bool
}

// Has reports whether the type has the key.
func (c Config) Has(name string) bool { return c.schema.key(name) != nil }

// IsSet reports whether the manifest itself sets the key.
func (c Config) IsSet(name string) bool {
	c.declared(name)
	return c.set[name]
}

// Int returns the value of an Int key, or the bytes of a Quantity; 0 when it is not set.
func (c Config) Int(name string) int64 { return get[int64](c, name, Int, Quantity) }

// Bool returns the value of a Bool key; false when it is not set.
func (c Config) Bool(name string) bool { return get[bool](c, name, Bool) }

// String returns the value of a String, URL, Enum or SecretRef key; empty when it is not
// set.
func (c Config) String(name string) string {
	return get[string](c, name, String, URL, Enum, SecretRef)
}

// Duration returns the value of a Duration key; 0 when it is not set.
func (c Config) Duration(name string) time.Duration { return get[time.Duration](c, name, Duration) }

// List returns the value of a List key; nil when it is not set. The caller must not change
// it.
func (c Config) List(name string) []string { return get[[]string](c, name, List) }

// IsSource reports whether the backend is a queue that the hub reads, and does not publish to.
func (c Config) IsSource() bool { return c.Type == TypeSQS && c.String(RoleKey) == RoleSource }

// Equal reports whether two configurations have the same values, in any notation.
func (c Config) Equal(other Config) bool {
	return c.Type == other.Type && reflect.DeepEqual(c.values, other.values)
}

// Fixed returns the immutable keys with their values; nil when the type has none.
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

// CheckFixed returns an error for each changed immutable key, in the order of the schema.
// was is an earlier result of Fixed.
func (c Config) CheckFixed(was map[string]string) []eventingv1.ValidationError {
	var changed []eventingv1.ValidationError
	now := c.Fixed()
	for _, key := range c.schema.Keys {
		if before, known := was[key.Name]; known && key.Immutable && now[key.Name] != before {
			changed = append(changed, eventingv1.ValidationError{
				Type: eventingv1.InvalidValue, Config: key.Name, Value: cut(now[key.Name]),
				Error: fmt.Sprintf("cannot be changed from %s while the backend exists", before),
			})
		}
	}
	return changed
}

// checkName returns an error when the EventingBackend of that name is its own dead letter
// backend.
func (c Config) checkName(name string) []eventingv1.ValidationError {
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
