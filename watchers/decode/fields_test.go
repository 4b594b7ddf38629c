package decode

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// values has every kind of JSON value, and what decoders treat differently: numbers that are no
// int64, names that are written with escapes, and names that occur twice.
const values = `{
	"apiVersion": "v1", "kind": "K", "metadata": {"name": "web", "uid": "u", "managedFields": [{"f:a": {}}], "labels": {"a": "b"}},
	"spec": {"suspend": true, "values": {"deep": [[{"a": 1}]]}, "text": "\u00e4\n\"\\"},
	"sp\u0065c2": [1, -1, 0, -0, 1.5, 1e3, 9223372036854775807, 9223372036854775808, true, false, null, "", [], {}],
	"status": {"first": 1}, "status": {"second": {"a": [{"b": null}]}}, "": "no name"
}`

// TestFieldsAreDecoded: as apimachinery decodes them.
func TestFieldsAreDecoded(t *testing.T) {
	g := NewWithT(t)
	var want map[string]any
	g.Expect(utiljson.Unmarshal([]byte(values), &want)).To(Succeed())
	g.Expect(decodeFields([]byte(values), nil)).To(Equal(want), "the whole object")
	g.Expect(decodeFields([]byte(values), FieldsOf([]string{"spec.suspend", "spec2", "status.second.a", "status.second", "none.of.these", "kind.of"}))).To(Equal(map[string]any{
		"apiVersion": "v1", "kind": "K", "metadata": map[string]any{"name": "web", "uid": "u"},
		"spec":   map[string]any{"suspend": true},
		"spec2":  want["spec2"],
		"status": want["status"],
	}))
	g.Expect(decodeFields([]byte(" null "), nil)).To(BeNil())
}

// TestInvalidObjectsAreRefused: also if the error is in a field that is skipped.
func TestInvalidObjectsAreRefused(t *testing.T) {
	for _, raw := range []string{
		``, `7`, `"a"`, `[]`, `{`, `{"a"}`, `{"a":1,}`, `{"a":1}}`, `{"a":1} {}`, `{a:1}`, `{"a":01}`, `{"a":[1,]}`, `{"a":[1}`, `{"a":"` + "\n" + `"}`, `{"a":1e999}`,
		`{"kind":"K","spec":{"x":[}}`, `{"kind":"K","x":tru}`, `{"kind":"K","metadata":{"labels":{"a" "b"}}}`,
	} {
		for _, keep := range []Fields{nil, FieldsOf([]string{"a"})} {
			if o, err := decodeFields([]byte(raw), keep); err == nil {
				t.Errorf("%s is decoded as %v", raw, o)
			}
		}
	}
}

// FuzzFields: what is decoded of all fields is what apimachinery decodes.
func FuzzFields(f *testing.F) {
	f.Add(values)
	f.Add(`{"a":"` + "\xff\\ud800" + `","a":{"a":null}}`)
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := decodeFields([]byte(raw), nil)
		var want map[string]any
		wantErr := utiljson.Unmarshal([]byte(raw), &want)
		if err == nil && (wantErr != nil || !reflect.DeepEqual(got, want)) {
			t.Fatalf("%v, apimachinery: %v, %v", got, want, wantErr)
		}
		if err != nil && wantErr == nil {
			t.Fatalf("%v; apimachinery decodes %v", err, want)
		}
		some, err := decodeFields([]byte(raw), FieldsOf([]string{"a.a"}))
		if err != nil && wantErr == nil {
			t.Fatalf("%v of some fields; apimachinery decodes %v", err, want)
		}
		if a, ok := want["a"].(map[string]any); ok && err == nil {
			if kept, _ := some["a"].(map[string]any); !reflect.DeepEqual(kept["a"], a["a"]) {
				t.Fatalf("a.a: %v, apimachinery: %v", kept["a"], a["a"])
			}
		}
	})
}

// BenchmarkFields of an application of 8 KiB, most of which are values.
func BenchmarkFields(b *testing.B) {
	raw := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"K","metadata":{"name":"web","namespace":"shop"},"spec":{"values":{%s"z":1}},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
		strings.Repeat(`"name":"a value of forty characters, or of more",`, 160))
	for name, keep := range map[string]Fields{"all": nil, "some": FieldsOf([]string{"status.conditions"})} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeFields(raw, keep); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("apimachinery", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		for b.Loop() {
			var o map[string]any
			if err := utiljson.Unmarshal(raw, &o); err != nil {
				b.Fatal(err)
			}
		}
	})
}
