package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Fields are the parts of an object to decode: name → the parts of that field. Nil is the
// whole of it.
type Fields map[string]Fields

// FieldsOf returns the fields of paths such as "status.conditions", and what identifies an
// object. Without paths it returns nil: the whole object.
func FieldsOf(paths []string) Fields {
	if len(paths) == 0 {
		return nil
	}
	all := Fields{"apiVersion": nil, "kind": nil, "metadata": {"name": nil, "namespace": nil, "uid": nil, "resourceVersion": nil}}
	for _, path := range paths {
		all.add(strings.Split(path, "."))
	}
	return all
}

func (f Fields) add(path []string) {
	name, rest := path[0], path[1:]
	parts, known := f[name]
	switch {
	case len(rest) == 0:
		f[name] = nil
		return
	case !known:
		parts = Fields{}
		f[name] = parts
	case parts == nil:
		return // The whole field is read.
	}
	parts.add(rest)
}

// decodeFields decodes those fields of an object, as apimachinery's decoder of unstructured
// objects would decode them, and skips the others: most of an application's bytes are its
// values and its managed fields, which nothing reads. It checks the syntax of all bytes. It
// returns nil for null.
func decodeFields(raw []byte, keep Fields) (map[string]any, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var object map[string]any
	switch byte(d.PeekKind()) {
	case '{':
		var err error
		if object, err = readMap(d, keep); err != nil {
			return nil, err
		}
	case 'n':
		if err := d.SkipValue(); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("it is not an object")
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more follows the object")
	}
	return object, nil
}

// readMap reads an object of JSON.
func readMap(d *jsontext.Decoder, keep Fields) (map[string]any, error) {
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	object := map[string]any{}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		var parts Fields
		key := name.String()
		if keep != nil {
			var wanted bool
			if parts, wanted = keep[key]; !wanted {
				if err := d.SkipValue(); err != nil {
					return nil, err
				}
				continue
			}
		}
		if object[key], err = readValue(d, parts); err != nil {
			return nil, err
		}
	}
	_, err := d.ReadToken()
	return object, err
}

// readValue reads any value; of an object, the fields to keep.
func readValue(d *jsontext.Decoder, keep Fields) (any, error) {
	switch byte(d.PeekKind()) {
	case '{':
		return readMap(d, keep)
	case '[':
		return readArray(d)
	}
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch byte(token.Kind()) {
	case 'n':
		return nil, nil
	case 't', 'f':
		return token.Bool(), nil
	case '"':
		return token.String(), nil
	}
	return number(token.String())
}

func readArray(d *jsontext.Decoder) (any, error) {
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	array := []any{}
	for {
		switch byte(d.PeekKind()) {
		case ']', 0: // 0: ReadToken returns the error.
			_, err := d.ReadToken()
			return array, err
		}
		value, err := readValue(d, nil)
		if err != nil {
			return nil, err
		}
		array = append(array, value)
	}
}

// number returns an int64 if it is one, and else a float64, as apimachinery does.
func number(text string) (any, error) {
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
		return whole, nil
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("a number is out of range: %w", err)
	}
	return value, nil
}
