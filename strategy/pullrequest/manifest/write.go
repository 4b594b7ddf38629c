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

// Short tags of what a marked scalar may be after an edit.
const (
	stringTag  = "!!str"
	integerTag = "!!int"
)

// maxDigits of a number that every reader keeps exact: JSON's are read as float64,
// which holds each integer below 2^53, and so each of 15 digits.
const maxDigits = 15

// check returns an error for a value that is not to be written into a file. YAML
// could carry any character in double quotes, but no revision has one that does
// not print, and such a one would hide from the people who review.
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

// written returns the value as it replaces a lexeme's text, in the same style.
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

// stringWhenPlain tells whether the value, written without quotes, is the same
// string to all readers: those of YAML 1.1, those of 1.2, and those that read
// numbers as JSON does. It is when the writers of both libraries leave it plain.
func stringWhenPlain(value string, flow bool) bool {
	if value == "<<" { // which would merge
		return false
	}
	if _, err := strconv.ParseFloat(value, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return false // such as NaN, or the commit 1234e567, which Go finds too large for a number
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

// inFlow is written between brackets, where fewer texts are plain.
type inFlow struct {
	Values []string `yaml:"values,flow"`
}

// integer tells whether a plain text is a number whose digits every reader keeps.
func integer(text string) bool {
	if text == "" || len(text) > maxDigits || text[0] == '0' && text != "0" {
		return false
	}
	return strings.Trim(text, "0123456789") == ""
}

// reading of a scalar, as Kubernetes and Flux read it.
type reading struct {
	text  string // as it stands in the file
	value any    // a string, a number, a bool or nil
}

// read reads a scalar by itself. properties are its anchor and tag.
func read(properties, text []byte) (reading, error) {
	r := reading{text: string(text)}
	err := sigsyaml.Unmarshal([]byte(string(properties)+r.text), &r.value)
	return r, err
}

// is tells whether it is the value already.
func (r reading) is(value string) bool {
	if s, ok := r.value.(string); ok {
		return s == value
	}
	return r.text == value && integer(value)
}

// String is for people; what is no string says so.
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
