package view

import (
	"cmp"
	"slices"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
)

// kindMachineSet is a kind of node group with a right of its own.
const kindMachineSet = "MachineSet"

// groupReasons are the reasons of the hub's Events about the annotations of a node group that
// say what is wrong, or that nothing is any more.
var groupReasons = []string{"FailedUpdate", "ReconcileError", "InvalidCapacityAnnotation", "CapacityResolved"}

// annotatedAnyway are the problems with which a node group is annotated all the same.
var annotatedAnyway = []string{"InvalidAnnotation", "InvalidMaxPods", "UnknownArchitecture", "ConflictingArchitectures", "Undone"}

// seesGroup reports whether the viewer may list a node group.
func (s Scope) seesGroup(g NodeGroup) bool {
	if g.Kind == kindMachineSet {
		return s.MachineSets.Has(g.Namespace)
	}
	return s.NodeGroups.Has(g.Namespace)
}

// nodeGroups returns the node groups that the viewer may list, each with its present problem.
func (f *Facts) nodeGroups(scope Scope) []NodeGroup {
	type object struct{ kind, namespace, name string }
	newest := map[object]*eventsv1.Event{}
	for _, e := range f.Events {
		if !slices.Contains(groupReasons, e.Reason) || !scope.Events.Has(e.Namespace) {
			continue
		}
		of := object{e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name}
		if last := newest[of]; last == nil || cmp.Or(eventOf(last).At.Compare(eventOf(e).At), cmp.Compare(last.Name, e.Name)) < 0 {
			newest[of] = e
		}
	}
	var all []NodeGroup
	for _, g := range f.NodeGroups {
		if scope.seesGroup(g) {
			if e := newest[object{g.Kind, g.Namespace, g.Name}]; e != nil {
				g.problem(e)
			}
			all = append(all, g)
		}
	}
	return all
}

// problem sets the problem that the newest Event reports, unless it is over: a later Event says
// so. While no replica led, none could; then annotations that were written later show it.
func (g *NodeGroup) problem(newest *eventsv1.Event) {
	event := eventOf(newest)
	if !event.Warning || g.Annotated.After(event.At) && !slices.Contains(annotatedAnyway, newest.Action) {
		return
	}
	// The word is the action of the Event, and precedes its message.
	g.Reason, g.Note, g.Since = newest.Action, strings.TrimPrefix(newest.Note, newest.Action+": "), event.At
}
