package view

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The newest Event of the annotator says why a node group is not annotated, until a later Event or later annotations say
// that the problem is over.
func TestReasonsOfNodeGroups(t *testing.T) {
	about := func(kind, reason, word string, age time.Duration) *eventsv1.Event {
		e := told("fleet", reason+word+age.String(), kind, "md", reason, age)
		e.Action, e.Note, e.Type = word, word+": text", "Warning"
		if reason == "CapacityResolved" || reason == "CapacityOverridden" {
			e.Type = "Normal"
		}
		return e
	}
	lost := about("MachineDeployment", "FailedUpdate", "TemplateNotFound", 10*time.Minute)
	repeated := about("MachineDeployment", "FailedUpdate", "InvalidMaxPods", time.Hour)
	repeated.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(now.Add(-time.Minute))}
	for name, tc := range map[string]struct {
		events    []*eventsv1.Event
		annotated time.Duration // before now; 0 for not known
		reason    string
		since     time.Duration
	}{
		"no Event":               {},
		"a problem":              {events: []*eventsv1.Event{lost}, reason: "TemplateNotFound", since: 10 * time.Minute},
		"of another kind":        {events: []*eventsv1.Event{about("MachineSet", "FailedUpdate", "TemplateNotFound", 0)}},
		"of another part":        {events: []*eventsv1.Event{about("MachineDeployment", "SpotInterruption", "FollowInstances", 0)}},
		"resolved":               {events: []*eventsv1.Event{about("MachineDeployment", "CapacityResolved", "Resolved", time.Minute), lost}},
		"again after that":       {events: []*eventsv1.Event{about("MachineDeployment", "CapacityResolved", "Resolved", 20*time.Minute), lost}, reason: "TemplateNotFound", since: 10 * time.Minute},
		"a user's own value":     {events: []*eventsv1.Event{lost, about("MachineDeployment", "CapacityOverridden", "Overridden", 0)}, reason: "TemplateNotFound", since: 10 * time.Minute},
		"annotated before":       {events: []*eventsv1.Event{lost}, annotated: time.Hour, reason: "TemplateNotFound", since: 10 * time.Minute},
		"annotated later":        {events: []*eventsv1.Event{lost}, annotated: time.Minute},
		"repeated later":         {events: []*eventsv1.Event{lost, repeated}, reason: "InvalidMaxPods", since: time.Minute},
		"annotated all the same": {events: []*eventsv1.Event{about("MachineDeployment", "InvalidCapacityAnnotation", "InvalidAnnotation", time.Hour)}, annotated: time.Minute, reason: "InvalidAnnotation", since: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			group := NodeGroup{Kind: "MachineDeployment", Namespace: "fleet", Name: "md", Cluster: "prod"}
			if tc.annotated != 0 {
				group.Annotated = now.Add(-tc.annotated)
			}
			f := facts()
			f.NodeGroups, f.Events = []NodeGroup{group}, tc.events
			want := group
			if tc.reason != "" {
				want.Reason, want.Note, want.Since = tc.reason, "text", now.Add(-tc.since)
			}
			g.Expect(f.nodeGroups(Everything())).To(ConsistOf(want))
			g.Expect(f.NodeGroups).To(ConsistOf(group), "facts are shared")
			blind := Everything()
			blind.Events = Namespaces{Names: []string{"other"}}
			g.Expect(f.nodeGroups(blind)).To(ConsistOf(group), "Events are by a right of their own")
		})
	}
}

// A MachineSet is shown by a right of its own, and the Events of a cluster are those of its node groups, too.
func TestMachineSets(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	f.NodeGroups = []NodeGroup{
		{Kind: "MachineDeployment", Namespace: "fleet", Name: "md", Cluster: "prod"},
		{Kind: "MachineSet", Namespace: "fleet", Name: "ms", Cluster: "prod", Desired: 2},
	}
	e := told("fleet", "1", "MachineSet", "ms", "FailedUpdate", 0)
	e.Type, e.Action, e.Note = "Warning", "RegionUnknown", "RegionUnknown: no region"
	f.Events = []*eventsv1.Event{e}
	page, _ := ClusterDetail(f, Everything(), cluster("prod"))
	g.Expect(data[GroupRow](page, "groups")).To(ConsistOf(
		HaveField("Kind", "MachineDeployment"),
		And(HaveField("Kind", "MachineSet"), HaveField("Reason", "RegionUnknown"), HaveField("Note", "no region"))))
	g.Expect(data[Event](page, "events")).To(ConsistOf(HaveField("Reason", "FailedUpdate")))
	scope := Everything()
	scope.MachineSets = Namespaces{}
	page, _ = ClusterDetail(f, scope, cluster("prod"))
	g.Expect(data[GroupRow](page, "groups")).To(ConsistOf(HaveField("Kind", "MachineDeployment")))
	g.Expect(cardOf(Clusters(f, scope, Query{}), "prod").Nodes).To(HaveField("Groups", 1))
	scope.MachineSets, scope.NodeGroups = Namespaces{All: true}, Namespaces{}
	page, _ = ClusterDetail(f, scope, cluster("prod"))
	g.Expect(data[GroupRow](page, "groups")).To(ConsistOf(HaveField("Kind", "MachineSet")))
}

// Of two Events of the same time the same one is taken always: the caches have no order.
func TestEventsOfTheSameTime(t *testing.T) {
	g := NewWithT(t)
	event := func(name, action string) *eventsv1.Event {
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, CreationTimestamp: *ago(time.Minute)}, Type: "Warning", Reason: "ReconcileError", Action: action,
			Regarding: corev1.ObjectReference{Kind: "MachineDeployment", Namespace: "fleet", Name: "md"},
		}
	}
	a, b := event("a", "TemplateNotFound"), event("b", "InvalidAnnotation")
	f := &Facts{Now: now, NodeGroups: []NodeGroup{{Kind: "MachineDeployment", Namespace: "fleet", Name: "md"}}}
	for _, order := range [][]*eventsv1.Event{{a, b}, {b, a}} {
		f.Events = order
		g.Expect(f.nodeGroups(Everything())).To(ConsistOf(HaveField("Reason", "InvalidAnnotation")))
	}
}
