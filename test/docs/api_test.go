package docs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// docs/api.md is made of the CRDs, which are made of the types in api.
func TestAPIIsCurrent(t *testing.T) {
	g := NewWithT(t)
	paths, err := filepath.Glob(filepath.Join(root, "config/crd/bases/*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(paths).NotTo(BeEmpty())
	// Pipelines first: they are what people write.
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(-cmp.Compare(strings.Count(a, "pipelines"), strings.Count(b, "pipelines")), cmp.Compare(a, b))
	})
	var b strings.Builder
	b.WriteString("# API\n\nGenerated from the types in api by `make generate`. Fields in **bold** must be given. What is a list ends in `[]`, what is a\nmap by free keys in `{}`. The hub writes `status`.\n")
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		var crd apiextensionsv1.CustomResourceDefinition
		g.Expect(yaml.Unmarshal(raw, &crd)).To(Succeed())
		for _, version := range crd.Spec.Versions {
			top := version.Schema.OpenAPIV3Schema
			fmt.Fprintf(&b, "\n## %s\n\n`%s/%s`, %s", crd.Spec.Names.Kind, crd.Spec.Group, version.Name, strings.ToLower(string(crd.Spec.Scope)))
			if short := crd.Spec.Names.ShortNames; len(short) > 0 {
				fmt.Fprintf(&b, ", short `%s`", strings.Join(short, "`, `"))
			}
			fmt.Fprintf(&b, ". %s\n\n| field | type | what it is |\n|---|---|---|\n", line(top.Description))
			for _, part := range []string{"spec", "status"} {
				if schema, ok := top.Properties[part]; ok {
					rules(&b, part, &schema)
					fields(&b, part, &schema)
				}
			}
		}
	}
	current(t, "docs/api.md", b.String())
}

// fields of an object, and of what is in it.
func fields(b *strings.Builder, at string, of *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		field := of.Properties[name]
		path := at + "." + name
		shown := "`" + path + "`"
		if slices.Contains(of.Required, name) {
			shown = "**" + shown + "**"
		}
		inner, suffix := content(&field)
		fmt.Fprintf(b, "| %s | %s | %s |\n", shown, kind(&field), line(field.Description+bounds(&field)))
		if name == "conditions" {
			continue // Those of Kubernetes: type, status, reason, message.
		}
		rules(b, path+suffix, inner)
		fields(b, path+suffix, inner)
	}
}

// content is what is in a list or a map, and how its path is written.
func content(of *apiextensionsv1.JSONSchemaProps) (*apiextensionsv1.JSONSchemaProps, string) {
	switch {
	case of.Items != nil && of.Items.Schema != nil:
		return of.Items.Schema, "[]"
	case of.AdditionalProperties != nil && of.AdditionalProperties.Schema != nil:
		return of.AdditionalProperties.Schema, "{}"
	}
	return of, ""
}

func kind(of *apiextensionsv1.JSONSchemaProps) string {
	inner, suffix := content(of)
	return cmp.Or(inner.Format, inner.Type, "any") + suffix
}

// bounds of a value, as a sentence.
func bounds(of *apiextensionsv1.JSONSchemaProps) string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if len(of.Enum) > 0 {
		var values []string
		for _, v := range of.Enum {
			values = append(values, "`"+strings.Trim(string(v.Raw), `"`)+"`")
		}
		add("one of %s", strings.Join(values, ", "))
	}
	if of.Default != nil {
		raw, err := json.Marshal(of.Default)
		if err == nil {
			add("default `%s`", strings.Trim(string(raw), `"`))
		}
	}
	if of.Pattern != "" {
		add("pattern `%s`", of.Pattern)
	}
	if of.MinLength != nil {
		add("%d characters or more", *of.MinLength)
	}
	if of.MaxLength != nil {
		add("%d characters at most", *of.MaxLength)
	}
	if of.MinItems != nil {
		add("%d or more", *of.MinItems)
	}
	if of.MaxItems != nil {
		add("%d at most", *of.MaxItems)
	}
	if of.Minimum != nil {
		add("from %g", *of.Minimum)
	}
	if of.Maximum != nil {
		add("to %g", *of.Maximum)
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, "; ") + ")"
}

// rules that hold for an object as a whole.
func rules(b *strings.Builder, path string, of *apiextensionsv1.JSONSchemaProps) {
	for _, rule := range of.XValidations {
		fmt.Fprintf(b, "| `%s` | rule | %s |\n", path, line(cmp.Or(rule.Message, rule.Rule)))
	}
}

// line of a table.
func line(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
