package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Fleet holds the hub's objects about all clusters and Pipelines.
type Fleet struct {
	Connections []capstanv1.ClusterConnection
	Pipelines   []pipelinesv1.Pipeline
	// Promotions of any of the Pipelines, and of former ones of their names.
	Promotions []capstanv1.Promotion
	Backends   []eventingv1.EventingBackend
	// Namespace is the only one that is shown; empty for all. The clusters are those of this namespace and
	// those that its Pipelines name.
	Namespace string
	// Unread are the objects that could not be read, and why, such as "clusters of namespace fleet: forbidden".
	Unread []string
	// ClustersUnread is set if some clusters could not be read: if none is known, there may be some.
	ClustersUnread bool
	// BackendsUnread is set if the EventingBackends could not be read.
	BackendsUnread bool
	Now            time.Time
}

// severity of a state; the worst is 0.
var severity = map[capstanv1.ConnectionState]int{
	capstanv1.ConnectionAuthFailed:  0,
	capstanv1.ConnectionUnreachable: 1,
	capstanv1.ConnectionDegraded:    2,
	capstanv1.ConnectionConnecting:  3,
	capstanv1.ConnectionReady:       4,
	capstanv1.ConnectionRemoved:     5,
	capstanv1.ConnectionUnused:      6,
	"":                              7,
}

const (
	none   = "-"
	unseen = "not observed yet"
)

// MaxLines is the longest output of Write without all: what fits on a screen.
const MaxLines = 40

// Write prints a verdict on the fleet, then the clusters, the worst first, and the Pipelines with their
// environments. A sentence explains each environment that waits. If this has more than MaxLines lines, and all
// is not set, Write prints the Summary, which has a row for each cause.
func (f *Fleet) Write(out io.Writer, all bool) error {
	reports := f.reports()
	summary := f.summary(reports)
	b := &strings.Builder{}
	b.WriteString(wrap(summary.Verdict, ""))
	f.unread(b)
	b.WriteString("\n")
	if err := f.clusters(b); err != nil {
		return err
	}
	b.WriteString("\n")
	if err := f.pipelines(b, reports); err != nil {
		return err
	}
	f.backends(b)
	if !all && strings.Count(b.String(), "\n") > MaxLines {
		return summary.Write(out)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (f *Fleet) unread(b *strings.Builder) {
	for _, text := range f.Unread {
		b.WriteString(wrap("Not shown: "+text, indent))
	}
}

// backends prints the EventingBackends that are not ready.
func (f *Fleet) backends(b *strings.Builder) {
	down := 0
	for i := range f.Backends {
		if w := backendWait(&f.Backends[i]); w != nil {
			if down == 0 {
				b.WriteString("\n")
			}
			down++
			b.WriteString(wrap(fmt.Sprintf("EventingBackend %s is not ready: %s", w.name, w.text()), indent))
		}
	}
}

// sorted returns the connections, the worst first.
func (f *Fleet) sorted() []capstanv1.ClusterConnection {
	sorted := slices.Clone(f.Connections)
	slices.SortStableFunc(sorted, func(x, y capstanv1.ClusterConnection) int {
		return cmp.Or(cmp.Compare(severity[x.Status.State], severity[y.Status.State]), cmp.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name))
	})
	return sorted
}

func (f *Fleet) clusters(b *strings.Builder) error {
	sorted := f.sorted()
	fmt.Fprintf(b, "Clusters: %s\n", f.counts(sorted))
	if len(sorted) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(b, 0, 0, gap, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tSTATE\tSINCE\tAPPS\tVERSION\tCREDENTIALS")
	for i := range sorted {
		c := &sorted[i]
		since, expiry := none, none
		if c.Status.LastTransitionTime != nil {
			since = duration.HumanDuration(f.Now.Sub(c.Status.LastTransitionTime.Time))
		}
		if at := c.Status.CredentialExpiryTime; at != nil {
			expiry = "end in " + duration.HumanDuration(at.Sub(f.Now))
			if at.Time.Before(f.Now) {
				expiry = "ended"
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", cut(clusterName(c), maxRuns+maxName), cmp.Or(c.Status.State, none), since, c.Status.Apps, cmp.Or(c.Status.KubernetesVersion, none), expiry)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for i := range sorted {
		if c := &sorted[i]; c.Status.State != capstanv1.ConnectionReady && c.Status.State != capstanv1.ConnectionUnused {
			b.WriteString(wrap(clusterName(c)+" is "+state(c), indent))
		}
	}
	return nil
}

// state of a cluster as text.
func state(c *capstanv1.ClusterConnection) string {
	if c.Status.State == "" {
		return unseen
	}
	return fmt.Sprintf("%s (%s): %s", c.Status.State, c.Status.Reason, c.Status.Message)
}

// clusterName returns the name of the object to which the connection belongs.
func clusterName(c *capstanv1.ClusterConnection) string {
	name := c.Spec.ClusterRef.Namespace + "/" + c.Spec.ClusterRef.Name
	if kind := c.Spec.ClusterRef.Kind; kind != pipelinesv1.ClusterKindCluster {
		return strings.TrimSpace(kind + " " + name)
	}
	return name
}

// counts counts clusters by state, the worst first.
func (f *Fleet) counts(sorted []capstanv1.ClusterConnection) string {
	var parts []string
	for i := 0; i < len(sorted); {
		state := sorted[i].Status.State
		n := 0
		for ; i < len(sorted) && sorted[i].Status.State == state; i++ {
			n++
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, cmp.Or(state, unseen)))
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, ", ")
	case f.ClustersUnread:
		return "not visible to you"
	case f.Namespace != "":
		return "none in namespace " + f.Namespace + ", and none that its Pipelines name"
	}
	return "none is used by a Pipeline"
}

// reports returns the explanations of all Pipelines. Those that wait come first.
func (f *Fleet) reports() []Report {
	ofPipeline := map[types.NamespacedName][]capstanv1.Promotion{}
	for i := range f.Promotions {
		name := types.NamespacedName{Namespace: f.Promotions[i].Namespace, Name: f.Promotions[i].Spec.Pipeline.Name}
		ofPipeline[name] = append(ofPipeline[name], f.Promotions[i])
	}
	reports := make([]Report, len(f.Pipelines))
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		reports[i] = Explain(Facts{Pipeline: p, Promotions: ofPipeline[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}], Connections: f.Connections, Now: f.Now})
	}
	slices.SortStableFunc(reports, func(x, y Report) int {
		return cmp.Or(-cmp.Compare(order(x.waits()), order(y.waits())), cmp.Compare(x.Pipeline, y.Pipeline))
	})
	return reports
}

func (f *Fleet) pipelines(b *strings.Builder, reports []Report) error {
	fmt.Fprintf(b, "Pipelines: %d (%d waiting)\n", len(reports), waitingIn(reports))
	if len(reports) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(b, 0, 0, gap, ' ', 0)
	fmt.Fprintln(table, "PIPELINE\tENVIRONMENT\tRUNS\tREADY\tIN FLIGHT")
	for _, r := range reports {
		for _, e := range condensed(r.Environments) {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", cut(r.Pipeline, maxRuns+maxName), cut(e.Name, maxName), cut(e.Runs, maxRuns), e.Ready, cut(cmp.Or(e.InFlight, none), maxInFlight))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range reports {
		for _, note := range r.Notes {
			b.WriteString(wrap(r.Pipeline+": "+note, indent))
		}
		for _, e := range r.Environments {
			if e.Waits {
				b.WriteString(wrap(fmt.Sprintf("%s, %s: %s", r.Pipeline, e.Name, e.Why), indent))
			}
		}
	}
	return nil
}

// condensed returns the environments with one in place of neighbouring waves that wait for nothing and run the same.
func condensed(all []Environment) []Environment {
	var rows []Environment
	waves := 0 // in the last row
	for _, e := range all {
		last := len(rows) - 1
		if last < 0 || e.base == "" || e.Waits || rows[last].Waits || rows[last].base != e.base || rows[last].Runs != e.Runs {
			rows, waves = append(rows, e), 1
			continue
		}
		waves++
		row := &rows[last]
		row.ready, row.targets = row.ready+e.ready, row.targets+e.targets
		row.Name, row.Ready = fmt.Sprintf("%s, %d waves", e.base, waves), fmt.Sprintf("%d/%d", row.ready, row.targets)
	}
	return rows
}

// waitingIn counts the Pipelines that wait.
func waitingIn(reports []Report) int {
	waiting := 0
	for i := range reports {
		waiting += order(reports[i].waits())
	}
	return waiting
}

func (r *Report) waits() bool {
	return len(r.Notes) > 0 || slices.ContainsFunc(r.Environments, func(e Environment) bool { return e.Waits })
}

func order(b bool) int {
	if b {
		return 1
	}
	return 0
}
