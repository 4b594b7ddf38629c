package cloudformation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Keys of a template.
const (
	versionKey     = "AWSTemplateFormatVersion"
	descriptionKey = "Description"
	resourcesKey   = "Resources"
	outputsKey     = "Outputs"
	valueKey       = "Value"
	typeKey        = "Type"
	propertiesKey  = "Properties"
	dependsOnKey   = "DependsOn"
	tagsKey        = "Tags"
)

// template is a checked template.
type template struct {
	body        string
	description string
	resources   map[string]definition
	outputs     map[string]output
	// order of the resources: each one is after those that it depends on.
	order []string
}

// definition of a resource, with unresolved functions.
type definition struct {
	kind       string
	properties map[string]any
	after      []string
}

type output struct {
	description string
	value       any
}

// parse parses and checks a template. Errors have the texts of AWS, and name what is not
// simulated.
func parse(body string) (*template, error) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(body), &document); err != nil {
		return nil, fmt.Errorf("Template format error: YAML not well-formed. (%w)", err)
	}
	if len(document.Content) == 0 {
		return nil, formatError("it is empty")
	}
	root, err := value(document.Content[0])
	if err != nil {
		return nil, err
	}
	top, isMap := root.(map[string]any)
	if !isMap {
		return nil, formatError("unsupported structure.")
	}
	if err := onlyKeys(top, "Invalid template property or properties [%s]", versionKey, descriptionKey, resourcesKey, outputsKey); err != nil {
		return nil, err
	}
	t := &template{body: body, resources: map[string]definition{}, outputs: map[string]output{}}
	t.description, _ = top[descriptionKey].(string)
	if err := t.readResources(top[resourcesKey]); err != nil {
		return nil, err
	}
	if err := t.readOutputs(top[outputsKey]); err != nil {
		return nil, err
	}
	return t, t.sort()
}

func formatError(format string, args ...any) error {
	return fmt.Errorf("Template format error: "+format, args...)
}

// onlyKeys returns an error if a map has other keys. The format has the key.
func onlyKeys(m map[string]any, format string, keys ...string) error {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(keys, key) {
			return formatError(format, key)
		}
	}
	return nil
}

func (t *template) readResources(raw any) error {
	resources, _ := raw.(map[string]any)
	if len(resources) == 0 {
		return formatError("At least one Resources member must be defined.")
	}
	for _, logical := range slices.Sorted(maps.Keys(resources)) {
		fields, isMap := resources[logical].(map[string]any)
		if !isMap {
			return formatError("Every Resources member must be an object: %s", logical)
		}
		if err := onlyKeys(fields, "Invalid attribute [%s] of resource "+logical+": it is not simulated", typeKey, propertiesKey, dependsOnKey); err != nil {
			return err
		}
		d := definition{properties: map[string]any{}}
		d.kind, _ = fields[typeKey].(string)
		k, known := kinds[d.kind]
		if !known {
			return formatError("Unrecognized resource types: [%s]", d.kind)
		}
		if properties, has := fields[propertiesKey].(map[string]any); has {
			d.properties = properties
		}
		for _, name := range slices.Sorted(maps.Keys(d.properties)) {
			if _, known := k.properties[name]; !known {
				return fmt.Errorf("Encountered unsupported property %s of resource %s (%s)", name, logical, d.kind)
			}
		}
		switch after := fields[dependsOnKey].(type) {
		case string:
			d.after = []string{after}
		case []any:
			for _, one := range after {
				d.after = append(d.after, fmt.Sprint(one))
			}
		}
		t.resources[logical] = d
	}
	return nil
}

func (t *template) readOutputs(raw any) error {
	outputs, _ := raw.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		fields, _ := outputs[name].(map[string]any)
		if err := onlyKeys(fields, "Invalid attribute [%s] of output "+name+": it is not simulated", descriptionKey, valueKey); err != nil {
			return err
		}
		o := output{value: fields[valueKey]}
		o.description, _ = fields[descriptionKey].(string)
		if _, err := references(o.value, t); err != nil {
			return err
		}
		t.outputs[name] = o
	}
	return nil
}

// sort sets the order of the resources, and checks their references.
func (t *template) sort() error {
	const visiting, done = 1, 2
	state := map[string]int{}
	var visit func(logical string) error
	visit = func(logical string) error {
		switch state[logical] {
		case visiting:
			return fmt.Errorf("Circular dependency between resources: [%s]", logical)
		case done:
			return nil
		}
		state[logical] = visiting
		before, err := t.dependencies(logical)
		if err != nil {
			return err
		}
		for _, other := range before {
			if err := visit(other); err != nil {
				return err
			}
		}
		state[logical] = done
		t.order = append(t.order, logical)
		return nil
	}
	for _, logical := range slices.Sorted(maps.Keys(t.resources)) {
		if err := visit(logical); err != nil {
			return err
		}
	}
	return nil
}

// dependencies returns the resources that one must be created after, sorted.
func (t *template) dependencies(logical string) ([]string, error) {
	d := t.resources[logical]
	all, err := references(d.properties, t)
	if err != nil {
		return nil, err
	}
	for _, other := range d.after {
		if _, has := t.resources[other]; !has {
			return nil, unresolved(other)
		}
		all = append(all, other)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func unresolved(logical string) error {
	return formatError("Unresolved resource dependencies [%s] in the Resources block of the template", logical)
}

// value converts a node, and the short forms of functions to the long ones.
func value(n *yaml.Node) (any, error) {
	inner, err := plain(n)
	if err != nil || n.Tag == "" || strings.HasPrefix(n.Tag, "!!") {
		return inner, err
	}
	switch text, isText := inner.(string); {
	case n.Tag == "!Ref" && isText:
		return map[string]any{"Ref": text}, nil
	case n.Tag == "!Sub" && isText:
		return map[string]any{"Fn::Sub": text}, nil
	case n.Tag == "!GetAtt" && isText:
		logical, attribute, _ := strings.Cut(text, ".")
		return map[string]any{"Fn::GetAtt": []any{logical, attribute}}, nil
	case n.Tag == "!GetAtt":
		return map[string]any{"Fn::GetAtt": inner}, nil
	}
	return nil, formatError("the function %s in line %d is not simulated", n.Tag, n.Line)
}

func plain(n *yaml.Node) (any, error) {
	switch n.Kind { //nolint:exhaustive // Documents and aliases have been resolved.
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if _, twice := m[key]; twice {
				return nil, formatError("the key %s in line %d is a duplicate", key, n.Content[i].Line)
			}
			v, err := value(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[key] = v
		}
		return m, nil
	case yaml.SequenceNode:
		list := []any{}
		for _, one := range n.Content {
			v, err := value(one)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.ScalarNode:
		if !strings.HasPrefix(n.Tag, "!!") {
			return n.Value, nil
		}
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, formatError("line %d: %s", n.Line, err)
		}
		return v, nil
	}
	return nil, formatError("YAML aliases are not supported")
}
