package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/causes"
)

// Summary is the state of the fleet with one entry for each cause. It is the JSON output of `capstan status`:
// fields may be added, and none is renamed or removed.
type Summary struct {
	// Verdict on the fleet in one line.
	Verdict string `json:"verdict"`
	// Namespace is the only one that is shown; absent for all.
	Namespace string `json:"namespace,omitempty"`
	// NotShown are the objects that could not be read, and why.
	NotShown  []string         `json:"notShown,omitempty"`
	Clusters  ClustersSummary  `json:"clusters"`
	Pipelines PipelinesSummary `json:"pipelines"`
	Backends  BackendsSummary  `json:"backends"`

	now time.Time
	// counts of clusters by state as text.
	counts string
}

// ClustersSummary counts clusters.
type ClustersSummary struct {
	Total int `json:"total"`
	// NeedAction is the number of those that are AuthFailed, Unreachable or Degraded.
	NeedAction int `json:"needAction"`
	// States are the numbers of clusters by state; NotObserved for those that the hub has not observed.
	States map[string]int `json:"states"`
	Causes []Cause        `json:"causes"`
}

// PipelinesSummary counts Pipelines, and the environments that wait.
type PipelinesSummary struct {
	Total   int `json:"total"`
	Waiting int `json:"waiting"`
	// Approvals, Failed, Stalled and Rejected are numbers of environments by their newest promotion.
	Approvals int `json:"approvals"`
	Failed    int `json:"failed"`
	Stalled   int `json:"stalled"`
	Rejected  int `json:"rejected"`
	// NotReady is the number of environments without a promotion in progress with a target that is not ready
	// or cannot be read.
	NotReady int `json:"notReady"`
	// NotObserved is the number of environments with a target that the hub has not observed yet, and of Pipelines
	// whose newest edit it has not observed.
	NotObserved int `json:"notObserved"`
	// DryRun is the number of Pipelines that a hub in dry run observes, and WouldPromote that of the promotions that
	// it would create.
	DryRun       int `json:"dryRun,omitempty"`
	WouldPromote int `json:"wouldPromote,omitempty"`
	// Invalid is the number of Pipelines whose spec is invalid or is not served in full.
	Invalid int     `json:"invalid"`
	Causes  []Cause `json:"causes"`
	// Environments are those of all Pipelines, by namespace and Pipeline, in the order of the spec.
	Environments []Row `json:"environments"`
}

// BackendsSummary counts EventingBackends.
type BackendsSummary struct {
	Total    int     `json:"total"`
	NotReady int     `json:"notReady"`
	Causes   []Cause `json:"causes"`
}

// Cause is one cause and the objects that it affects. Causes are sorted: the worst first, then the oldest.
type Cause struct {
	// Kind of the cause: a ConnectionState for clusters, else a WaitKind.
	Kind string `json:"kind"`
	// Reason in one word; absent if there is none.
	Reason string `json:"reason,omitempty"`
	// Message of the object that is affected longest. Those of the others differ only in names and numbers.
	Message string `json:"message,omitempty"`
	// Count of objects.
	Count int `json:"count"`
	// Oldest is since when the first of them is affected; absent if that is not known.
	Oldest *time.Time `json:"oldest,omitempty"`
	// Objects are all affected objects in alphabetical order: clusters and backends as namespace/name,
	// environments as "namespace/pipeline environment".
	Objects []string `json:"objects"`
	// Next is a command that shows more.
	Next string `json:"next"`

	// noun of the objects; text of the cause for users; other is the command if Next is too long for a line.
	noun, text, other string
}

// Summary returns the summary of the fleet.
func (f *Fleet) Summary() Summary { return f.summary(f.reports()) }

func (f *Fleet) summary(reports []Report) Summary {
	s := Summary{Namespace: f.Namespace, NotShown: f.Unread, now: f.Now, counts: f.counts(f.sorted())}
	s.Clusters = f.clustersSummary()
	s.Pipelines = pipelinesSummary(reports)
	s.Pipelines.Environments = rowsOf(reports)
	for i := range f.Pipelines {
		if dry := f.Pipelines[i].Status.DryRun; dry != nil {
			s.Pipelines.DryRun++
			s.Pipelines.WouldPromote += len(dry.Due())
		}
	}
	s.Backends = f.backendsSummary()
	s.Verdict = f.verdict(&s)
	return s
}

func (f *Fleet) clustersSummary() ClustersSummary {
	s := ClustersSummary{Total: len(f.Connections), States: map[string]int{}}
	var items []causes.Item
	var of []*capstanv1.ClusterConnection
	for i := range f.Connections {
		c := &f.Connections[i]
		s.States[cmp.Or(string(c.Status.State), string(WaitUnobserved))]++
		switch c.Status.State {
		case capstanv1.ConnectionReady, capstanv1.ConnectionUnused:
			continue
		case capstanv1.ConnectionAuthFailed, capstanv1.ConnectionUnreachable, capstanv1.ConnectionDegraded:
			s.NeedAction++
		case capstanv1.ConnectionConnecting, capstanv1.ConnectionRemoved, "":
		}
		ref := &c.Spec.ClusterRef
		items = append(items, causes.Item{
			Key:      fmt.Sprintf("%s\x00%s\x00%s", c.Status.State, c.Status.Reason, causes.Shape(c.Status.Message, c.Name, ref.Name, ref.Namespace)),
			Severity: severity[c.Status.State], Name: clusterName(c), Since: timeOf(c.Status.LastTransitionTime),
		})
		of = append(of, c)
	}
	s.Causes = causesOf(items, func(at int) Cause {
		c := of[at]
		text := unseen
		if c.Status.State != "" {
			text = fmt.Sprintf("%s (%s)", c.Status.State, cmp.Or(c.Status.Reason, "unknown reason"))
		}
		return Cause{
			Kind: cmp.Or(string(c.Status.State), string(WaitUnobserved)), Reason: c.Status.Reason, Message: c.Status.Message, noun: "cluster", text: text,
			Next:  fmt.Sprintf("kubectl -n %s describe clusterconnections.capstan.dev %s", c.Namespace, c.Name),
			other: fmt.Sprintf("kubectl -n %s get clusterconnections.capstan.dev -o wide", c.Namespace),
		}
	})
	return s
}

func pipelinesSummary(reports []Report) PipelinesSummary {
	s := PipelinesSummary{Total: len(reports), Waiting: waitingIn(reports)}
	var of []*wait
	var pipelines []string
	for i := range reports {
		r := &reports[i]
		for k := range r.noted {
			of, pipelines = append(of, &r.noted[k]), append(pipelines, r.Pipeline)
		}
		for k := range r.Environments {
			if e := &r.Environments[k]; e.Waits {
				of, pipelines = append(of, &e.wait), append(pipelines, r.Pipeline)
			}
		}
	}
	for _, w := range of {
		switch w.kind {
		case WaitApproval:
			s.Approvals++
		case WaitFailed:
			s.Failed++
		case WaitStalled:
			s.Stalled++
		case WaitRejected:
			s.Rejected++
		case WaitUnreadable, WaitTarget:
			s.NotReady++
		case WaitInvalid:
			s.Invalid++
		case WaitUnobserved:
			s.NotObserved++
		case WaitDown, WaitOther, WaitDryRun, WaitSuspended, WaitGate, WaitProgress:
		}
	}
	s.Causes = causesOf(itemsOf(of), func(at int) Cause {
		c := causeOf(of[at])
		namespace, _, _ := strings.Cut(pipelines[at], "/")
		c.Next, c.other = "capstan explain pipeline "+pipelines[at], "capstan status --all --namespace="+namespace
		return c
	})
	return s
}

func (f *Fleet) backendsSummary() BackendsSummary {
	s := BackendsSummary{Total: len(f.Backends)}
	var of []*wait
	var namespaces []string
	for i := range f.Backends {
		if w := backendWait(&f.Backends[i]); w != nil {
			of, namespaces = append(of, w), append(namespaces, f.Backends[i].Namespace)
		}
	}
	s.NotReady = len(of)
	s.Causes = causesOf(itemsOf(of), func(at int) Cause {
		c := causeOf(of[at])
		c.Next = "capstan explain eventingbackend " + of[at].name
		c.other = fmt.Sprintf("kubectl -n %s get eventingbackends.eventing.kyma-project.io", namespaces[at])
		return c
	})
	return s
}

func itemsOf(all []*wait) []causes.Item {
	items := make([]causes.Item, len(all))
	for i, w := range all {
		items[i] = causes.Item{Key: w.key(), Severity: waitSeverity[w.kind], Name: w.name, Since: w.since}
	}
	return items
}

// causeOf describes the cause of one object.
func causeOf(w *wait) Cause {
	text := waitText[w.kind]
	if strings.Contains(text, "%s") {
		text = fmt.Sprintf(text, cmp.Or(w.reason, "unknown reason"))
	}
	return Cause{Kind: string(w.kind), Reason: w.reason, Message: w.message, noun: w.noun, text: text}
}

// causesOf groups items. describe returns the Cause of the item with an index, without its counts.
func causesOf(items []causes.Item, describe func(at int) Cause) []Cause {
	all := []Cause{}
	for _, group := range causes.Of(items, len(items)) {
		c := describe(group.Example)
		c.Count, c.Objects = group.Count, group.Names
		if !group.Oldest.IsZero() {
			oldest := group.Oldest.UTC()
			c.Oldest = &oldest
		}
		all = append(all, c)
	}
	return all
}

// verdict says in one line whether the hub is in dry run, and what needs a user.
func (f *Fleet) verdict(s *Summary) string {
	if n := s.Pipelines.WouldPromote; s.Pipelines.DryRun > 0 {
		return fmt.Sprintf("DRY RUN: the hub promotes nothing, and would create %s now · %s", counted(n, "promotion", "promotions"), f.state(s))
	}
	return f.state(s)
}

// state says in one line what needs a user, the worst first.
func (f *Fleet) state(s *Summary) string {
	var parts []string
	count := func(n int, one, many string) {
		if n > 0 {
			parts = append(parts, counted(n, one, many))
		}
	}
	if n := s.Clusters.NeedAction; n > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s need you", n, counted(s.Clusters.Total, "cluster", "clusters")))
	}
	count(s.Pipelines.Approvals, "approval", "approvals")
	count(s.Pipelines.Failed, "failed promotion", "failed promotions")
	count(s.Pipelines.Stalled, "stalled promotion", "stalled promotions")
	count(s.Pipelines.Rejected, "rejected promotion", "rejected promotions")
	count(s.Pipelines.Invalid, "invalid Pipeline", "invalid Pipelines")
	count(s.Pipelines.NotReady, "environment not ready", "environments not ready")
	count(s.Pipelines.NotObserved, "not observed by the hub yet", "not observed by the hub yet")
	count(s.Backends.NotReady, "backend not ready", "backends not ready")
	if len(parts) > 0 {
		return strings.Join(parts, " · ")
	}
	quiet := "no promotion needs you"
	switch ready := s.Clusters.States[string(capstanv1.ConnectionReady)]; {
	case f.ClustersUnread:
		return "Not all clusters are visible to you · " + quiet
	case s.Clusters.Total == 0:
		return "No clusters · " + quiet
	case ready == s.Clusters.Total:
		return fmt.Sprintf("All of %s connected · %s", counted(ready, "cluster", "clusters"), quiet)
	default:
		return fmt.Sprintf("%d of %s connected · %s", ready, counted(s.Clusters.Total, "cluster", "clusters"), quiet)
	}
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
