package view

import (
	"cmp"
	"slices"

	eventsv1 "k8s.io/api/events/v1"
)

// InstancesPath is the page of what AWS said of instances.
const InstancesPath = "/instances"

// actionInstances stands in the Events that hub/instancestate tells.
const actionInstances = "FollowInstances"

// maxTold is how many Events of instances are shown.
const maxTold = 200

// instanceReasons can be filtered by: those of hub/instancestate, worst first.
var instanceReasons = []string{
	"SpotInterruption", "ScalingActivityFailed", "ScheduledMaintenance", "RebalanceRecommended", "InstanceStateChanged",
	"ConflictingWriter", "DeadLettersPresent", "MalformedMessage", "ForeignEvent",
}

// Told is an Event of instances, with the object that it is of.
type Told struct {
	Event
	Kind, Object string
	// Cluster that the object belongs to, and its page; empty where that is not known.
	Cluster, ClusterLink string
}

// InstancesFrame is what stands around the Events.
type InstancesFrame struct {
	Filters Filters
}

// InstancesSummary counts machines and pools by what their labels say.
type InstancesSummary struct {
	Instances int
	Counts    []Count
	// Need is the right that is missing to count them.
	Need string
}

// InstanceEvents is the page of what AWS said of instances in the last hour, newest first.
func InstanceEvents(f *Facts, scope Scope, q Query) Page {
	summary := InstancesSummary{}
	if scope.Instances.Empty() {
		summary.Need = NeedInstances
	}
	marks := map[Mark]int{}
	clusters := map[Instances]Cluster{} // by kind, namespace and name
	for _, i := range f.Instances {
		if !scope.Instances.Has(i.Namespace) {
			continue
		}
		summary.Instances++
		marks[instanceMark(i.State)]++
		clusters[Instances{Kind: i.Kind, Namespace: i.Namespace, Name: i.Name}] = owned(i.Namespace, i.Cluster)
	}
	summary.Counts = counted(marks, func(Mark) string { return "" })

	known, namespaces := f.standings(), map[string]bool{}
	var told []toldEvent
	for _, e := range f.Events {
		if e.Action != actionInstances || !scope.Events.Has(e.Namespace) {
			continue
		}
		namespaces[e.Namespace] = true
		t := toldOf(e, scope, known, clusters)
		if q.inNamespace(e.Namespace) && q.inState(t.Reason) && q.finds(t.Object, t.Cluster, t.Note) {
			told = append(told, t)
		}
	}
	slices.SortFunc(told, func(a, b toldEvent) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.name, b.name)) })
	page := Page{Template: "instances", Title: "Instances", Frame: InstancesFrame{Filters: Filters{
		Query: q, Action: InstancesPath, Namespaces: sorted(namespaces), States: instanceReasons,
	}}}
	page.Blocks = append(page.Blocks, Block{ID: "instances-summary", List: "summary", Template: "instances-summary", Data: summary})
	for _, t := range told[:min(len(told), maxTold)] {
		page.Blocks = append(page.Blocks, Block{ID: "event/" + t.name, List: "events", Template: "told", Data: t.Told})
	}
	if len(told) == 0 {
		page.Blocks = append(page.Blocks, empty("events", "empty-item", 0, scope.Events, NeedEvents, q,
			"AWS said nothing of instances in the last hour, or no EventingBackend of type sqs has the role source."))
	}
	return page
}

type toldEvent struct {
	name string
	Told
}

func toldOf(e *eventsv1.Event, scope Scope, known map[Cluster]standing, clusters map[Instances]Cluster) toldEvent {
	t := Told{Event: eventOf(e), Kind: e.Regarding.Kind, Object: e.Regarding.Namespace + "/" + e.Regarding.Name}
	c, of := clusters[Instances{Kind: e.Regarding.Kind, Namespace: e.Regarding.Namespace, Name: e.Regarding.Name}]
	if !of && e.Regarding.Kind == "Cluster" {
		c, of = owned(e.Regarding.Namespace, e.Regarding.Name), true
	}
	if of {
		t.Cluster = c.String()
		if scope.Clusters.Has(c.Namespace) && known[c].Known {
			t.ClusterLink = clusterPath(c)
		}
	}
	return toldEvent{e.Namespace + "/" + e.Name, t}
}
