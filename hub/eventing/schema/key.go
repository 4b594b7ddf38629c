package schema

import (
	"slices"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// DataType of a key's value, as discovery and errors name it.
type DataType string

// Data types.
const (
	// Int is a JSON number without a fraction.
	Int DataType = "int"
	// Bool is true or false.
	Bool DataType = "bool"
	// String is a JSON string; a number must be quoted.
	String DataType = "string"
	// Duration is a string such as 30s, 5m or 168h.
	Duration DataType = "duration"
	// Quantity is a number of bytes, or a string such as 256Mi.
	Quantity DataType = "quantity"
	// URL is a string; several URLs, where the key allows them, are separated by commas.
	URL DataType = "url"
	// Enum is one of the strings that the key allows.
	Enum DataType = "enum"
	// List is a list of strings.
	List DataType = "list"
	// SecretRef is the name of a Secret in the EventingBackend's own namespace.
	SecretRef DataType = "secretRef"
)

// Key of spec.config.
type Key struct {
	Name string
	// Description in one sentence, for discovery and docs.
	Description string
	Type        DataType
	// Default is the effective value when the key is not set, in the notation of a
	// manifest; empty when there is none.
	Default string
	// Required: a missing key without a default is an error. The defaulting webhook writes
	// one with a default into the object.
	Required bool
	// Immutable keys may not change while the backend exists.
	Immutable bool
	// Example of a value, for docs.
	Example string
	// Only lists the values of the role key for which this key may be set; nil for all.
	Only []string
	// Constraints on a value of the right data type.
	Constraints []Constraint
}

// Rule checks several keys together. It is called when each single key is valid. It
// returns the key with the error and the text of the error, or "", "".
type Rule func(Config) (key, text string)

// Schema of one backend type.
type Schema struct {
	// Type in spec.type, in lower case.
	Type string
	// Title for docs.
	Title string
	Keys  []Key
	Rules []Rule
}

// With returns the schema with more keys, in place of those of the same name.
func (s Schema) With(keys ...Key) Schema {
	all := slices.Clone(s.Keys)
	for _, key := range keys {
		if i := slices.IndexFunc(all, func(k Key) bool { return k.Name == key.Name }); i >= 0 {
			all[i] = key
			continue
		}
		all = append(all, key)
	}
	s.Keys = all
	return s
}

// key by its name; nil when the schema has none.
func (s Schema) key(name string) *Key {
	for i := range s.Keys {
		if s.Keys[i].Name == name {
			return &s.Keys[i]
		}
	}
	return nil
}

// RoleKey is the key whose values are in Key.Only.
const RoleKey = eventingv1.RoleKey
