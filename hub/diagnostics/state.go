package diagnostics

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/capstan-hub/capstan/clusters"
)

// state answers with the present state, as text in columns.
func (s *Server) state(w http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	now := s.options.Clock.Now()
	s.process(&b, now)
	s.connections(&b, now)
	s.informers(&b, now)
	if err := s.queues(&b); err != nil {
		fmt.Fprintf(&b, "The metrics cannot be read: %v\n", err)
	}
	text(w, b.String())
}

func (s *Server) process(w io.Writer, now time.Time) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	limit := "none"
	if bytes := debug.SetMemoryLimit(-1); bytes != math.MaxInt64 { // A negative value changes nothing.
		limit = mebibytes(uint64(bytes))
	}
	role := "standby"
	if s.options.Leads() {
		role = "leader"
	}
	fmt.Fprintf(w, "capstan %s, %s, started %s ago; %s, GOMAXPROCS %d, memory limit %s\n", s.options.Version, role, ago(now, s.started), runtime.Version(), runtime.GOMAXPROCS(0), limit)
	fmt.Fprintf(w, "%d goroutines; heap %s in use of %s from the system, stacks %s; %d collections\n\n", runtime.NumGoroutine(), mebibytes(m.HeapInuse), mebibytes(m.HeapSys), mebibytes(m.StackInuse), m.NumGC)
}

func (s *Server) connections(w io.Writer, now time.Time) {
	all := s.options.Connections()
	fmt.Fprintf(w, "%d connections\n", len(all))
	table(w, "CLUSTER\tSTATE\tREASON\tSINCE\tCONTACT\tEPOCH\tVERSION\tMESSAGE", func(row func(cells ...any)) {
		for _, c := range all {
			row(nameOf(string(c.Name)), c.State, c.Reason, ago(now, c.Since), ago(now, c.LastContact), c.Epoch, c.KubernetesVersion, c.Message)
		}
	})
}

func (s *Server) informers(w io.Writer, now time.Time) {
	all := s.options.Informers()
	fmt.Fprintf(w, "%d informers\n", len(all))
	table(w, "CLUSTER\tKIND\tNAMESPACE\tSINCE\tSYNCED\tOBJECTS\tBYTES\tPROBLEM", func(row func(cells ...any)) {
		for _, i := range all {
			row(nameOf(string(i.Cluster)), i.Kind, cmp.Or(i.Namespace, "*"), ago(now, i.Since), i.Synced, i.Objects, i.Bytes, i.Problem)
		}
	})
}

// queueMetrics are controller-runtime's metrics of a queue, as columns.
var queueMetrics = []struct{ column, metric, label string }{
	{"QUEUED", "workqueue_depth", "name"},
	{"OLDEST IN WORK (s)", "workqueue_longest_running_processor_seconds", "name"},
	{"ADDED", "workqueue_adds_total", "name"},
	{"RETRIES", "workqueue_retries_total", "name"},
	{"WORKERS", "controller_runtime_active_workers", "controller"},
	{"OF", "controller_runtime_max_concurrent_reconciles", "controller"},
}

func (s *Server) queues(w io.Writer) error {
	families, err := s.options.Metrics.Gather()
	values := map[string]map[string]float64{}
	for _, f := range families {
		for _, q := range queueMetrics {
			if f.GetName() != q.metric {
				continue
			}
			for _, m := range f.GetMetric() {
				name := labelOf(m, q.label)
				if values[name] == nil {
					values[name] = map[string]float64{}
				}
				values[name][q.metric] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	header := []string{"QUEUE"}
	var names []string
	for _, q := range queueMetrics {
		header = append(header, q.column)
	}
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(w, "%d queues\n", len(names))
	table(w, strings.Join(header, "\t"), func(row func(cells ...any)) {
		for _, name := range names {
			cells := []any{name}
			for _, q := range queueMetrics {
				cells = append(cells, math.Round(values[name][q.metric]*10)/10)
			}
			row(cells...)
		}
	})
	return err
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// table writes rows in columns, and an empty line.
func table(w io.Writer, header string, rows func(row func(cells ...any))) {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, header)
	rows(func(cells ...any) {
		line := make([]string, len(cells))
		for i, cell := range cells {
			line[i] = cmp.Or(strings.Join(strings.Fields(fmt.Sprint(cell)), " "), "-")
		}
		fmt.Fprintln(columns, strings.Join(line, "\t"))
	})
	_ = columns.Flush() // A strings.Builder returns no error.
	fmt.Fprintln(w)
}

func nameOf(cluster string) string {
	if cluster == string(clusters.LocalName) {
		return "(management)"
	}
	return cluster
}

func ago(now, at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(at))
}

func mebibytes(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }
