package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Kind of a Document. It determines which elements a statement must have.
type Kind int

// Kinds of documents.
const (
	// Identity is a policy of a role: without a Principal.
	Identity Kind = iota
	// Resource is a policy of a resource, such as a queue: with a Principal.
	Resource
	// Trust is the trust policy of a role: with a Principal and without a Resource.
	Trust
)

// Document is a parsed policy. The zero Document has no statements.
type Document struct{ statements []statement }

type statement struct {
	deny       bool
	principals principals
	actions    []string
	resources  []string
	conditions map[string]map[string][]string
}

type principals struct {
	anyone   bool
	aws      []string
	services []string
}

// document and rawStatement are the JSON of a policy.
type document struct {
	Version   string
	ID        string `json:"Id"`
	Statement json.RawMessage
}

type rawStatement struct {
	Sid       string
	Effect    string
	Principal json.RawMessage
	Action    texts
	Resource  texts
	Condition map[string]map[string]texts
}

// texts is a text, a boolean or a number, or a list of these.
type texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *texts) UnmarshalJSON(raw []byte) error {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	*t = texts{}
	for _, one := range list {
		var v any
		if err := json.Unmarshal(one, &v); err != nil {
			return err
		}
		switch v := v.(type) {
		case string:
			*t = append(*t, v)
		case bool, float64:
			*t = append(*t, string(one))
		default:
			return fmt.Errorf("%s is not a text", one)
		}
	}
	return nil
}

// Parse parses a policy. Errors name the element that is invalid or not supported.
func Parse(text string, kind Kind) (Document, error) {
	var d document
	if err := decode([]byte(text), &d); err != nil {
		return Document{}, fmt.Errorf("the policy is not valid JSON of a policy: %w", err)
	}
	if d.Version != "" && d.Version != "2012-10-17" && d.Version != "2008-10-17" {
		return Document{}, fmt.Errorf("the policy has an invalid Version %q", d.Version)
	}
	var list []json.RawMessage
	if d.Statement != nil && json.Unmarshal(d.Statement, &list) != nil {
		list = []json.RawMessage{d.Statement}
	}
	var parsed Document
	for i, raw := range list {
		s, err := parseStatement(raw, kind)
		if err != nil {
			return Document{}, fmt.Errorf("statement %d of the policy: %w", i+1, err)
		}
		parsed.statements = append(parsed.statements, s)
	}
	if len(parsed.statements) == 0 {
		return Document{}, fmt.Errorf("the policy has no Statement")
	}
	return parsed, nil
}

func parseStatement(text json.RawMessage, kind Kind) (statement, error) {
	var raw rawStatement
	if err := decode(text, &raw); err != nil {
		return statement{}, err
	}
	s := statement{deny: raw.Effect == "Deny", actions: raw.Action, resources: raw.Resource, conditions: map[string]map[string][]string{}}
	switch {
	case raw.Effect != "Allow" && raw.Effect != "Deny":
		return statement{}, fmt.Errorf("the Effect %q is neither Allow nor Deny", raw.Effect)
	case len(raw.Action) == 0:
		return statement{}, fmt.Errorf("it has no Action")
	case kind == Trust && len(raw.Resource) > 0:
		return statement{}, fmt.Errorf("a trust policy cannot have a Resource")
	case kind != Trust && len(raw.Resource) == 0:
		return statement{}, fmt.Errorf("it has no Resource")
	case kind == Identity && raw.Principal != nil:
		return statement{}, fmt.Errorf("a policy of a role cannot have a Principal")
	case kind != Identity && raw.Principal == nil:
		return statement{}, fmt.Errorf("it has no Principal")
	}
	for operator, keys := range raw.Condition {
		s.conditions[operator] = map[string][]string{}
		for key, values := range keys {
			s.conditions[operator][key] = values
		}
	}
	if kind == Trust {
		s.resources = []string{"*"}
	}
	if raw.Principal != nil {
		var err error
		if s.principals, err = parsePrincipals(raw.Principal); err != nil {
			return statement{}, err
		}
	}
	return s, nil
}

func parsePrincipals(raw json.RawMessage) (principals, error) {
	var all string
	if json.Unmarshal(raw, &all) == nil {
		if all != "*" {
			return principals{}, fmt.Errorf("the Principal %q is not supported", all)
		}
		return principals{anyone: true}, nil
	}
	var sets struct {
		AWS     texts
		Service texts
	}
	if err := decode(raw, &sets); err != nil {
		return principals{}, fmt.Errorf("the Principal: %w", err)
	}
	return principals{anyone: slices.Contains(sets.AWS, "*"), aws: sets.AWS, services: sets.Service}, nil
}

// decode decodes JSON, and refuses fields that v does not have.
func decode(raw []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	return decoder.Decode(v)
}
