package messagetemplate_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/internal/messagetemplate"
)

// marked is an escape that shows what went through it.
func marked(v any) string { return fmt.Sprintf("[%v]", v) }

func TestExecute(t *testing.T) {
	values := map[string]string{
		messagetemplate.Revision: "main@sha1:0123456789abcdef", messagetemplate.Pipeline: "web", messagetemplate.URL: "https://example.org/p", messagetemplate.Kind: "promotion.failed.v1",
	}
	for text, want := range map[string]string{
		"*{{.Revision}}* of {{ .Pipeline }}":                                                     "*[main@sha1:0123456789abcdef]* of [web]",
		"{{trunc 9 .Revision}} {{.Revision | trunc 4}}":                                          "[main@sha1] [main]",
		"{{trunc 100 .Pipeline}}":                                                                "[web]",
		`{{if eq .Kind "promotion.failed.v1"}}<!here> {{end}}{{.Kind}}`:                          "<!here> [promotion.failed.v1]",
		`{{with .Reason}}{{.}}{{else}}none of {{$.Pipeline}}{{end}}`:                             "none of [web]",
		`{{with .Pipeline}}{{.}} {{$.Kind}}{{end}}`:                                              "[web] [promotion.failed.v1]",
		`{{$x := .Pipeline}}<{{.URL}}|{{$x}}>`:                                                   "<[https://example.org/p]|[web]>",
		`{{or .Reason "<b>"}}`:                                                                   "[<b>]",
		`{{/* a comment */}}{{if and .URL (not .ApproveURL)}}a{{else if .URL}}b{{else}}c{{end}}`: "a",
	} {
		g := NewWithT(t)
		parsed, err := messagetemplate.Parse(text)
		g.Expect(err).NotTo(HaveOccurred(), text)
		for range 2 { // It does not depend on earlier calls.
			got, err := parsed.Execute(values, marked)
			g.Expect(err).NotTo(HaveOccurred(), text)
			g.Expect(got).To(Equal(want), text)
		}
	}
}

// TestFaults: each fault is named, also in a branch that no sample takes. The syntax with which a template could
// use unlimited time or memory is refused.
func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "is empty",
		" \n":                                  "is empty",
		"{{.Revision":                          "is no valid template: template: template:1: unclosed action",
		"{{.Revison}}":                         "there is no field Revison",
		"{{.Pipeline.Name}}":                   "the fields are texts and have no fields",
		"{{$.Nope}}":                           "there is no field Nope",
		"{{nope .Revision}}":                   `function "nope" not defined`,
		`{{if eq .Kind "no"}}{{.Nope}}{{end}}`: "there is no field Nope",
		`{{if eq .Kind "no"}}{{else}}{{if .Nope}}{{end}}{{end}}`: "there is no field Nope",
		`{{with .Reason}}{{.Revision}}{{end}}`:                   "write $.Revision",
		`{{printf "%1000000d" 1}}`:                               "function printf is not allowed",
		`{{.Revision | html}}`:                                   "function html is not allowed",
		`{{range 1000000000}}x{{end}}`:                           "only text, fields, if and with are allowed",
		`{{range .Revision}}x{{end}}`:                            "only text, fields, if and with are allowed",
		`{{define "a"}}{{template "a"}}{{template "a"}}{{end}}x`: "must not define other templates",
		`{{block "a" .}}x{{end}}`:                                "must not define other templates",
		`{{template "template"}}`:                                "only text, fields, if and with are allowed",
		`{{_escape .Revision}}`:                                  "function _escape is not allowed",
		`{{trunc .Revision 7}}`:                                  "the first argument of trunc must be a number",
		`{{trunc -1 .Revision}}`:                                 "between 1 and",
		`{{trunc 1.5 .Revision}}`:                                "between 1 and",
		`{{eq .Revision 1}}`:                                     "numbers are allowed only",
		`{{if eq .Kind "no"}}{{eq .Revision true}}{{end}}`:       "is not allowed",
		`{{(.Revision).Foo}}`:                                    "is not allowed",
		`{{eq .Revision}}`:                                       "fails on a sample event",
		strings.Repeat("a", messagetemplate.MaxBytes+1):          "is longer than 4096 bytes",
	} {
		_, err := messagetemplate.Parse(text)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)), text)
		NewWithT(t).Expect(strings.Count(err.Error(), "\n")).To(BeZero(), text)
	}
}

// FuzzParse: no template makes Parse panic, take long, or return a template whose output on any values is
// large.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"{{.Revision}}", "{{with .Reason}}{{.}}{{end}}", `{{$x := .Kind}}{{$x = .Revision}}{{$x}}`, "{{range .}}{{end}}", `{{if or .A (and .B "x" | not)}}{{end}}`, strings.Repeat("{{.Text}}", 400)} {
		f.Add(seed)
	}
	long := map[string]string{}
	for _, field := range messagetemplate.Fields() {
		long[field.Name] = strings.Repeat("x", 1024)
	}
	f.Fuzz(func(t *testing.T, text string) {
		start := time.Now()
		parsed, err := messagetemplate.Parse(text)
		if err != nil {
			return
		}
		out, _ := parsed.Execute(long, func(v any) string { return fmt.Sprint(v) })
		// The largest value is the event itself, which {{.}} prints.
		if limit := len(text) * 1100 * len(messagetemplate.Fields()); len(out) > limit {
			t.Errorf("%d bytes of output from %q", len(out), text)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s for %q", took, text)
		}
	})
}

// TestDocs: docs/eventing.md has a row for each field, with its description.
func TestDocs(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile("../../docs/eventing.md")
	g.Expect(err).NotTo(HaveOccurred())
	for _, f := range messagetemplate.Fields() {
		g.Expect(string(page)).To(ContainSubstring("| `"+f.Name+"` | "+f.Description+" |"), f.Name)
	}
}
