package manifest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// Short tags that a marked scalar may have after an edit.
const (
	stringTag  = "!!str"
	integerTag = "!!int"
)

// maxDigits is the length of a number that every reader reads exactly. JSON numbers are
// read as float64, which holds each integer below 2^53, and so each of 15 digits.
const maxDigits = 15

// check returns an error for a value that must not be written into a file. YAML can hold
// any character in double quotes, but no revision has an unprintable character, and
// reviewers could not see it.
func check(value string) error {
	if value == "" {
		return &Error{Err: ErrValue, Detail: "it is empty"}
	}
	if !utf8.ValidString(value) {
		return &Error{Err: ErrValue, Detail: "it is not UTF-8"}
	}
	for _, r := range value {
		if !unicode.IsPrint(r) {
			return &Error{Err: ErrValue, Detail: fmt.Sprintf("it contains the character %U", r)}
		}
	}
	return nil
}

// written returns the text of the value that replaces a lexeme, in the same style.
func written(value string, l *lexeme, old string) string {
	style := l.node.Style
	switch {
	case style&yaml.SingleQuotedStyle != 0:
		return "'" + strings.ReplaceAll(value, "'", "''") + "'"
	case style&yaml.DoubleQuotedStyle == 0 && (stringWhenPlain(value, l.flow) || integer(old) && integer(value)):
		return value
	default:
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	}
}

// stringWhenPlain reports whether all readers read the unquoted value as the same string:
// those of YAML 1.1, those of 1.2, and those that read numbers as JSON does. That is so
// when the writers of both libraries leave it plain.
func stringWhenPlain(value string, flow bool) bool {
	if value == "<<" { // It is the merge key.
		return false
	}
	if _, err := strconv.ParseFloat(value, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return false // Such as NaN, or the commit 1234e567, a number that is out of range in Go.
	}
	if flow {
		line, err := yaml.Marshal(inFlow{Values: []string{value}})
		if err != nil || string(line) != "values: ["+value+"]\n" {
			return false
		}
	}
	newer, err := yaml.Marshal(value)
	if err != nil || string(newer) != value+"\n" {
		return false
	}
	older, err := sigsyaml.Marshal(value)
	return err == nil && string(older) == value+"\n"
}

// inFlow is written between brackets, where fewer texts can be plain.
type inFlow struct {
	Values []string `yaml:"values,flow"`
}

// integer reports whether a plain text is a number that every reader reads exactly.
func integer(text string) bool {
	if text == "" || len(text) > maxDigits || text[0] == '0' && text != "0" {
		return false
	}
	return strings.Trim(text, "0123456789") == ""
}

// reading is a scalar as Kubernetes and Flux read it.
type reading struct {
	text  string // as in the file
	value any    // a string, a number, a bool or nil
}

// read reads a single scalar. properties are its anchor and tag.
func read(properties, text []byte) (reading, error) {
	r := reading{text: string(text)}
	err := sigsyaml.Unmarshal([]byte(string(properties)+r.text), &r.value)
	return r, err
}

// is reports whether the scalar has the value already.
func (r reading) is(value string) bool {
	if s, ok := r.value.(string); ok {
		return s == value
	}
	return r.text == value && integer(value)
}

// String returns the value for people; a value that is not a string has its type behind it.
func (r reading) String() string {
	switch v := r.value.(type) {
	case string:
		return v
	case nil:
		return strings.TrimSpace(r.text + " (null)")
	case bool:
		return r.text + " (boolean)"
	default:
		if integer(r.text) {
			return r.text
		}
		return r.text + " (number)"
	}
}
