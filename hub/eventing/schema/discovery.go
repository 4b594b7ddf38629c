package schema

import (
	"strings"
)

// Description of a backend type: the answer of GET /backend/{type}.
type Description struct {
	Type   string           `json:"type"`
	Config []KeyDescription `json:"config"`
}

// KeyDescription describes one key. DefaultValue is a string for every data type, so that
// clients need no parser for it; it is omitted when there is no default.
type KeyDescription struct {
	Name          string   `json:"name"`
	Description   string   `json:"description"`
	DataType      DataType `json:"dataType"`
	DefaultValue  *string  `json:"defaultValue,omitempty"`
	Required      bool     `json:"required"`
	Constraint    string   `json:"constraint,omitempty"`
	AllowedValues []string `json:"allowedValues,omitempty"`
	Immutable     bool     `json:"immutable,omitempty"`
	Roles         []string `json:"roles,omitempty"`
	Example       string   `json:"example,omitempty"`
}

// Describe returns the description of the schema.
func (s Schema) Describe() Description {
	d := Description{Type: s.Type, Config: make([]KeyDescription, len(s.Keys))}
	for i, key := range s.Keys {
		k := KeyDescription{
			Name: key.Name, Description: key.Description, DataType: key.Type, Required: key.Required,
			Immutable: key.Immutable, Roles: key.Only, Example: key.Example,
		}
		if key.Default != "" {
			k.DefaultValue = &s.Keys[i].Default
		}
		var texts []string
		for _, constraint := range key.Constraints {
			texts = append(texts, constraint.Text)
			k.AllowedValues = append(k.AllowedValues, constraint.Allowed...)
		}
		k.Constraint = strings.Join(texts, "; ")
		d.Config[i] = k
	}
	return d
}

// Describe returns the description of a backend type; false when it is not registered.
func (r *Registry) Describe(backendType string) (Description, bool) {
	s, known := r.Schema(backendType)
	if !known {
		return Description{}, false
	}
	return s.Describe(), true
}
