package events

import (
	"encoding/json"
	"fmt"
	"slices"
)

// pattern of events: the allowed texts of each field.
type pattern struct {
	texts  map[string][]string
	fields map[string]pattern
}

// topLevel are the fields of an event that a pattern may have.
var topLevel = []string{"source", "detail-type", "account", "region", "resources"}

// parsePattern parses the JSON of a pattern. Errors name the field that is not supported.
func parsePattern(text string) (pattern, error) {
	p, err := parseFields("", []byte(text))
	if err != nil {
		return pattern{}, err
	}
	for name := range p.texts {
		if !slices.Contains(topLevel, name) {
			return pattern{}, fmt.Errorf("the field %s is not simulated", name)
		}
	}
	for name := range p.fields {
		if name != "detail" {
			return pattern{}, fmt.Errorf("%s must be an array", name)
		}
	}
	return p, nil
}

func parseFields(path string, raw []byte) (pattern, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return pattern{}, fmt.Errorf("%sit is not an object: %w", path, err)
	}
	if len(fields) == 0 {
		return pattern{}, fmt.Errorf("%sempty objects are not allowed", path)
	}
	p := pattern{texts: map[string][]string{}, fields: map[string]pattern{}}
	for name, value := range fields {
		if value[0] == '{' {
			inner, err := parseFields(path+name+": ", value)
			if err != nil {
				return pattern{}, err
			}
			p.fields[name] = inner
			continue
		}
		// Pointers, because null is no text.
		var texts []*string
		if err := json.Unmarshal(value, &texts); err != nil || slices.Contains(texts, nil) {
			return pattern{}, fmt.Errorf("%s%s: only lists of texts are simulated, not %s", path, name, value)
		}
		if len(texts) == 0 {
			return pattern{}, fmt.Errorf("%s%s: empty arrays are not allowed", path, name)
		}
		for _, text := range texts {
			p.texts[name] = append(p.texts[name], *text)
		}
	}
	return p, nil
}

// matches reports whether an event matches. A field that is a list matches if one of its
// elements does.
func (p pattern) matches(event map[string]any) bool {
	for name, texts := range p.texts {
		values, many := event[name].([]any)
		if !many {
			values = []any{event[name]}
		}
		if !slices.ContainsFunc(values, func(v any) bool {
			text, is := v.(string)
			return is && slices.Contains(texts, text)
		}) {
			return false
		}
	}
	for name, inner := range p.fields {
		fields, is := event[name].(map[string]any)
		if !is || !inner.matches(fields) {
			return false
		}
	}
	return true
}
