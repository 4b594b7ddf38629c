package instancestate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

const document = "../../docs/instance-state.md"

func readDocument(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(document)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// The document has every metric with its labels, and no other.
func TestDocumentHasEveryMetric(t *testing.T) {
	g := NewWithT(t)
	described := make(chan *prometheus.Desc, 100)
	m := newMetrics()
	g.Expect(m.register(describer(described), gauges{})).To(Succeed())
	close(described)
	fields := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	var have []string
	for d := range described {
		found := fields.FindStringSubmatch(d.String())
		g.Expect(found).To(HaveLen(3), d.String())
		name := found[1]
		if found[2] != "" {
			name += "{" + found[2] + "}"
		}
		have = append(have, name)
	}
	var documented []string
	for _, found := range regexp.MustCompile("`("+metricPrefix+"[a-z_]+[^`]*)`").FindAllStringSubmatch(readDocument(t), -1) {
		if found[1] != metricPrefix {
			documented = append(documented, found[1])
		}
	}
	g.Expect(len(have)).To(BeNumerically(">", 20))
	g.Expect(documented).To(ConsistOf(have))
}

// describer registers nothing, and describes all.
type describer chan<- *prometheus.Desc

func (d describer) Register(c prometheus.Collector) error { c.Describe(d); return nil }
func (d describer) MustRegister(...prometheus.Collector)  {}
func (d describer) Unregister(prometheus.Collector) bool  { return false }

// The document has every reason of an Event, and no other.
func TestDocumentHasEveryReason(t *testing.T) {
	g := NewWithT(t)
	file, err := parser.ParseFile(token.NewFileSet(), "events.go", nil, 0)
	g.Expect(err).NotTo(HaveOccurred())
	var have []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, is := n.(*ast.ValueSpec); is && strings.HasPrefix(spec.Names[0].Name, "Reason") {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			g.Expect(err).NotTo(HaveOccurred())
			have = append(have, value)
		}
		return true
	})
	_, after, _ := strings.Cut(readDocument(t), "\n## Events\n")
	table, _, _ := strings.Cut(after, "\n## ")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(table, -1) {
		documented = append(documented, row[1])
	}
	g.Expect(have).NotTo(BeEmpty())
	g.Expect(documented).To(ConsistOf(have))
}

// Every EventingBackend in the document is a valid source.
func TestDocumentHasValidSources(t *testing.T) {
	g := NewWithT(t)
	types, err := schema.Types(schema.Options{SQSSourceNamespaces: []string{"capstan-system"}})
	g.Expect(err).NotTo(HaveOccurred())
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readDocument(t), -1)
	g.Expect(len(blocks)).To(BeNumerically(">=", 3))
	for _, block := range blocks {
		var backend eventingv1.EventingBackend
		g.Expect(yaml.UnmarshalStrict([]byte(block[1]), &backend)).To(Succeed())
		config, invalid := types.Resolve(&backend)
		g.Expect(invalid).To(BeEmpty(), block[1])
		g.Expect(config.String(schema.RoleKey)).To(Equal(schema.RoleSource))
		g.Expect(backend.Labels).To(HaveKeyWithValue(eventingv1.BackendLabel, eventingv1.BackendLabelValue))
		for _, kind := range config.List("remediate") {
			g.Expect(slices.Contains(strings.Split(readDocument(t), "`"), kind)).To(BeTrue())
		}
	}
}
