package view

import (
	"cmp"
	"slices"

	eventsv1 "k8s.io/api/events/v1"
)

// InstancesPath is the page of Events about instances.
const InstancesPath = "/instances"

// actionInstances is the action of the Events of hub/instancestate.
const actionInstances = "FollowInstances"

// maxInstanceEvents is how many Events about instances are shown.
const maxInstanceEvents = 200

// instanceReasons are the reasons of the filter: those of hub/instancestate, worst first.
var instanceReasons = []string{
	"SpotInterruption", "ScalingActivityFailed", "ScheduledMaintenance", "RebalanceRecommended", "InstanceStateChanged",
	"ConflictingWriter", "DeadLettersPresent", "MalformedMessage", "ForeignEvent",
}

// InstanceEvent is an Event about instances, with its object.
type InstanceEvent struct {
	Event
	Kind, Object string
	// Cluster that the object belongs to, and its page; empty when it is not known.
	Cluster, ClusterLink string
}

// InstancesFrame is the frame of the page of Events about instances.
type InstancesFrame struct {
	Filters Filters
}

// InstancesSummary counts machines and pools by their labels.
type InstancesSummary struct {
	Instances int
	Counts    []Count
	// Need is the missing permission to count them.
	Need string
}

// InstanceEvents returns the page of Events about instances in the last hour, newest first.
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
	var events []instanceEvent
	for _, e := range f.Events {
		if e.Action != actionInstances || !scope.Events.Has(e.Namespace) {
			continue
		}
		namespaces[e.Namespace] = true
		shown := instanceEventOf(e, scope, known, clusters)
		if q.inNamespace(e.Namespace) && q.inState(shown.Reason) && q.finds(shown.Object, shown.Cluster, shown.Note) {
			events = append(events, shown)
		}
	}
	slices.SortFunc(events, func(a, b instanceEvent) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.name, b.name)) })
	page := Page{Template: "instances", Title: "Instances", Frame: InstancesFrame{Filters: Filters{
		Query: q, Action: InstancesPath, Namespaces: sorted(namespaces), States: instanceReasons,
	}}}
	page.Blocks = append(page.Blocks, Block{ID: "instances-summary", List: "summary", Template: "instances-summary", Data: summary})
	for _, e := range events[:min(len(events), maxInstanceEvents)] {
		page.Blocks = append(page.Blocks, Block{ID: "event/" + e.name, List: "events", Template: "instance-event", Data: e.InstanceEvent})
	}
	if len(events) == 0 {
		page.Blocks = append(page.Blocks, empty("events", "empty-item", 0, scope.Events, NeedEvents, q,
			"No event from AWS about instances in the last hour, or no EventingBackend of type sqs has the role source."))
	}
	return page
}

type instanceEvent struct {
	name string
	InstanceEvent
}

func instanceEventOf(e *eventsv1.Event, scope Scope, known map[Cluster]standing, clusters map[Instances]Cluster) instanceEvent {
	t := InstanceEvent{Event: eventOf(e), Kind: e.Regarding.Kind, Object: e.Regarding.Namespace + "/" + e.Regarding.Name}
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
	return instanceEvent{e.Namespace + "/" + e.Name, t}
}
