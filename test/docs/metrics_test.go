package docs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// anyPort of this machine.
const anyPort = "127.0.0.1:0"

// patience with a control plane and a hub that start on a busy machine.
const patience = 2 * time.Minute

// metric as its collector describes it.
type metric struct {
	name, help string
	labels     []string
}

var description = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}\}$`)

// program is what two hubs of one process described, by name: each in its own registry, and
// the rest in controller-runtime's, which belongs to the process.
type program struct {
	hubs   [2]map[string]metric
	shared map[string]metric
}

// described are the metrics of a hub that runs with everything it can have, and those that
// its process has with it, by name.
func described(t *testing.T) map[string]metric {
	t.Helper()
	all := maps.Clone(running(t).shared)
	maps.Copy(all, running(t).hubs[0])
	return all
}

func running(t *testing.T) program {
	t.Helper()
	once.Do(func() { ran = describe(t) })
	return ran
}

var (
	once sync.Once
	ran  program
)

func describe(t *testing.T) program {
	t.Helper()
	g := NewWithT(t)
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan", "cluster-api", "cluster-controller", "cluster-api-provider-aws")})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(plane.Stop()).To(Succeed()) }()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	aws, err := awsconfig.Load(t.Context(), awsconfig.Options{Auth: awsconfig.AuthDefault})
	g.Expect(err).NotTo(HaveOccurred())
	defer aws.Close()
	p := program{shared: map[string]metric{}}
	var registries [2]*prometheus.Registry
	for i := range registries {
		registries[i], p.hubs[i] = prometheus.NewRegistry(), map[string]metric{}
		h, err := hub.New(hub.Options{
			Config: plane.Config(), Registerer: registries[i], Logger: logr.Discard(), CloneDir: t.TempDir(),
			AWS: aws, Annotator: hub.Annotator{AWS: aws},
			// They share the management cluster: such hubs have all metrics.
			LeaderElect: true, LeaderElectionNamespace: metav1.NamespaceDefault,
			Namespaces: []string{fmt.Sprintf("team-%d", i)}, Eventing: hub.Eventing{Name: fmt.Sprintf("hub-%d", i)},
			// The servers register theirs when they serve.
			Hook: hub.Hook{BindAddress: anyPort}, Dashboard: hub.Dashboard{BindAddress: anyPort, Auth: dashboard.AuthNone},
		})
		g.Expect(err).NotTo(HaveOccurred())
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Start(ctx) }()
		defer func() {
			stop()
			g.Expect(<-ended).To(Succeed())
		}()
	}
	// Connections, watchers and servers register theirs when they start, one after the other:
	// these are the last ones of each.
	g.Eventually(func(g Gomega) {
		for i, registry := range registries {
			clear(p.hubs[i])
			read(g, registry, p.hubs[i])
			g.Expect(slices.Collect(maps.Keys(p.hubs[i]))).To(ContainElements("capstan_cluster_state", "capstan_wakes_folded_total", "capstan_hook_call_seconds", "capstan_dashboard_actions_total"))
		}
	}).WithTimeout(patience).Should(Succeed())
	read(g, shared(g), p.shared)
	return p
}

// shared is the registry of the process.
func shared(g Gomega) prometheus.Collector {
	collector, ok := metrics.Registry.(prometheus.Collector)
	g.Expect(ok).To(BeTrue())
	return collector
}

// documented are the names of the metrics in docs/metrics.md.
func documented(g Gomega) []string {
	raw, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(capstan_[a-z0-9_]+)` \\|").FindAllStringSubmatch(string(raw), -1) {
		names = append(names, row[1])
	}
	g.Expect(len(names)).To(BeNumerically(">", 30))
	return names
}

// Each of two hubs in one process has all metrics in its own registry; the registry of the
// process, which packages could only reach when they are imported, has none of them.
func TestEachHubHasItsOwnMetrics(t *testing.T) {
	g := NewWithT(t)
	names := documented(g)
	for _, has := range running(t).hubs {
		g.Expect(slices.Collect(maps.Keys(has))).To(ConsistOf(names))
	}
	g.Expect(running(t).shared).To(HaveKey("controller_runtime_reconcile_total"))
	for name := range running(t).shared {
		g.Expect(name).NotTo(HavePrefix("capstan_"))
	}
}

// read what a collector describes.
func read(g Gomega, collector prometheus.Collector, found map[string]metric) {
	into := make(chan *prometheus.Desc)
	go func() {
		defer close(into)
		collector.Describe(into)
	}()
	var unread []string
	for desc := range into {
		parts := description.FindStringSubmatch(desc.String())
		m := metric{}
		if parts == nil || json.Unmarshal([]byte(parts[2]), &m.help) != nil {
			unread = append(unread, desc.String())
			continue
		}
		if m.name = parts[1]; parts[3] != "" {
			m.labels = strings.Split(parts[3], ",")
		}
		found[m.name] = m
	}
	g.Expect(unread).To(BeEmpty())
}

// docs/metrics.md is made of the descriptions that Prometheus gets.
func TestMetricsAreCurrent(t *testing.T) {
	all := described(t)
	var b strings.Builder
	b.WriteString("# Metrics\n\nGenerated from the hub's collectors by `make generate`. What ends in `_total` is a counter, what ends in `_seconds` and says\nhow long something took is a histogram, the rest are gauges. On each replica: what only the leader does is at rest on the\nothers. Where several hubs share a management cluster, each metric of Capstan also has the label `hub`. controller-runtime's own (`controller_runtime_*`, `workqueue_*`, `rest_client_*`, `leader_election_master_status`) and\nGo's (`go_*`, `process_*`) come with them. What to alert on: `config/monitoring/prometheus_rule.yaml`.\n\n| metric | labels | what it is |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(name, "capstan_") {
			continue
		}
		labels := "–"
		if m := all[name]; len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, labels, all[name].help)
	}
	current(t, "docs/metrics.md", b.String())
}

// Metrics of Go's runtime and of the processes, which the registry describes as it goes.
var runtimes = []string{"go_goroutines", "process_resident_memory_bytes"}

var (
	// selector is a metric with its matchers, in PromQL.
	selector = regexp.MustCompile(`\b((?:capstan|controller_runtime|workqueue|leader_election|rest_client|go|process)_[a-z0-9_]+)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\bby \(([a-z_, ]+)\)`)
	suffixes = []string{"_bucket", "_sum", "_count"}
)

// What alerts and the dashboard ask for exists, with the labels that they ask by.
func TestQueriesAskForWhatThereIs(t *testing.T) {
	g := NewWithT(t)
	all := described(t)
	queries := map[string]string{}

	raw, err := os.ReadFile(filepath.Join(root, "config/monitoring/prometheus_rule.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
	}
	g.Expect(yaml.Unmarshal(raw, &rule)).To(Succeed())
	for _, r := range rule.Spec.Groups[0].Rules {
		queries["alert "+r.Alert] = r.Expr
	}
	raw, err = os.ReadFile(filepath.Join(root, "config/monitoring/dashboard.json"))
	g.Expect(err).NotTo(HaveOccurred())
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	g.Expect(json.Unmarshal(raw, &dashboard)).To(Succeed())
	for _, panel := range dashboard.Panels {
		for i, target := range panel.Targets {
			queries[fmt.Sprintf("panel %s %d", panel.Title, i)] = target.Expr
		}
	}
	g.Expect(len(queries)).To(BeNumerically(">", 40))

	for where, query := range queries {
		asked := selector.FindAllStringSubmatch(query, -1)
		g.Expect(asked).NotTo(BeEmpty(), "%s: %s", where, query)
		known := map[string]bool{"le": true, "job": true, "pod": true, "instance": true, "hub": true}
		for _, one := range asked {
			name := one[1]
			for _, suffix := range suffixes {
				if _, plain := all[name]; !plain {
					name = strings.TrimSuffix(name, suffix)
				}
			}
			if slices.Contains(runtimes, name) {
				continue
			}
			g.Expect(all).To(HaveKey(name), "%s: %s", where, query)
			for _, label := range all[name].labels {
				known[label] = true
			}
			for _, label := range matcher.FindAllStringSubmatch(one[2], -1) {
				g.Expect(append([]string{"job"}, all[name].labels...)).To(ContainElement(label[1]), "%s: %s", where, query)
			}
		}
		for _, by := range grouping.FindAllStringSubmatch(query, -1) {
			for label := range strings.SplitSeq(by[1], ",") {
				g.Expect(known).To(HaveKey(strings.TrimSpace(label)), "%s: %s", where, query)
			}
		}
	}
}
