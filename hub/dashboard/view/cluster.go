package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

const (
	// maxEvents of a cluster are shown, maxApps of its applications, worst first, and maxClusterEntries of the promotions into it:
	// the page stays short, and the pages of the Pipelines have all.
	maxEvents, maxApps, maxClusterEntries = 10, 20, 3
)

// ClusterFrame is the frame of a cluster's page.
type ClusterFrame struct {
	Cluster Cluster
	// Of is the Cluster that this GitopsCluster references, and its page; zero for each other cluster.
	Of     Cluster
	OfLink string
}

// ClusterHead is the state of a cluster on its page.
type ClusterHead struct {
	ClusterRow
	Server     string
	Conditions []Condition
	Kinds      []capstanv1.WatchedKind
	// Aliases are the GitopsClusters that reference it.
	Aliases []string
	// PastSince is when this replica began to observe the availability.
	PastSince time.Time
	// Deleting is set when its object is being deleted.
	Deleting bool
	// Command says more about what is wrong; empty if nothing is.
	Command string
}

// App is an application in a cluster, as a target of a Pipeline.
type App struct {
	Kind, Namespace, Name               string
	Pipeline, PipelineLink, Environment string
	Target
}

// Event is an Event of the hub about an object.
type Event struct {
	Warning      bool
	Reason, Note string
	// At is the time of the latest occurrence; Times is the number of occurrences.
	At    time.Time
	Times int32
}

// ClusterDetail returns the page of a cluster; false when it does not exist or the viewer may not see it.
func ClusterDetail(f *Facts, scope Scope, c Cluster) (Page, bool) {
	of := f.fleet(scope)
	frame := ClusterFrame{Cluster: c}
	if actual := f.actual(c); actual != c && of.sees(c) && of.sees(actual) {
		frame.Of, frame.OfLink = actual, clusterPath(actual)
		c = actual
	}
	if !of.sees(c) {
		return Page{}, false
	}
	page := Page{Template: "cluster", Title: frame.Cluster.String(), Frame: frame}
	page.Blocks = append(page.Blocks, Block{ID: "head", List: "head", Template: "cluster-head", Data: of.head(c)})
	page.Blocks = append(page.Blocks, of.runs(c)...)
	if !c.Local() { // No machine belongs to the management cluster, and its Events are on the pages of their objects.
		page.Blocks = append(page.Blocks, f.machinesOf(c, scope)...)
		page.Blocks = append(page.Blocks, of.eventsOf(c)...)
	}
	return page, true
}

// head returns the state of a cluster.
func (f *fleet) head(c Cluster) ClusterHead {
	head := ClusterHead{ClusterRow: f.row(c), PastSince: f.PastSince}
	head.labels = nil
	if connection := f.connections[c]; connection != nil && f.scope.Clusters.Has(c.Namespace) {
		head.Server, head.Conditions, head.Kinds = connection.Status.Server, conditions(connection.Status.Conditions), connection.Status.Kinds
	}
	head.Command = f.command(c, head.Health)
	if o, found := f.object(c); found {
		head.Deleting = o.Deleting && f.scope.SeesObject(c)
	}
	for i := range f.Objects {
		if o := &f.Objects[i]; !o.Of.Local() && o.Of == c && f.scope.SeesObject(o.Cluster) {
			head.Aliases = append(head.Aliases, o.Cluster.String())
		}
	}
	return head
}

// command returns the command that says more about what is wrong with a cluster; empty if nothing is, or the page says all.
func (f *fleet) command(c Cluster, h Health) string {
	if h.well() {
		return ""
	}
	switch h.Worst().Name {
	case aspectNames[aspectConnection], aspectNames[aspectCredential]:
		if connection := f.connections[c]; connection != nil {
			return "kubectl describe clusterconnection -n " + connection.Namespace + " " + connection.Name
		}
	case aspectNames[aspectApplications]:
		return "capstan status -n " + cmp.Or(f.failingIn(c), c.Namespace)
	case aspectNames[aspectNodes]:
		for _, g := range f.nodeGroups(f.scope) {
			if owned(g.Namespace, g.Cluster) == c && groupMark(g).Tone < Good {
				if g.Kind == "MachineDeployment" && g.Reason != "" {
					return "capstan explain machinedeployment " + g.Namespace + "/" + g.Name
				}
				return "kubectl describe " + strings.ToLower(g.Kind) + " -n " + g.Namespace + " " + g.Name
			}
		}
	case aspectNames[aspectInstances]:
		for n := range f.Instances {
			if i := &f.Instances[n]; owned(i.Namespace, i.Cluster) == c && f.scope.seesInstances(i) && f.machineMark(i).Tone <= Warning {
				return "kubectl describe " + strings.ToLower(i.Kind) + " -n " + i.Namespace + " " + i.Name
			}
		}
	}
	return ""
}

// failingIn returns the namespace of the first Pipeline, worst first, with an application in a cluster.
func (f *fleet) failingIn(c Cluster) string {
	apps, _ := f.inCluster(c, f.known, f.scope)
	if len(apps) == 0 {
		return ""
	}
	namespace, _, _ := strings.Cut(apps[0].Pipeline, "/")
	return namespace
}

// runs returns the blocks of the applications in a cluster, and of the promotions into it.
func (f *fleet) runs(c Cluster) []Block {
	var blocks []Block
	apps, promotions := f.inCluster(c, f.known, f.scope)
	for _, a := range apps[:min(len(apps), maxApps)] {
		blocks = append(blocks, Block{ID: "app/" + a.Pipeline + "/" + a.Environment + "/" + a.Namespace, List: "apps", Template: "app", Data: a})
	}
	if more := len(apps) - maxApps; more > 0 {
		blocks = append(blocks, Block{ID: "apps-more", List: "apps", Template: "apps-more", Data: more})
	}
	if len(apps) == 0 {
		blocks = append(blocks, empty("apps", "empty-row", appColumns, f.scope.Pipelines, NeedPipelines, Query{}, "No Pipeline has a target in this cluster."))
	}
	blocks = append(blocks, f.entries(promotions[:min(len(promotions), maxClusterEntries)], f.scope)...)
	if len(promotions) == 0 {
		blocks = append(blocks, empty("entries", "empty-item", 0, f.scope.Promotions, NeedPromotions, Query{}, "No revision was promoted into this cluster yet."))
	}
	return blocks
}

// eventsOf returns the blocks of the Events about a cluster, its connection, its node groups and its machines.
func (f *fleet) eventsOf(c Cluster) []Block {
	itself, belongs := regards(c.Kind, c.Name), f.belongs(c)
	connects := func(*eventsv1.Event) bool { return false }
	if connection := f.connections[c]; connection != nil {
		connects = regards(capstanv1.ClusterConnectionKind, connection.Name)
	}
	events := f.events(c.Namespace, f.scope, func(e *eventsv1.Event) bool { return connects(e) || itself(e) || belongs(e) })
	var blocks []Block
	for _, e := range events {
		blocks = append(blocks, Block{ID: "event/" + e.name, List: "events", Template: "event", Data: e.Event})
	}
	if len(events) == 0 {
		blocks = append(blocks, empty("events", "empty-item", 0, f.scope.Events, NeedEvents, Query{}, "No Event in the last hour: Kubernetes keeps Events for one hour."))
	}
	return blocks
}

// appColumns is the number of columns of the table of applications.
const appColumns = 5

// inCluster returns the applications in a cluster, worst first, and the promotions into
// the environments that have a target in it.
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
				if f.actual(t.Cluster) != f.actual(c) {
					continue
				}
				touching[into{string(p.UID), env}] = true
				app := App{
					Kind: p.Spec.AppRef.Kind, Namespace: t.Namespace, Name: p.Spec.AppRef.Name,
					Pipeline: p.Namespace + "/" + p.Name, PipelineLink: pipelinePath(p.Namespace, p.Name), Environment: env,
				}
				if listed[app] { // A target that a spec names twice is listed once.
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

// regards matches Events about an object in the namespace of the Event.
func regards(kind, name string) func(*eventsv1.Event) bool {
	return func(e *eventsv1.Event) bool { return e.Regarding.Kind == kind && e.Regarding.Name == name }
}

// belongs matches Events about the node groups, machines and pools of a cluster.
func (f *Facts) belongs(c Cluster) func(*eventsv1.Event) bool {
	type object struct{ kind, name string }
	its := map[object]bool{}
	for _, i := range f.Instances {
		if owned(i.Namespace, i.Cluster) == c {
			its[object{i.Kind, i.Name}] = true
		}
	}
	for _, g := range f.NodeGroups {
		if owned(g.Namespace, g.Cluster) == c {
			its[object{g.Kind, g.Name}] = true
		}
	}
	return func(e *eventsv1.Event) bool { return its[object{e.Regarding.Kind, e.Regarding.Name}] }
}

// events returns the Events of a namespace that match, newest first, at most maxEvents.
func (f *Facts) events(namespace string, scope Scope, match func(*eventsv1.Event) bool) []namedEvent {
	if !scope.Events.Has(namespace) {
		return nil
	}
	var all []namedEvent
	for _, e := range f.Events {
		if e.Namespace == namespace && match(e) {
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
