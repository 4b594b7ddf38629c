package view

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// BackendsPath is the page of event backends.
const BackendsPath = "/backends"

// backendWords are the states of the filter, worst first.
var backendWords = []string{"Invalid", "Not ready", backendRefuses, "Not observed yet", "Ready"}

// backendRefuses is the state of a backend that is ready, and whose receiver does not accept events.
const backendRefuses = "Refuses events"

// perBackends is how many backends the page shows at once.
const perBackends = 50

// Backend is an EventingBackend. Its configuration is not shown: it can contain
// confidential values.
type Backend struct {
	Namespace, Name string
	// Type is that of the spec. InUse is the type in use when it differs from Type.
	Type, InUse string
	Mark        Mark
	// Source is true for a queue that is read.
	Source bool
	// Errors of its configuration.
	Errors     []eventingv1.ValidationError
	Conditions []Condition
	// Delivery is the state of its events; nil when it is not known.
	Delivery *Delivery
	// Events about it, newest first.
	Events []Event
	// Trend is what waited and failed in the last hour.
	Trend Trend
}

// Delivery is the state of the events of a backend. Times are zero when there is none.
type Delivery struct {
	eventingv1.Delivery
	// Oldest waiting event, and the last success.
	Oldest, Success time.Time
}

// BackendsFrame is the frame of the page of event backends.
type BackendsFrame struct {
	Filters Filters
}

// BackendsSummary is the summary of the page of event backends.
type BackendsSummary struct {
	Backends int
	Counts   []Count
	Hidden   Hidden
}

// Backends returns the page of event backends, worst first.
func Backends(f *Facts, scope Scope, q Query) Page {
	q = q.among(backendWords)
	marks, namespaces := map[Mark]int{}, map[string]bool{}
	total := 0
	var found []Backend
	for i := range f.Backends {
		o := &f.Backends[i]
		if !scope.Backends.Has(o.Namespace) {
			continue
		}
		b := f.backend(o, scope)
		total++
		namespaces[b.Namespace] = true
		marks[b.Mark]++
		if q.inNamespace(b.Namespace) && q.inState(b.Mark.Word) && q.words().backend(o) {
			found = append(found, b)
		}
	}
	slices.SortStableFunc(found, func(a, b Backend) int {
		return cmp.Or(worse(a.Mark.Tone, b.Mark.Tone), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	filters := Filters{Query: q, Action: BackendsPath, What: "backends", Namespaces: sorted(namespaces), States: backendWords}
	page := Page{Template: "backends", Title: "Event backends", Frame: BackendsFrame{Filters: filters}}
	page.Blocks = append(page.Blocks, Block{ID: "backends-summary", List: "summary", Template: "backends-summary", Data: BackendsSummary{
		Backends: total, Counts: counted(marks, func(m Mark) string { return Query{State: m.Word}.At(BackendsPath) }), Hidden: hiddenOf(scope.backends()),
	}})
	shown, pager := paged(found, q, BackendsPath, "backends", perBackends)
	for _, b := range shown {
		page.Blocks = append(page.Blocks, Block{ID: "backend/" + b.Namespace + "/" + b.Name, List: "entries", Template: "backend", Data: b})
	}
	if len(found) == 0 {
		page.Blocks = append(page.Blocks, filters.empty("entries", "empty-row", backendColumns, scope.Backends, NeedBackends, "No EventingBackend exists yet."))
	}
	page.Blocks = append(page.Blocks, Block{ID: "backends-pager", List: "pager", Template: "pager-block", Data: pager})
	return page
}

// backendColumns is the number of columns of the list.
const backendColumns = 7

func (f *Facts) backend(o *eventingv1.EventingBackend, scope Scope) Backend {
	b := Backend{Namespace: o.Namespace, Name: o.Name, Type: o.Spec.Type, Mark: backendMark(o), Source: isSource(o), Errors: o.Status.ValidationErrors}
	if o.Status.BackendType != "" && o.Status.BackendType != o.Spec.Type {
		b.InUse = o.Status.BackendType
	}
	for _, c := range o.Status.Conditions {
		b.Conditions = append(b.Conditions, Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime})
	}
	if d := o.Status.Delivery; d != nil {
		b.Delivery = &Delivery{Delivery: *d, Oldest: timeOf(d.OldestWaiting), Success: timeOf(d.LastSuccess)}
	}
	b.Trend = f.trend(o)
	for _, e := range f.events(o.Namespace, scope, regards(eventingv1.EventingBackendKind, o.Name)) {
		b.Events = append(b.Events, e.Event)
	}
	return b
}

// isSource reports whether a backend is a queue that is read: its status says so or, while its configuration has errors, the
// configuration.
func isSource(o *eventingv1.EventingBackend) bool {
	says := func(c eventingv1.Condition) bool { return c.Message == eventingv1.SourceOnlyMessage }
	return slices.ContainsFunc(o.Status.Conditions, says) || o.Spec.IsSource()
}

// timeOf returns the time of a status; zero for none.
func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// backendMark returns the state of an EventingBackend that the leader observed, if that is
// of the present generation.
func backendMark(o *eventingv1.EventingBackend) Mark {
	switch {
	case o.Status.EventingReady == nil || o.Status.ObservedGeneration < o.Generation:
		return Mark{Idle, "Not observed yet"}
	case len(o.Status.ValidationErrors) > 0:
		return Mark{Bad, "Invalid"}
	case *o.Status.EventingReady && o.Status.Delivery != nil && o.Status.Delivery.RefusedInARow > 0:
		return Mark{Warning, backendRefuses}
	case *o.Status.EventingReady:
		return Mark{Good, "Ready"}
	}
	return Mark{Bad, "Not ready"}
}
