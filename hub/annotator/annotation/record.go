package annotation

import (
	"bytes"
	"encoding/json"
	"maps"
)

// record is the content of Applied: the values that were written last, by key.
type record struct {
	Values map[string]string `json:"values,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// lost says that a record exists and cannot be parsed.
	lost bool
}

func parseRecord(s string) record {
	r := record{}
	if s != "" {
		d := json.NewDecoder(bytes.NewBufferString(s))
		d.DisallowUnknownFields()
		if d.Decode(&r) != nil || d.More() {
			r = record{lost: true}
		}
	}
	if r.Values == nil {
		r.Values = map[string]string{}
	}
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	return r
}

// String returns equal texts for equal records: JSON sorts the keys.
func (r record) String() string {
	if len(r.Values) == 0 && len(r.Labels) == 0 {
		return ""
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return "" // Maps of strings can always be encoded.
	}
	return string(raw)
}

// merge computes the new values from the existing and the wanted ones, by the rule of the
// package comment. It changes recorded. It returns the new values, and the keys with a value of
// a user that differs from the wanted one. overwritten reports whether a key is written
// although its value is not ours; known says whether the key was ever recorded.
func merge(there, wanted, recorded map[string]string, lost bool, overwritten func(key string, known bool) bool) (map[string]string, []string) {
	out := maps.Clone(there)
	if out == nil {
		out = map[string]string{}
	}
	var kept []string
	for key, want := range wanted {
		is, present := there[key]
		was, known := recorded[key]
		switch {
		case !present, known && is == was, lost && is == want, overwritten(key, known):
			out[key], recorded[key] = want, want
		case is != want:
			kept = append(kept, key)
		}
	}
	for key, was := range recorded {
		if _, still := wanted[key]; still {
			continue
		}
		if is, present := there[key]; present && is == was {
			delete(out, key)
		}
		delete(recorded, key)
	}
	return out, kept
}
