package event

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

//go:generate go test . -run TestDocumentIsCurrent -update

// schemas of the data, by the first part of a kind: the object.
var schemas = map[string]*jsonschema.Schema{
	"promotion":         schemaOf[Promotion](),
	"cluster":           schemaOf[Cluster](),
	"instance":          schemaOf[Instance](),
	"machinedeployment": schemaOf[MachineDeployment](),
	"backend":           schemaOf[Backend](),
}

// draft is the JSON schema version of the schemas.
const draft = "https://json-schema.org/draft/2020-12/schema"

// schemaOf returns the schema of a data type. It allows no additional fields: tests
// validate events with it.
func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("%T has no JSON schema: %v", *new(T), err))
	}
	return s
}

// Schema returns the JSON schema of a kind's data, as the hub serves it; false when the
// catalogue has no such kind.
func Schema(k Kind) ([]byte, bool) {
	entry, known := entries[k]
	if !known {
		return nil, false
	}
	s := open(schemas[k.Object()])
	s.Schema, s.Title, s.Description = draft, string(k), entry.When
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("the schema of kind %s cannot be encoded as JSON: %v", k, err)) // It was made from a Go type.
	}
	return text, true
}

// Object returns the object of a kind, such as promotion.
func (k Kind) Object() string {
	object, _, _ := strings.Cut(string(k), ".")
	return object
}

// open copies a schema and allows additional fields, which a later release may add.
func open(s *jsonschema.Schema) *jsonschema.Schema {
	c := s.CloneSchemas()
	for _, part := range c.Properties {
		part.AdditionalProperties = nil
	}
	c.AdditionalProperties = nil
	return c
}
