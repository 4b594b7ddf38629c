package provision

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Types of the resources of a template.
const (
	TypeQueue         = "AWS::SQS::Queue"
	TypeQueuePolicy   = "AWS::SQS::QueuePolicy"
	TypeManagedPolicy = "AWS::IAM::ManagedPolicy"
	TypeRole          = "AWS::IAM::Role"
	TypeRule          = "AWS::Events::Rule"
)

// Place is where a template is deployed.
type Place struct{ Partition, Region, Account string }

// Resource is a resource of a template, as CloudFormation creates it in a Place.
type Resource struct {
	// Logical name in the template, and Type.
	Logical, Type string
	// Name of the resource; empty if AWS generates it and it is not known.
	Name string
	// Properties without functions: values of JSON.
	Properties map[string]any
}

// Set is a template, as CloudFormation deploys it in a Place.
type Set struct {
	Place
	// Resources by logical name.
	Resources map[string]Resource
}

// HubSet returns the resources of Hub's template. Physical has the ids that AWS generated, by logical
// name; without them, their names and references to them are empty. Errors: of class ErrInvalid.
func HubSet(o Options, at Place, physical map[string]string) (*Set, error) {
	t, err := hub(o)
	if err != nil {
		return nil, err
	}
	return t.set(at, physical)
}

// MemberSet returns the resources of Member's template. Errors: of class ErrInvalid.
func MemberSet(o Options, hub string, at Place) (*Set, error) {
	t, err := member(o, hub)
	if err != nil {
		return nil, err
	}
	return t.set(at, nil)
}

// Of returns the resources of a type, by logical name.
func (s *Set) Of(kind string) []Resource {
	var found []Resource
	for _, logical := range slices.Sorted(maps.Keys(s.Resources)) {
		if r := s.Resources[logical]; r.Type == kind {
			found = append(found, r)
		}
	}
	return found
}

// set resolves the functions of a template.
func (t template) set(at Place, physical map[string]string) (*Set, error) {
	raw, err := yaml.Marshal(t.Resources)
	if err != nil {
		return nil, fmt.Errorf("reading a template: %w", err)
	}
	var plain map[string]any
	if err := yaml.Unmarshal(raw, &plain); err != nil {
		return nil, fmt.Errorf("reading a template: %w", err)
	}
	// Numbers become those of JSON.
	var read map[string]struct {
		Type       string
		Properties map[string]any
	}
	if raw, err = json.Marshal(plain); err != nil {
		return nil, fmt.Errorf("reading a template: %w", err)
	}
	if err := json.Unmarshal(raw, &read); err != nil {
		return nil, fmt.Errorf("reading a template: %w", err)
	}
	s := &Set{Place: at, Resources: map[string]Resource{}}
	for logical, r := range read {
		s.Resources[logical] = Resource{Logical: logical, Type: r.Type, Name: cmp.Or(s.nameOf(r.Properties), physical[logical])}
	}
	for logical, r := range read {
		one := s.Resources[logical]
		one.Properties = s.resolve(r.Properties).(map[string]any)
		s.Resources[logical] = one
	}
	return s, nil
}

// nameOf returns the name in the properties of a resource.
func (s *Set) nameOf(properties map[string]any) string {
	for _, key := range []string{"QueueName", "Name", "RoleName"} {
		if name, is := s.resolve(properties[key]).(string); is {
			return name
		}
	}
	return ""
}

// resolve the functions in a value.
func (s *Set) resolve(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if text, is := v["Fn::Sub"].(string); is {
			return strings.NewReplacer("${AWS::AccountId}", s.Account, "${AWS::Region}", s.Region, "${AWS::Partition}", s.Partition).Replace(text)
		}
		if logical, is := v["Ref"].(string); is {
			if logical == "AWS::AccountId" {
				return s.Account
			}
			return s.Resources[logical].Name
		}
		if of, is := v["Fn::GetAtt"].([]any); is {
			return s.ARN(s.Resources[of[0].(string)])
		}
		resolved := map[string]any{}
		for key, value := range v {
			resolved[key] = s.resolve(value)
		}
		return resolved
	case []any:
		resolved := make([]any, len(v))
		for i, value := range v {
			resolved[i] = s.resolve(value)
		}
		return resolved
	}
	return v
}

// ARN returns the ARN of a queue, role or rule.
func (s *Set) ARN(r Resource) string {
	switch r.Type {
	case TypeQueue:
		return fmt.Sprintf("arn:%s:sqs:%s:%s:%s", s.Partition, s.Region, s.Account, r.Name)
	case TypeRole:
		return fmt.Sprintf("arn:%s:iam::%s:role/%s", s.Partition, s.Account, r.Name)
	case TypeRule:
		return fmt.Sprintf("arn:%s:events:%s:%s:rule/%s", s.Partition, s.Region, s.Account, r.Name)
	}
	return r.Name
}
