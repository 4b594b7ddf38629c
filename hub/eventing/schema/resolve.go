package schema

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"sort"
	"strings"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/internal/truncate"
)

// Texts of errors that are not of a constraint, and limits of errors.
const (
	twice = "is set more than once"
	// maxValue is how many bytes of a value an error shows.
	maxValue = 256
	// maxErrors bounds status.validationErrors: a manifest may hold thousands of keys.
	maxErrors = 100
	redacted  = "<redacted>"
)

// Resolve returns the configuration of a spec.config, or its validation errors.
func (s Schema) Resolve(entries []eventingv1.ConfigEntry) (Config, []eventingv1.ValidationError) {
	c := Config{Type: s.Type, schema: s, values: map[string]any{}, set: map[string]bool{}}
	var found []eventingv1.ValidationError
	refuse := func(kind eventingv1.ValidationErrorType, key string, raw []byte, text string) {
		found = append(found, eventingv1.ValidationError{Type: kind, Config: cut(key), Value: s.show(key, raw), Error: text})
	}
	pairs := flatten(entries)
	role := s.role(pairs)
	reported := map[string]bool{}
	for _, p := range pairs {
		key := s.key(p.name)
		switch {
		case key == nil && !reported[p.name]:
			reported[p.name] = true
			refuse(eventingv1.UnsupportedConfig, p.name, p.raw, "config does not exist for backend type "+s.Type)
		case key == nil || reported[p.name]:
		case c.set[p.name]:
			reported[p.name] = true
			refuse(eventingv1.InvalidValue, p.name, p.raw, twice)
		case !key.allowedIn(role):
			reported[p.name] = true
			refuse(eventingv1.InvalidValue, p.name, p.raw, "may only be set for role "+strings.Join(key.Only, ", "))
		default:
			c.set[p.name] = true
			value, text := parse(key.Type, p.raw)
			if text != "" {
				reported[p.name] = true
				refuse(eventingv1.InvalidDataType, p.name, p.raw, text)
			} else if text = key.check(value); text != "" {
				reported[p.name] = true
				refuse(eventingv1.InvalidValue, p.name, p.raw, text)
			} else {
				c.values[p.name] = value
			}
		}
	}
	c.applyDefaults(role)
	for _, name := range s.missing(c, role) {
		refuse(eventingv1.InvalidValue, name, nil, "must be set: required for backend type "+s.Type)
	}
	if len(found) == 0 {
		for _, rule := range s.Rules {
			if key, text := rule(c); text != "" && !reported[key] {
				reported[key] = true
				refuse(eventingv1.InvalidValue, key, rawOf(pairs, key), text)
			}
		}
	}
	if len(found) > 0 {
		return Config{}, found[:min(len(found), maxErrors)]
	}
	return c, nil
}

// Defaults returns the entries that the defaulting webhook adds: required keys that are
// not set and have a default, by name.
func (s Schema) Defaults(entries []eventingv1.ConfigEntry) []eventingv1.ConfigEntry {
	set := map[string]bool{}
	for _, p := range flatten(entries) {
		set[p.name] = true
	}
	var added []eventingv1.ConfigEntry
	for _, key := range sorted(s.Keys) {
		if key.Required && key.Default != "" && !set[key.Name] {
			added = append(added, eventingv1.ConfigEntry{key.Name: {Raw: key.defaultJSON()}})
		}
	}
	return added
}

// pair is one key of spec.config and its value.
type pair struct {
	name string
	raw  []byte
}

// flatten the list. The keys of one item have no order and are sorted by name.
func flatten(entries []eventingv1.ConfigEntry) []pair {
	var pairs []pair
	for _, entry := range entries {
		for _, name := range slices.Sorted(maps.Keys(entry)) {
			pairs = append(pairs, pair{name: name, raw: entry[name].Raw})
		}
	}
	return pairs
}

func rawOf(pairs []pair, name string) []byte {
	for _, p := range pairs {
		if p.name == name {
			return p.raw
		}
	}
	return nil
}

func sorted(keys []Key) []Key {
	keys = slices.Clone(keys)
	sort.SliceStable(keys, func(i, j int) bool { return keys[i].Name < keys[j].Name })
	return keys
}

// check a value of the right data type; returns the text of the first constraint that it
// violates.
func (k *Key) check(value any) string {
	for _, constraint := range k.Constraints {
		if !constraint.ok(value) {
			return constraint.Text
		}
	}
	return ""
}

// allowedIn reports whether the key may be set in a role.
func (k *Key) allowedIn(role string) bool {
	return k.Only == nil || role == "" || slices.Contains(k.Only, role)
}

// defaultJSON is the default in the notation of a manifest.
func (k *Key) defaultJSON() []byte {
	if raw := []byte(k.Default); json.Valid(raw) {
		if _, text := parse(k.Type, raw); text == "" {
			return raw
		}
	}
	quoted, _ := json.Marshal(k.Default) // A string always has a JSON form.
	return quoted
}

// applyDefaults to the keys that are not set and may be set in the role.
func (c Config) applyDefaults(role string) {
	for i := range c.schema.Keys {
		if key := &c.schema.Keys[i]; key.Default != "" && !c.set[key.Name] && key.allowedIn(role) {
			c.values[key.Name], _ = parse(key.Type, key.defaultJSON()) // NewRegistry has parsed it.
		}
	}
}

// role returns the configured role, or the default; empty for a type without roles.
func (s Schema) role(pairs []pair) string {
	key := s.key(RoleKey)
	if key == nil {
		return ""
	}
	if role, ok := str(rawOf(pairs, RoleKey)); ok && key.check(role) == "" {
		return role
	}
	if rawOf(pairs, RoleKey) != nil {
		return "" // It is invalid: keys are not checked by role.
	}
	return key.Default
}

// missing keys, by name.
func (s Schema) missing(c Config, role string) []string {
	var names []string
	for _, key := range sorted(s.Keys) {
		if _, has := c.values[key.Name]; key.Required && !has && !c.set[key.Name] && key.allowedIn(role) {
			names = append(names, key.Name)
		}
	}
	return names
}

// credential lists parts of key names that indicate a credential. No schema has such a key,
// because credentials come from Secrets; but users may set one by mistake.
var credential = []string{"password", "passwd", "token", "secret", "credential", "accesskey", "privatekey", "apikey", "nkey", "creds", "hmac", "tls.key"}

// show formats a value for an error: scalars without quotes, and possible credentials
// redacted.
func (s Schema) show(name string, raw []byte) string {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return ""
	}
	if s.key(name) == nil {
		lower := strings.ToLower(name)
		if slices.ContainsFunc(credential, func(word string) bool { return strings.Contains(lower, word) }) {
			return redacted
		}
	}
	text, isString := str(raw)
	if !isString {
		var compact bytes.Buffer
		if json.Compact(&compact, raw) != nil {
			return redacted
		}
		text = compact.String()
	}
	// user:password@host, in any key.
	if strings.Contains(text, "@") && strings.Contains(text, ":") {
		return redacted
	}
	return cut(text)
}

// cut shortens a value to maxValue.
func cut(text string) string { return truncate.Bytes(text, maxValue) }
