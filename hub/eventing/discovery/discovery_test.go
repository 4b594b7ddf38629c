package discovery

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

var registry = schema.NewRegistry(schema.NATS(""), schema.BEB(), schema.SQS(), schema.HTTP(), schema.Flux(""), schema.Slack(), schema.MSTeams(), schema.CommitStatus())

type reply struct {
	Code        int
	Type, Allow string
	Body        string
}

func call(t *testing.T, method, path string) reply {
	t.Helper()
	g := NewWithT(t)
	server := httptest.NewServer(Handler(registry))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := server.Client().Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return reply{response.StatusCode, response.Header.Get("Content-Type"), response.Header.Get("Allow"), string(body)}
}

// TestBackends: the two answers of the design proposal.
func TestBackends(t *testing.T) {
	g := NewWithT(t)
	r := call(t, http.MethodGet, "/backend")
	g.Expect(r.Code).To(Equal(http.StatusOK))
	g.Expect(r.Type).To(Equal("application/json"))
	g.Expect(r.Body).To(MatchJSON(`["nats","beb","sqs","http","flux","slack","msteams","commitstatus"]`))
	for _, name := range append(registry.Types(), "NATS") {
		r := call(t, http.MethodGet, "/backend/"+name)
		g.Expect(r.Code).To(Equal(http.StatusOK))
		g.Expect(r.Type).To(Equal("application/json"))
		want, _ := registry.Describe(name)
		text, err := json.Marshal(want)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.Body).To(MatchJSON(text))
		var answer struct {
			Type   string
			Config []map[string]any
		}
		g.Expect(json.Unmarshal([]byte(r.Body), &answer)).To(Succeed())
		g.Expect(answer.Type).To(Equal(strings.ToLower(name)))
		for _, key := range answer.Config {
			g.Expect(key).To(And(HaveKey("name"), HaveKey("description"), HaveKey("dataType"), HaveKey("required")))
			if value, has := key["defaultValue"]; has {
				g.Expect(value).To(BeAssignableToTypeOf(""))
			}
		}
	}
	g.Expect(call(t, http.MethodHead, "/backend").Code).To(Equal(http.StatusOK))
}

// TestSchemas: the schemas of all kinds are served.
func TestSchemas(t *testing.T) {
	g := NewWithT(t)
	for _, entry := range event.Catalogue() {
		r := call(t, http.MethodGet, SchemasPath+string(entry.Kind))
		want, _ := event.Schema(entry.Kind)
		g.Expect(r.Code).To(Equal(http.StatusOK))
		g.Expect(r.Body).To(MatchJSON(want))
	}
	g.Expect(call(t, http.MethodGet, "/schemas/no.such.v1").Code).To(Equal(http.StatusNotFound))
}

// TestRefusals: errors are also JSON.
func TestRefusals(t *testing.T) {
	g := NewWithT(t)
	r := call(t, http.MethodGet, "/backend/kafka")
	g.Expect(r.Code).To(Equal(http.StatusNotFound))
	g.Expect(r.Type).To(Equal("application/json"))
	g.Expect(r.Body).To(MatchJSON(`{"error":"unknown backend type kafka","supported":["nats","beb","sqs","http","flux","slack","msteams","commitstatus"]}`))
	for _, path := range []string{"/", "/backend/", "/backend/nats/x", "/backends", "/schemas/", "/backend/" + strings.Repeat("x", 10_000)} {
		r := call(t, http.MethodGet, path)
		g.Expect(r.Code).To(Equal(http.StatusNotFound), path[:min(len(path), 80)])
		g.Expect(r.Type).To(Equal("application/json"))
		g.Expect(len(r.Body)).To(BeNumerically("<", 200))
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, path := range []string{"/backend", "/backend/nats", "/schemas/cluster.ready.v1"} {
			r := call(t, method, path)
			g.Expect(r.Code).To(Equal(http.StatusMethodNotAllowed))
			g.Expect(r.Allow).To(Equal("GET, HEAD"))
			g.Expect(r.Type).To(Equal("application/json"))
			g.Expect(r.Body).To(ContainSubstring(`"error"`))
		}
	}
}

// row of a table in docs/eventing.md.
var row = regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| ([A-Za-z]+) \\| (.*?) \\| (.*?) \\| (.*) \\|$")

// TestDocsEqualDiscovery: the tables of docs/eventing.md equal GET /backend/{type}, key by
// key.
func TestDocsEqualDiscovery(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../../docs/eventing.md")
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range registry.Types() {
		_, rest, found := strings.Cut(string(text), "### Keys of "+name+": ")
		g.Expect(found).To(BeTrue(), name)
		table, _, _ := strings.Cut(rest, "\n#")
		var answer schema.Description
		g.Expect(json.Unmarshal([]byte(call(t, http.MethodGet, "/backend/"+name).Body), &answer)).To(Succeed())
		rows := row.FindAllStringSubmatch(table, -1)
		g.Expect(rows).To(HaveLen(len(answer.Config)), name)
		for i, key := range answer.Config {
			value := ""
			if key.DefaultValue != nil {
				value = "`" + *key.DefaultValue + "`"
				if key.Required {
					value += " (written into the object)"
				}
			} else if key.Required {
				value = "**required**"
			}
			g.Expect(rows[i][1:4]).To(Equal([]string{key.Name, string(key.DataType), value}))
			g.Expect(rows[i][4]).To(HavePrefix(key.Description))
			g.Expect(strings.Contains(rows[i][4], "It cannot be changed.")).To(Equal(key.Immutable))
			for _, role := range key.Roles {
				g.Expect(rows[i][4]).To(ContainSubstring(role))
			}
			g.Expect(strings.ReplaceAll(rows[i][5], `\|`, "|")).To(Equal(key.Constraint))
		}
	}
}
