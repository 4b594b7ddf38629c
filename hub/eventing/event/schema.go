package event

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

//go:generate go test . -run TestDocumentIsCurrent -update

// schemas of the data, by the object that a kind begins with.
var schemas = map[string]*jsonschema.Schema{
	"promotion":         schemaOf[Promotion](),
	"cluster":           schemaOf[Cluster](),
	"instance":          schemaOf[Instance](),
	"machinedeployment": schemaOf[MachineDeployment](),
	"backend":           schemaOf[Backend](),
}

// draft is the version of JSON schema that the schemas are written in.
const draft = "https://json-schema.org/draft/2020-12/schema"

// schemaOf a data type. It is strict as the library makes it: tests check events by it.
func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("%T has no JSON schema: %v", *new(T), err))
	}
	return s
}

// Schema of a kind's data, as it is served; false when the catalogue has no such kind.
func Schema(k Kind) ([]byte, bool) {
	entry, known := entries[k]
	if !known {
		return nil, false
	}
	s := open(schemas[k.Object()])
	s.Schema, s.Title, s.Description = draft, string(k), entry.When
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("the schema of kind %s is no JSON: %v", k, err)) // It was made from a Go type.
	}
	return text, true
}

// Object of a kind, such as promotion.
func (k Kind) Object() string {
	object, _, _ := strings.Cut(string(k), ".")
	return object
}

// open is a copy of a schema that allows fields which a later release may add.
func open(s *jsonschema.Schema) *jsonschema.Schema {
	c := s.CloneSchemas()
	for _, part := range c.Properties {
		part.AdditionalProperties = nil
	}
	c.AdditionalProperties = nil
	return c
}
