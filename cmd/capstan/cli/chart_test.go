package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
)

//go:generate go test . -run TestSettingsOfTheChartAreCurrent -update

const chartSchema = "../../../config/chart/values.schema.json"

// setByTheChart are the flags that the chart sets from other values, or that have no purpose in a
// pod. The value settings has all others.
var setByTheChart = map[string]bool{
	"kubeconfig": true, "leader-elect": true, "warm-standby": true, "metrics-bind-address": true, "health-addr": true, "promotion-hook-bind-address": true,
	"api-bind-address": true, "webhook-bind-address": true, "webhook-cert-secret": true, "webhook-cert-file": true, "webhook-key-file": true,
	"dashboard-bind-address": true, "dashboard-tls-cert-file": true, "dashboard-tls-key-file": true, "dashboard-session-key-file": true,
	"dashboard-url": true, "dashboard-oidc-issuer-url": true, "dashboard-oidc-client-id": true, "dashboard-oidc-client-secret-file": true,
	"dashboard-oidc-scopes": true, "dashboard-oidc-ca-file": true, "clone-dir": true, "nats-url": true, "git-proxy": true, "git-proxy-credentials-file": true,
	"cluster-proxy": true, "cluster-proxy-credentials-file": true, "no-proxy": true, "dry-run": true, "help": true, "version": true,
}

// The chart's value settings has each flag, with its type, so that Helm refuses a flag that does
// not exist: the definitions in values.schema.json are generated from the commands.
func TestSettingsOfTheChartAreCurrent(t *testing.T) {
	g := NewWithT(t)
	written, err := os.ReadFile(chartSchema)
	g.Expect(err).NotTo(HaveOccurred())
	want := string(written)
	for _, definition := range []struct {
		name  string
		flags *pflag.FlagSet
	}{{"settings", newHub().Flags()}, {"annotatorSettings", newAnnotator("capstan annotator").Flags()}} {
		begin, end := "\n    \""+definition.name+"\": {\n", "\n    }"
		before, rest, found := strings.Cut(want, begin)
		g.Expect(found).To(BeTrue(), definition.name)
		_, after, found := strings.Cut(rest, end)
		g.Expect(found).To(BeTrue(), definition.name)
		want = before + begin + schemaOf(t, definition.flags) + end + after
	}
	if *update {
		g.Expect(os.WriteFile(chartSchema, []byte(want), 0o644)).To(Succeed())
		return
	}
	g.Expect(string(written)).To(Equal(want), "run `make generate`")
}

// schemaOf returns the fields of the JSON schema of flags, one flag in each line.
func schemaOf(t *testing.T, flags *pflag.FlagSet) string {
	t.Helper()
	g := NewWithT(t)
	types := map[string]any{
		"bool": "boolean", "int": "integer", "string": "string", "duration": nil, "stringSlice": "array", "stringArray": "array",
	}
	var lines []string
	flags.VisitAll(func(f *pflag.Flag) {
		if setByTheChart[f.Name] || f.Hidden {
			return
		}
		kind, known := types[f.Value.Type()]
		g.Expect(known).To(BeTrue(), "--%s has type %s: add its schema", f.Name, f.Value.Type())
		schema := struct {
			Type        any            `json:"type,omitempty"`
			Reference   string         `json:"$ref,omitempty"`
			Items       map[string]any `json:"items,omitempty"`
			Description string         `json:"description"`
		}{Type: kind, Description: f.Usage}
		switch kind {
		case nil:
			schema.Reference = "#/definitions/duration"
		case "array":
			schema.Items = map[string]any{"type": "string", "minLength": 1}
		}
		var line bytes.Buffer
		encoder := json.NewEncoder(&line)
		encoder.SetEscapeHTML(false)
		g.Expect(encoder.Encode(schema)).To(Succeed())
		lines = append(lines, "        \""+f.Name+"\": "+strings.TrimSpace(line.String()))
	})
	return "      \"type\": \"object\",\n      \"additionalProperties\": false,\n      \"properties\": {\n" + strings.Join(lines, ",\n") + "\n      }"
}
