package schema

import (
	"fmt"
	"time"
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
