package cloudformation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Functions of templates.
const (
	refFunction = "Ref"
	attFunction = "Fn::GetAtt"
	subFunction = "Fn::Sub"
)

// pseudo are the pseudo parameters.
var pseudo = []string{"AWS::AccountId", "AWS::Region", "AWS::Partition", "AWS::StackName"}

// variable in the text of Fn::Sub. ${!x} is the text ${x}.
var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// function returns the name and argument if a value is a function.
func function(v any) (name string, argument any, is bool) {
	m, isMap := v.(map[string]any)
	if !isMap || len(m) != 1 {
		return "", nil, false
	}
	for name, argument := range m {
		if name == refFunction || strings.HasPrefix(name, "Fn::") {
			return name, argument, true
		}
	}
	return "", nil, false
}

// reference to a pseudo parameter or a resource, or to an attribute of a resource.
type reference struct{ name, attribute string }

// parts returns the references of a function.
func parts(name string, argument any) ([]reference, error) {
	switch name {
	case refFunction:
		if text, is := argument.(string); is {
			return []reference{{name: text}}, nil
		}
	case attFunction:
		if list, is := argument.([]any); is && len(list) == 2 {
			return []reference{{fmt.Sprint(list[0]), fmt.Sprint(list[1])}}, nil
		}
	case subFunction:
		text, is := argument.(string)
		if !is {
			break
		}
		var all []reference
		for _, match := range variable.FindAllStringSubmatch(text, -1) {
			if r, literal := inText(match[1]); !literal {
				all = append(all, r)
			}
		}
		return all, nil
	default:
		return nil, fmt.Errorf("Template error: the function %s is not simulated", name)
	}
	return nil, fmt.Errorf("Template error: the argument %v of %s is not simulated", argument, name)
}

// inText returns the reference of a variable.
func inText(text string) (r reference, literal bool) {
	if strings.HasPrefix(text, "!") {
		return reference{}, true
	}
	if name, attribute, has := strings.Cut(text, "."); has {
		return reference{name, attribute}, false
	}
	return reference{name: text}, false
}

// references returns the resources that a value refers to. Errors: a function or reference
// is not valid.
func references(v any, t *template) ([]string, error) {
	if name, argument, is := function(v); is {
		all, err := parts(name, argument)
		if err != nil {
			return nil, err
		}
		var found []string
		for _, r := range all {
			if r.attribute == "" && slices.Contains(pseudo, r.name) {
				continue
			}
			d, has := t.resources[r.name]
			if !has {
				return nil, unresolved(r.name)
			}
			if r.attribute != "" && !slices.Contains(kinds[d.kind].attributes, r.attribute) {
				return nil, fmt.Errorf("Template error: resource %s does not support attribute type %s in Fn::GetAtt", r.name, r.attribute)
			}
			found = append(found, r.name)
		}
		return found, nil
	}
	var found []string
	add := func(inner any) error {
		more, err := references(inner, t)
		found = append(found, more...)
		return err
	}
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			if err := add(inner); err != nil {
				return nil, err
			}
		}
	case []any:
		for _, inner := range v {
			if err := add(inner); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// environment resolves the references of a stack.
type environment struct {
	account, region, stack string
	// resources by logical id.
	resources map[string]*resource
}

func (e environment) lookup(r reference) string {
	switch r.name {
	case "AWS::AccountId":
		return e.account
	case "AWS::Region":
		return e.region
	case "AWS::Partition":
		return "aws"
	case "AWS::StackName":
		return e.stack
	}
	of := e.resources[r.name]
	switch {
	case of == nil:
		return "" // A resource that failed; only outputs can refer to it.
	case r.attribute == "":
		return of.physical
	}
	return kinds[of.kind].attribute(e, of.physical, r.attribute)
}

// resolve returns a value without functions. parse has checked the functions.
func (e environment) resolve(v any) any {
	if name, argument, is := function(v); is {
		if name == subFunction {
			return variable.ReplaceAllStringFunc(argument.(string), func(match string) string {
				r, literal := inText(match[2 : len(match)-1])
				if literal {
					return "${" + match[3:]
				}
				return e.lookup(r)
			})
		}
		all, err := parts(name, argument)
		if err != nil {
			return nil
		}
		return e.lookup(all[0])
	}
	switch v := v.(type) {
	case map[string]any:
		resolved := map[string]any{}
		for key, inner := range v {
			resolved[key] = e.resolve(inner)
		}
		return resolved
	case []any:
		resolved := make([]any, len(v))
		for i, inner := range v {
			resolved[i] = e.resolve(inner)
		}
		return resolved
	}
	return v
}
