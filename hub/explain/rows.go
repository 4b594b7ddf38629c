package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Row is the state of one environment of a Pipeline. It is part of the JSON output of `capstan status`:
// fields may be added, and none is renamed or removed.
type Row struct {
	Namespace   string `json:"namespace"`
	Pipeline    string `json:"pipeline"`
	Environment string `json:"environment"`
	// Runs is the revision, or the revisions, that its targets were last observed to run.
	Runs string `json:"runs"`
	// ReadyTargets of Targets are ready.
	ReadyTargets int `json:"readyTargets"`
	Targets      int `json:"targets"`
	// InFlight is the promotion in progress, as revision and phase; absent if there is none.
	InFlight string `json:"inFlight,omitempty"`
	// Wait is the WaitKind of the cause for which the environment waits, with its Reason; absent if
	// it does not wait. Since is when that began; absent if that is not known.
	Wait   string     `json:"wait,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	// Why explains in one sentence why the next promotion does not happen, or that there is nothing to do.
	Why string `json:"why"`
}

// Rows returns a row for each environment, in the order of Pipelines by name and of environments as in the spec.
func (f *Fleet) Rows() []Row { return rowsOf(f.reports()) }

func rowsOf(reports []Report) []Row {
	rows := []Row{}
	for i := range reports {
		namespace, name, _ := strings.Cut(reports[i].Pipeline, "/")
		for k := range reports[i].Environments {
			e := &reports[i].Environments[k]
			row := Row{Namespace: namespace, Pipeline: name, Environment: e.Name, Runs: e.Runs, ReadyTargets: e.ready, Targets: e.targets, InFlight: e.InFlight, Why: e.Why}
			if e.Waits {
				row.Wait, row.Reason = string(e.wait.kind), e.wait.reason
				if !e.wait.since.IsZero() {
					since := e.wait.since.UTC()
					row.Since = &since
				}
			}
			rows = append(rows, row)
		}
	}
	// The environments of a Pipeline keep their order.
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pipeline, b.Pipeline))
	})
	return rows
}

// Key identifies the environment of a row.
func (r *Row) Key() string { return r.Namespace + "/" + r.Pipeline + "/" + r.Environment }

// Same returns whether two rows show the same state. The texts of Why and Since are not compared: they
// contain durations.
func (r *Row) Same(other *Row) bool {
	return r.Runs == other.Runs && r.ReadyTargets == other.ReadyTargets && r.Targets == other.Targets && r.InFlight == other.InFlight &&
		r.Wait == other.Wait && r.Reason == other.Reason
}

// WriteRows prints rows as a table, with the columns WAITS FOR and MESSAGE if it is wide, and its header if that is
// set. No text is cut.
func WriteRows(out io.Writer, rows []Row, wide, header bool, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, gap, ' ', 0)
	if header {
		line := "NAMESPACE\tPIPELINE\tENVIRONMENT\tRUNS\tREADY\tIN FLIGHT\tWAITS FOR\tSINCE"
		if wide {
			line += "\tMESSAGE"
		}
		fmt.Fprintln(table, line)
	}
	for i := range rows {
		r := &rows[i]
		waits, since := none, none
		if r.Wait != "" {
			waits = r.Wait
			if r.Reason != "" {
				waits += " (" + r.Reason + ")"
			}
		}
		if r.Since != nil {
			since = duration.HumanDuration(now.Sub(*r.Since))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d/%d\t%s\t%s\t%s", r.Namespace, r.Pipeline, r.Environment, r.Runs, r.ReadyTargets, r.Targets, cmp.Or(r.InFlight, none), waits, since)
		if wide {
			fmt.Fprintf(table, "\t%s", r.Why)
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// Condition is a state of the fleet on which a script can fail.
type Condition string

// Conditions of a fleet.
const (
	// ConditionUnreachable: a cluster is Unreachable, AuthFailed or Degraded.
	ConditionUnreachable Condition = "unreachable"
	// ConditionFailed: the newest promotion into an environment failed.
	ConditionFailed Condition = "failed"
	// ConditionStalled: a promotion in progress is older than --stall-after, or cannot be carried out.
	ConditionStalled Condition = "stalled"
	// ConditionRejected: the newest promotion into an environment was rejected.
	ConditionRejected Condition = "rejected"
	// ConditionNotReady: a target is not ready, or cannot be read.
	ConditionNotReady Condition = "not-ready"
	// ConditionInvalid: the spec of a Pipeline is invalid, or is not served in full.
	ConditionInvalid Condition = "invalid"
	// ConditionApproval: a promotion waits for an approval.
	ConditionApproval Condition = "approval"
	// ConditionNotObserved: the hub has not observed a target, or the newest edit of a Pipeline.
	ConditionNotObserved Condition = "not-observed"
	// ConditionBackend: an EventingBackend is not ready.
	ConditionBackend Condition = "backend"
)

// Conditions returns all conditions.
func Conditions() []Condition {
	return []Condition{ConditionFailed, ConditionStalled, ConditionRejected, ConditionInvalid, ConditionNotReady, ConditionUnreachable, ConditionApproval, ConditionNotObserved, ConditionBackend}
}

// Met returns how many objects meet a condition.
func (s *Summary) Met(c Condition) int {
	switch c {
	case ConditionUnreachable:
		return s.Clusters.NeedAction
	case ConditionFailed:
		return s.Pipelines.Failed
	case ConditionStalled:
		return s.Pipelines.Stalled
	case ConditionRejected:
		return s.Pipelines.Rejected
	case ConditionNotReady:
		return s.Pipelines.NotReady
	case ConditionInvalid:
		return s.Pipelines.Invalid
	case ConditionApproval:
		return s.Pipelines.Approvals
	case ConditionNotObserved:
		return s.Pipelines.NotObserved + s.Clusters.States[string(WaitUnobserved)]
	case ConditionBackend:
		return s.Backends.NotReady
	}
	return 0
}

// Only keeps of a fleet one Pipeline, and the clusters that it names. It returns false if there is no such Pipeline.
func (f *Fleet) Only(namespace, name string) bool {
	for i := range f.Pipelines {
		if p := f.Pipelines[i]; p.Namespace == namespace && p.Name == name {
			f.Pipelines, f.Backends = f.Pipelines[i:i+1:i+1], nil
			named := f.Named()
			f.Connections = slices.DeleteFunc(f.Connections, func(c capstanv1.ClusterConnection) bool {
				ref := c.Spec.ClusterRef
				return !named[pipelinesv1.CrossNamespaceClusterReference{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}]
			})
			return true
		}
	}
	return false
}
