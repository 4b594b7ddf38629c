package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	kubeyaml "k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// prod is the marker of the tests: # {"$promotion": "apps:podinfo:prod"}
var prod = Marker{Namespace: "apps", Pipeline: "podinfo", Environment: "prod"}

// newVersion is the value of most tests.
const newVersion = "6.1.0"

// corpus is what testdata/corpus holds: NAME.in.yaml becomes NAME.want.yaml when
// the value is put in, where on some lines one text becomes another.
var corpus = []struct {
	name, value string
	lines       []int
	was, is     string
}{
	{"plain", newVersion, []int{11}, "6.0.0", "6.1.0"},
	{"double-quoted", newVersion, []int{11}, `"6.0.0"`, `"6.1.0"`},
	{"single-quoted", newVersion, []int{11}, "'6.0.0'", "'6.1.0'"},
	{"no-final-newline", newVersion, []int{11}, "6.0.0", "6.1.0"},
	{"crlf", newVersion, []int{11}, "6.0.0", "6.1.0"},
	{"bom", newVersion, []int{11}, "6.0.0", "6.1.0"},
	{"bom-first-line-crlf", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"bom-head-comment", newVersion, []int{2}, "6.0.0", "6.1.0"},
	{"old-mac-line-ends", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"mixed-line-ends", newVersion, []int{3}, "6.0.0", "6.1.0"},
	{"head-comment", newVersion, []int{5}, "6.0.0", "6.1.0"},
	{"head-comment-first-line", newVersion, []int{2}, "6.0.0", "6.1.0"},
	{"head-comment-above-anchor", newVersion, []int{3}, "6.0.0", "6.1.0"},
	{"head-and-line-comment", newVersion, []int{2}, "6.0.0", "6.1.0"},
	{"item-line-comment", newVersion, []int{3}, "6.0.0", "6.1.0"},
	{"item-head-comment", newVersion, []int{4}, "6.0.0", "6.1.0"},
	{"item-in-nested-lists", newVersion, []int{3}, "6.0.0", "6.1.0"},
	{"item-of-mappings", newVersion, []int{3}, "6.0.0", "6.1.0"},
	{"marker-behind-key", newVersion, []int{2}, "6.0.0", "6.1.0"},
	{"marker-behind-anchor", newVersion, []int{2}, "6.0.0", "6.1.0"},
	{"value-on-next-line", newVersion, []int{4}, "6.0.0", "6.1.0"},
	{"documents-one-marked", newVersion, []int{6}, "6.0.0", "6.1.0"},
	{"documents-all-marked", newVersion, []int{12, 25}, "6.0.0", "6.1.0"},
	{"several-in-a-document", newVersion, []int{9, 15, 19}, "6.0.0", "6.1.0"},
	{"documents-empty", newVersion, []int{5}, "6.0.0", "6.1.0"},
	{"document-is-the-scalar", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"directives", newVersion, []int{5}, "6.0.0", "6.1.0"},
	{"anchor-and-alias", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"merge-keys", newVersion, []int{2}, "6.0.0", "6.1.0"},
	{"tag", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"tag-and-anchor", newVersion, []int{1}, `"6.0.0"`, `"6.1.0"`},
	{"tag-verbatim", newVersion, []int{1}, "'6.0.0'", "'6.1.0'"},
	{"tag-non-specific", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"tabs", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"blanks", newVersion, []int{1}, `"6.0.0"`, `"6.1.0"`},
	{"wide-characters", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"wide-key", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"flow-mapping", newVersion, []int{3}, "6.0.0", "6.1.0"},
	{"flow-mapping-last", newVersion, []int{2}, "6.0.0", "6.1.0"},
	{"flow-sequence", newVersion, []int{3}, "6.0.0", "6.1.0"},
	{"flow-same-line", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"flow-value-gets-quotes", "6,1", []int{2}, "6.0.0", `"6,1"`},
	{"json", newVersion, []int{5}, "6.0.0", "6.1.0"},
	{"minified-json", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"becomes-quoted-float", "1.10", []int{11}, "1.9", `"1.10"`},
	{"becomes-quoted-float-of-string", "1.10", []int{11}, "1.9.0", `"1.10"`},
	{"becomes-quoted-boolean", "true", []int{1}, "6.0.0", `"true"`},
	{"becomes-quoted-yes", "yes", []int{1}, "6.0.0", `"yes"`},
	{"becomes-quoted-y", "y", []int{1}, "6.0.0", `"y"`},
	{"becomes-quoted-hexadecimal", "0x1", []int{1}, "6.0.0", `"0x1"`},
	{"becomes-quoted-octal", "0777", []int{1}, "6.0.0", `"0777"`},
	{"becomes-quoted-exponent", "1e3", []int{1}, "6.0.0", `"1e3"`},
	{"becomes-quoted-commit", "1234e567", []int{1}, "a234f567", `"1234e567"`},
	{"becomes-quoted-base-60", "12:30:45", []int{1}, "6.0.0", `"12:30:45"`},
	{"becomes-quoted-null", "~", []int{1}, "6.0.0", `"~"`},
	{"becomes-quoted-date", "2001-01-01", []int{1}, "6.0.0", `"2001-01-01"`},
	{"becomes-quoted-underscores", "1_000", []int{1}, "6.0.0", `"1_000"`},
	{"becomes-quoted-infinity", ".inf", []int{1}, "6.0.0", `".inf"`},
	{"becomes-quoted-merge", "<<", []int{1}, "6.0.0", `"<<"`},
	{"becomes-quoted-colon", "a: b", []int{1}, "6.0.0", `"a: b"`},
	{"becomes-quoted-comment", "a #b", []int{1}, "6.0.0", `"a #b"`},
	{"becomes-quoted-alias", "*a", []int{1}, "6.0.0", `"*a"`},
	{"becomes-quoted-at", "@a", []int{1}, "6.0.0", `"@a"`},
	{"becomes-quoted-dashes", "---", []int{1}, "6.0.0", `"---"`},
	{"becomes-quoted-blanks", " 6 ", []int{1}, "6.0.0", `" 6 "`},
	{"becomes-quoted-quotes", `"a" \ b`, []int{1}, "6.0.0", `"\"a\" \\ b"`},
	{"stays-plain-build", "6.1.0+0cc9a8446c95", []int{1}, "6.0.0", "6.1.0+0cc9a8446c95"},
	{"stays-plain-branch", "main@sha1:0cc9a84", []int{1}, "6.0.0", "main@sha1:0cc9a84"},
	{"stays-plain-wide", "версия-6", []int{1}, "6.0.0", "версия-6"},
	{"stays-plain-slash", "release/6#1", []int{1}, "6.0.0", "release/6#1"},
	{"single-quoted-with-quotes", `it's '7'"\`, []int{1}, "'it''s 6'", `'it''s ''7''"\'`},
	{"double-quoted-with-quotes", `6"\7'`, []int{1}, `"6\u002e0\"\\"`, `"6\"\\7'"`},
	{"number-stays-number", "8", []int{2}, "7", "8"},
	{"number-becomes-string", "8.0.0", []int{1}, "7", "8.0.0"},
	{"string-becomes-number-in-quotes", "8", []int{1}, "7.0.0", `"8"`},
	{"long-number-is-quoted", "12345678901234567890", []int{1}, "7", `"12345678901234567890"`},
	{"leading-zero-is-quoted", "08", []int{1}, "7", `"08"`},
	{"float-is-repaired", "1.10", []int{1}, "1.10", `"1.10"`},
	{"null-is-filled", newVersion, []int{1}, "~", "6.1.0"},
	{"empty-is-filled", newVersion, []int{1}, "", " 6.1.0"},
	{"empty-below-marker-is-filled", newVersion, []int{3}, "", " 6.1.0"},
	{"empty-item-is-filled", newVersion, []int{2}, "", " 6.1.0"},
	{"empty-at-the-end-is-filled", "7", []int{2}, "", ` "7"`},
	{"empty-string-is-filled", newVersion, []int{1}, `""`, `"6.1.0"`},
	{"text-in-a-block-scalar", newVersion, []int{13}, "6.0.0", "6.1.0"},
	{"block-scalars-around", newVersion, []int{12}, "6.0.0", "6.1.0"},
	{"text-in-quotes", newVersion, []int{6}, "6.0.0", "6.1.0"},
	{"text-in-other-comments", newVersion, []int{4}, "6.0.0", "6.1.0"},
	{"hash-in-the-value", newVersion, []int{1}, `"6#0 # x"`, `"6.1.0"`},
	{"hash-in-a-plain-value", newVersion, []int{1}, "6.0#0", "6.1.0"},
	{"multi-line-plain-before", newVersion, []int{6}, "6.0.0", "6.1.0"},
	{"multi-line-quoted-before", newVersion, []int{7}, "6.0.0", "6.1.0"},
	{"complex-keys", newVersion, []int{4}, "6.0.0", "6.1.0"},
	{"quoted-keys", newVersion, []int{2}, "6.0.0", "6.1.0"},
	{"duplicate-keys", newVersion, []int{2}, "6.0.0", "6.1.0"},
	{"odd-indentation", newVersion, []int{4}, "6.0.0", "6.1.0"},
	{"spelt-without-blanks", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"spelt-with-more", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"spelt-with-escapes", newVersion, []int{1}, "6.0.0", "6.1.0"},
	{"other-markers", newVersion, []int{9}, "6.0.0", "6.1.0"},
	{"fifty-markers-of-others", newVersion, []int{51}, "6.0.0", "6.1.0"},
	{"deep", newVersion, []int{61}, "6.0.0", "6.1.0"},
	{"long-line", newVersion, []int{3}, "6.0.0", "6.1.0"},
	{"line-separators", newVersion, []int{2}, "6.0.0", "6.1.0"},
	{"comments-everywhere", newVersion, []int{10}, "6.0.0", "6.1.0"},
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "corpus", name+".yaml"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return content
}

func TestCorpus(t *testing.T) {
	for _, tc := range corpus {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			in, want := file(t, tc.name+".in"), file(t, tc.name+".want")
			before := bytes.Clone(in)
			g.Expect(Mentions(in, prod)).To(BeTrue())

			edited, changes, err := Edit(in, prod, tc.value)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(edited)).To(Equal(string(want)))
			g.Expect(in).To(Equal(before), "the content is not written to")

			var lines []int
			for _, c := range changes {
				lines = append(lines, c.Line)
				g.Expect(c.To).To(Equal(tc.value))
				g.Expect(c.From).NotTo(Equal(c.To))
			}
			g.Expect(lines).To(Equal(tc.lines))

			again, changes, err := Edit(edited, prod, tc.value)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(again)).To(Equal(string(edited)), "an edit with the value that is there changes nothing")
			g.Expect(changes).To(HaveLen(len(tc.lines)))
			for _, c := range changes {
				g.Expect(c.From).To(Equal(tc.value))
			}
		})
	}
}

// The wanted files themselves: on the lines of the table the one text becomes the
// other, and no other byte of the file differs.
func TestCorpusDiffersInScalarsOnly(t *testing.T) {
	for _, tc := range corpus {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			in := strings.SplitAfter(string(file(t, tc.name+".in")), "\n")
			want := strings.SplitAfter(string(file(t, tc.name+".want")), "\n")
			g.Expect(want).To(HaveLen(len(in)))
			for _, line := range tc.lines {
				g.Expect(replacements(in[line-1], tc.was, tc.is)).To(ContainElement(want[line-1]))
				in[line-1], want[line-1] = "", ""
			}
			g.Expect(want).To(Equal(in))
		})
	}
}

// replacements returns the line with each one place of a text replaced by another.
func replacements(line, was, is string) []string {
	var all []string
	for at := 0; at+len(was) <= len(line); at++ {
		if strings.HasPrefix(line[at:], was) {
			all = append(all, line[:at]+is+line[at+len(was):])
		}
	}
	return all
}

// What Kubernetes and Flux read of the wanted files: the value where it was put,
// and otherwise what they read before.
func TestCorpusReadsAsTheValue(t *testing.T) {
	elsewhere := map[string]string{
		"directives":     "not split by Kubernetes",
		"complex-keys":   "no JSON",
		"duplicate-keys": "the last one counts, which is not the marked one",
	}
	for _, tc := range corpus {
		t.Run(tc.name, func(t *testing.T) {
			if elsewhere[tc.name] != "" {
				t.Skip(elsewhere[tc.name])
			}
			g := NewWithT(t)
			in, err := objects(file(t, tc.name+".in"))
			g.Expect(err).NotTo(HaveOccurred())
			want, err := objects(file(t, tc.name+".want"))
			g.Expect(err).NotTo(HaveOccurred())
			differing := leaves(in, want)
			g.Expect(differing).NotTo(BeEmpty())
			for _, leaf := range differing {
				if number, ok := leaf.(float64); ok {
					g.Expect(tc.name).To(Equal("number-stays-number"))
					g.Expect(number).To(BeEquivalentTo(8))
					continue
				}
				g.Expect(leaf).To(Equal(tc.value))
			}
		})
	}
}

// objects reads the documents of a file as Kubernetes and Flux do: split by their
// separators, then by sigs.k8s.io/yaml.
func objects(content []byte) ([]any, error) {
	var all []any
	documents := kubeyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
	buffer := make([]byte, MaxBytes)
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var object any
		if err := sigsyaml.Unmarshal(buffer[:n], &object); err != nil {
			return nil, err
		}
		all = append(all, object)
	}
}

// leaves returns what is at the leaves of b that are not the same in a.
func leaves(a, b any) []any {
	var all []any
	switch b := b.(type) {
	case []any:
		a, ok := a.([]any)
		if !ok || len(a) != len(b) {
			return []any{b}
		}
		for i := range b {
			all = append(all, leaves(a[i], b[i])...)
		}
	case map[string]any:
		a, ok := a.(map[string]any)
		if !ok || len(a) != len(b) {
			return []any{b}
		}
		for k := range b {
			all = append(all, leaves(a[k], b[k])...)
		}
	case map[any]any:
		a, ok := a.(map[any]any)
		if !ok || len(a) != len(b) {
			return []any{b}
		}
		for k := range b {
			all = append(all, leaves(a[k], b[k])...)
		}
	default:
		if !reflect.DeepEqual(a, b) && fmt.Sprint(a, b) != "NaN NaN" {
			all = append(all, b)
		}
	}
	return all
}

// The table and the directory tell of the same files.
func TestCorpusIsWhole(t *testing.T) {
	g := NewWithT(t)
	var listed, found []string
	for _, tc := range corpus {
		listed = append(listed, tc.name+".in.yaml", tc.name+".want.yaml")
	}
	entries, err := os.ReadDir(filepath.Join("testdata", "corpus"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, e := range entries {
		found = append(found, e.Name())
	}
	g.Expect(found).To(ConsistOf(listed))
	g.Expect(len(corpus)).To(BeNumerically(">=", 30))
}
