package schema

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// quantity is the syntax of a Quantity. ParseQuantity also accepts exponents, and computes
// any power of ten: "1e-999999999" would take unlimited CPU time.
var quantity = regexp.MustCompile(`^-?[0-9]{1,15}(\.[0-9]{1,3})?([kMGT]|[KMGT]i)?$`)

// parse a JSON value as a data type. The text is the error; empty for a valid value.
func parse(t DataType, raw []byte) (value any, text string) {
	wrong := "should be of type " + string(t)
	if string(bytes.TrimSpace(raw)) == "null" || len(bytes.TrimSpace(raw)) == 0 {
		return nil, wrong
	}
	switch t {
	case Int:
		n, ok := integer(raw)
		if !ok {
			return nil, wrong
		}
		return n, ""
	case Bool:
		var b bool
		if json.Unmarshal(raw, &b) != nil {
			return nil, wrong
		}
		return b, ""
	case Quantity:
		if n, ok := integer(raw); ok {
			return n, ""
		}
		s, ok := str(raw)
		if !ok || !quantity.MatchString(s) {
			return nil, wrong
		}
		q, err := resource.ParseQuantity(s)
		if err != nil {
			return nil, wrong
		}
		return q.Value(), ""
	case Duration:
		s, ok := str(raw)
		if !ok {
			return nil, wrong
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return nil, wrong
		}
		return d, ""
	case List:
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return nil, wrong
		}
		list := make([]string, len(items))
		for i, item := range items {
			s, ok := str(item)
			if !ok {
				return nil, "entries should be of type string"
			}
			list[i] = s
		}
		return list, ""
	case String, URL, Enum, SecretRef:
		s, ok := str(raw)
		if !ok {
			return nil, wrong
		}
		return s, ""
	}
	return nil, wrong
}

// integer reads a JSON number that has no fraction, such as 10 and 1e3.
func integer(raw []byte) (int64, bool) {
	var number json.Number
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] == '"' || json.Unmarshal(raw, &number) != nil {
		return 0, false
	}
	if n, err := strconv.ParseInt(number.String(), 10, 64); err == nil {
		return n, true
	}
	f, err := number.Float64()
	// From 2^53 on, a float64 no longer holds every integer.
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// str reads one JSON string.
func str(raw []byte) (string, bool) {
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil {
		return "", false
	}
	return *s, true
}
