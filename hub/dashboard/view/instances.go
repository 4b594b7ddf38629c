package view

import (
	"cmp"
	"slices"

	eventsv1 "k8s.io/api/events/v1"
)

// InstancesPath is the page of machines and pools, and of the events about them.
const InstancesPath = "/instances"

// actionInstances is the action of the Events of hub/instancestate.
const actionInstances = "FollowInstances"

const (
	// maxInstanceEvents is how many Events about instances are shown, and maxSources how many queues.
	maxInstanceEvents, maxSources = 20, 20
	// perInstances is how many machines and pools the page shows at once.
	perInstances = 40
	// noState is the state of the filter for those without a label.
	noState = "No event yet"
)

// instanceStates are the states of the filter: the values of the labels, worst first.
var instanceStates = []string{
	"spot-interruption-terminate", "spot-interruption-stop", "spot-interruption-hibernate", "capacity-reservation-interruption", "launch-failed", "terminate-failed",
	"rebalance-recommended", "scheduled-maintenance", "terminating", "shutting-down", "stopping", "stopped",
	"pending", "launching", "warm-pool", "running", "launched", "terminated", noState,
}

// InstanceEvent is an Event about instances, with its object.
type InstanceEvent struct {
	Event
	Kind, Object string
	// Cluster that the object belongs to, and its page; empty when it is not known.
	Cluster, ClusterLink string
}

// MachineRow is a machine or pool in the list.
type MachineRow struct {
	InstanceRow
	// In is the cluster that it belongs to, and ClusterLink its page; empty when the viewer may not see it.
	In, ClusterLink string
}

// InstancesFrame is the frame of the page of machines.
type InstancesFrame struct {
	Filters Filters
}

// InstancesSummary counts machines and pools by their labels.
type InstancesSummary struct {
	Instances int
	// Leaving are those that are terminating, interrupted or failed.
	Leaving int
	Counts  []Count
	Hidden  Hidden
}

// InstanceEvents returns the page of machines and pools that are leaving or failed, worst first, of the queues with their events,
// and of the newest Events. With a state in the filter it has those in that state.
func InstanceEvents(f *Facts, scope Scope, q Query) Page {
	of := f.fleet(scope)
	if !slices.ContainsFunc(f.Instances, func(i Instances) bool { return i.State == q.State && scope.seesInstances(&i) }) { // AWS may add states.
		q = q.among(instanceStates)
	}
	summary := InstancesSummary{Hidden: hiddenOf(scope.instances(), scope.managedPools())}
	marks, namespaces := map[Mark]int{}, map[string]bool{}
	clusters := map[Instances]Cluster{} // by kind, namespace and name
	var found []MachineRow
	for n := range f.Instances {
		i := &f.Instances[n]
		if !scope.seesInstances(i) {
			continue
		}
		mark := f.machineMark(i)
		summary.Instances++
		if mark.Tone <= Warning {
			summary.Leaving++
		}
		state := cmp.Or(i.State, noState)
		marks[Mark{instanceMark(i.State).Tone, state}]++
		namespaces[i.Namespace] = true
		c := owned(i.Namespace, i.Cluster)
		clusters[Instances{Kind: i.Kind, Namespace: i.Namespace, Name: i.Name}] = c
		if q.inNamespace(i.Namespace) && (q.State == state || q.State == "" && (mark.Tone <= Warning || q.Search != "")) &&
			q.words().instance(i) {
			row := MachineRow{InstanceRow: InstanceRow{*i, mark}, In: c.String()}
			row.ClusterLink = of.linkTo(c)
			found = append(found, row)
		}
	}
	slices.SortStableFunc(found, func(a, b MachineRow) int {
		return cmp.Or(worse(a.Mark.Tone, b.Mark.Tone), a.Due.Compare(b.Due), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	summary.Counts = counted(marks, func(m Mark) string { return Query{State: m.Word}.At(InstancesPath) })

	filters := Filters{Query: q, Action: InstancesPath, What: "machines", Namespaces: sorted(namespaces), States: instanceStates}
	page := Page{Template: "instances", Title: "Instances", Frame: InstancesFrame{Filters: filters}}
	page.Blocks = append(page.Blocks, Block{ID: "instances-summary", List: "summary", Template: "instances-summary", Data: summary})
	shown, pager := paged(found, q, InstancesPath, "machines", perInstances)
	for _, r := range shown {
		page.Blocks = append(page.Blocks, Block{ID: "instance/" + r.Kind + "/" + r.Namespace + "/" + r.Name, List: "machines", Template: "machine-row", Data: r})
	}
	if all := scope.machines(); len(found) == 0 {
		page.Blocks = append(page.Blocks, filters.empty("machines", "empty-row", machineColumns, all.in, all.need, "No machine is leaving or failed."))
	}
	page.Blocks = append(page.Blocks, Block{ID: "machines-pager", List: "pager", Template: "pager-block", Data: pager})
	page.Blocks = append(page.Blocks, f.sources(scope)...)
	return Page{Template: page.Template, Title: page.Title, Frame: page.Frame, Blocks: append(page.Blocks, of.instanceEvents(q, clusters)...)}
}

// linkTo returns the page of a cluster; empty when it does not exist or the viewer may not see it.
func (f *fleet) linkTo(c Cluster) string {
	if !f.sees(c) {
		return ""
	}
	return clusterPath(c)
}

// sources returns the blocks of the queues with events of instances.
func (f *Facts) sources(scope Scope) []Block {
	var all []Backend
	for i := range f.Backends {
		if b := &f.Backends[i]; scope.Backends.Has(b.Namespace) {
			if shown := f.backend(b, scope); shown.Source {
				all = append(all, shown)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Backend) int {
		return cmp.Or(worse(a.Mark.Tone, b.Mark.Tone), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var blocks []Block
	for _, b := range all[:min(len(all), maxSources)] {
		b.Events, b.Conditions = nil, nil
		blocks = append(blocks, Block{ID: "source/" + b.Namespace + "/" + b.Name, List: "sources", Template: "source-row", Data: b})
	}
	if more := len(all) - len(blocks); more > 0 {
		blocks = append(blocks, Block{ID: "sources-more", List: "sources", Template: "machines-more", Data: MoreRows{Columns: sourceColumns, N: more, Link: BackendsPath}})
	}
	if len(all) == 0 {
		blocks = append(blocks, empty("sources", "empty-row", sourceColumns, scope.Backends, NeedBackends, Query{}, "No EventingBackend of type sqs has the role source."))
	}
	return blocks
}

// sourceColumns is the number of columns of the table of queues.
const sourceColumns = 5

// instanceEvents returns the blocks of the newest Events about instances.
func (f *fleet) instanceEvents(q Query, clusters map[Instances]Cluster) []Block {
	type named struct {
		name string
		InstanceEvent
	}
	var events []named
	for _, e := range f.Events {
		if e.Action != actionInstances || !f.scope.Events.Has(e.Namespace) {
			continue
		}
		shown := f.instanceEvent(e, clusters)
		if q.inNamespace(e.Namespace) && q.finds(shown.Object, shown.Cluster, shown.Note) {
			events = append(events, named{e.Namespace + "/" + e.Name, shown})
		}
	}
	slices.SortFunc(events, func(a, b named) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.name, b.name)) })
	var blocks []Block
	for _, e := range events[:min(len(events), maxInstanceEvents)] {
		blocks = append(blocks, Block{ID: "event/" + e.name, List: "events", Template: "instance-event", Data: e.InstanceEvent})
	}
	if more := len(events) - len(blocks); more > 0 {
		blocks = append(blocks, Block{ID: "events-more", List: "events", Template: "events-more", Data: more})
	}
	if len(events) == 0 {
		blocks = append(blocks, empty("events", "empty-item", 0, f.scope.Events, NeedEvents, q, "No event from AWS about instances in the last hour."))
	}
	return blocks
}

func (f *fleet) instanceEvent(e *eventsv1.Event, clusters map[Instances]Cluster) InstanceEvent {
	t := InstanceEvent{Event: eventOf(e), Kind: e.Regarding.Kind, Object: e.Regarding.Namespace + "/" + e.Regarding.Name}
	c, of := clusters[Instances{Kind: e.Regarding.Kind, Namespace: e.Regarding.Namespace, Name: e.Regarding.Name}]
	if !of && e.Regarding.Kind == "Cluster" {
		c, of = owned(e.Regarding.Namespace, e.Regarding.Name), true
	}
	if of {
		t.Cluster, t.ClusterLink = c.String(), f.linkTo(c)
	}
	return t
}
