package view

import (
	"cmp"
	"slices"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// maxEvents of a cluster that are shown.
const maxEvents = 50

// ClusterFrame is what stands around a cluster's lists.
type ClusterFrame struct {
	Cluster Cluster
}

// ClusterHead is a cluster's own state.
type ClusterHead struct {
	Card
	Server     string
	Conditions []Condition
	Kinds      []capstanv1.WatchedKind
}

// App is an application in a cluster, as a Pipeline shows it.
type App struct {
	Kind, Namespace, Name               string
	Pipeline, PipelineLink, Environment string
	Target
}

// Event is what the hub told of an object.
type Event struct {
	Warning      bool
	Reason, Note string
	// At is when it was last told, and Times how often.
	At    time.Time
	Times int32
}

// ClusterDetail is the page of one; false where there is none that the viewer may see.
func ClusterDetail(f *Facts, scope Scope, c Cluster) (Page, bool) {
	i := slices.IndexFunc(f.Connections, func(o capstanv1.ClusterConnection) bool { return clusterOf(&o) == c })
	if i < 0 || !scope.Clusters.Has(f.Connections[i].Namespace) {
		return Page{}, false
	}
	connection := &f.Connections[i]
	known := f.standings()
	head := ClusterHead{
		Card: f.card(connection, known, f.tally(known, scope)), Server: connection.Status.Server,
		Conditions: conditions(connection.Status.Conditions), Kinds: connection.Status.Kinds,
	}
	page := Page{Template: "cluster", Title: c.String(), Frame: ClusterFrame{Cluster: c}}
	page.Blocks = append(page.Blocks, Block{ID: "head", List: "head", Template: "cluster-head", Data: head})

	runs, promotions := f.inCluster(c, known, scope)
	for _, a := range runs {
		page.Blocks = append(page.Blocks, Block{ID: "app/" + a.Pipeline + "/" + a.Environment + "/" + a.Namespace, List: "apps", Template: "app", Data: a})
	}
	if len(runs) == 0 {
		page.Blocks = append(page.Blocks, empty("apps", "empty-row", appColumns, scope.Pipelines, NeedPipelines, Query{}, "No Pipeline follows an application here."))
	}
	page.Blocks = append(page.Blocks, entries(promotions[:min(len(promotions), maxEntries)], scope)...)
	if len(promotions) == 0 {
		page.Blocks = append(page.Blocks, empty("entries", "empty-item", 0, scope.Promotions, NeedPromotions, Query{}, "Nothing was promoted into it yet."))
	}
	page.Blocks = append(page.Blocks, f.machinesOf(c, scope)...)
	connects, itself := regards(capstanv1.ClusterConnectionKind, connection.Name), regards(c.Kind, c.Name)
	belongs := f.belongs(c)
	told := f.events(connection.Namespace, scope, func(e *eventsv1.Event) bool { return connects(e) || itself(e) || belongs(e) })
	for _, e := range told {
		page.Blocks = append(page.Blocks, Block{ID: "event/" + e.name, List: "events", Template: "event", Data: e.Event})
	}
	if len(told) == 0 {
		page.Blocks = append(page.Blocks, empty("events", "empty-item", 0, scope.Events, NeedEvents, Query{}, "Kubernetes keeps Events for an hour; there is none."))
	}
	return page, true
}

// appColumns of the table of applications.
const appColumns = 5

// inCluster are the applications in a cluster, worst first, and the promotions into
// environments that it is part of.
func (f *Facts) inCluster(c Cluster, known map[Cluster]standing, scope Scope) ([]App, []*capstanv1.Promotion) {
	type into struct {
		uid, environment string
	}
	var apps []App
	touching, listed := map[into]bool{}, map[App]bool{}
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		if !scope.Pipelines.Has(p.Namespace) {
			continue
		}
		for e := range p.Spec.Environments {
			env := p.Spec.Environments[e].Name
			for _, t := range f.placements(p, e, known, scope) {
				if t.Cluster != c {
					continue
				}
				touching[into{string(p.UID), env}] = true
				app := App{
					Kind: p.Spec.AppRef.Kind, Namespace: t.Namespace, Name: p.Spec.AppRef.Name,
					Pipeline: p.Namespace + "/" + p.Name, PipelineLink: pipelinePath(p.Namespace, p.Name), Environment: env,
				}
				if listed[app] { // A target that is named twice is one.
					continue
				}
				listed[app] = true
				app.Target = t.Target
				apps = append(apps, app)
			}
		}
	}
	slices.SortStableFunc(apps, func(a, b App) int {
		return cmp.Or(worse(a.Mark.Tone, b.Mark.Tone), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pipeline, b.Pipeline))
	})
	var promotions []*capstanv1.Promotion
	for i := range f.Promotions {
		p := &f.Promotions[i]
		if scope.Promotions.Has(p.Namespace) && touching[into{string(p.Spec.Pipeline.UID), p.Spec.Environment}] {
			promotions = append(promotions, p)
		}
	}
	slices.SortFunc(promotions, newestFirst)
	return apps, promotions
}

type namedEvent struct {
	name string
	Event
}

// regards is whether an Event is of an object of its namespace.
func regards(kind, name string) func(*eventsv1.Event) bool {
	return func(e *eventsv1.Event) bool { return e.Regarding.Kind == kind && e.Regarding.Name == name }
}

// belongs is whether an Event is of a machine or pool of a cluster.
func (f *Facts) belongs(c Cluster) func(*eventsv1.Event) bool {
	type object struct{ kind, name string }
	its := map[object]bool{}
	for _, i := range f.Instances {
		if owned(i.Namespace, i.Cluster) == c {
			its[object{i.Kind, i.Name}] = true
		}
	}
	return func(e *eventsv1.Event) bool { return its[object{e.Regarding.Kind, e.Regarding.Name}] }
}

// events of a namespace that are wanted, newest first.
func (f *Facts) events(namespace string, scope Scope, wanted func(*eventsv1.Event) bool) []namedEvent {
	if !scope.Events.Has(namespace) {
		return nil
	}
	var all []namedEvent
	for _, e := range f.Events {
		if e.Namespace == namespace && wanted(e) {
			all = append(all, namedEvent{e.Name, eventOf(e)})
		}
	}
	slices.SortFunc(all, func(a, b namedEvent) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.name, b.name)) })
	return all[:min(len(all), maxEvents)]
}

func eventOf(e *eventsv1.Event) Event {
	shown := Event{Warning: e.Type == "Warning", Reason: e.Reason, Note: e.Note, At: e.EventTime.Time, Times: 1}
	if shown.At.IsZero() {
		shown.At = e.CreationTimestamp.Time
	}
	if e.Series != nil {
		shown.At, shown.Times = e.Series.LastObservedTime.Time, e.Series.Count
	}
	return shown
}
