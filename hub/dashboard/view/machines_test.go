package view

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// machined returns facts with machines of two clusters, one of them in a namespace of its own.
func machined() *Facts {
	f := facts()
	f.NodeGroups = []NodeGroup{
		{Kind: "MachineDeployment", Namespace: "fleet", Name: "md", Cluster: "prod", Ready: 3, Desired: 3, Capacity: []string{"cpu: 8"}},
		{Kind: "MachineDeployment", Namespace: "fleet", Name: "gpu", Cluster: "prod", Ready: 1, Desired: 2},
		{Kind: "MachinePool", Namespace: "fleet", Name: "empty", Cluster: "prod", Desired: 4},
		{Kind: "MachineDeployment", Namespace: "secret-ns", Name: "secret-group", Cluster: "prod", Desired: 9},
	}
	f.Instances = []Instances{
		{Kind: "AWSMachine", Namespace: "fleet", Name: "a", Cluster: "prod", State: "running", Instance: "i-1"},
		{Kind: "AWSMachine", Namespace: "fleet", Name: "b", Cluster: "prod", State: "spot-interruption-terminate", Instance: "i-2"},
		{Kind: "AWSMachinePool", Namespace: "fleet", Name: "pool", Cluster: "dev", State: "launch-failed"},
		{Kind: "AWSMachine", Namespace: "secret-ns", Name: "secret-machine", Cluster: "prod", State: "terminate-failed"},
	}
	f.Events = []*eventsv1.Event{
		told("fleet", "1", "AWSMachine", "b", "SpotInterruption", time.Minute),
		told("fleet", "2", "AWSMachine", "a", "InstanceStateChanged", 2*time.Minute),
		told("fleet", "3", "Cluster", "staging", "InstanceStateChanged", 3*time.Minute),
		told("secret-ns", "4", "AWSMachine", "secret-machine", "ScalingActivityFailed", 0),
	}
	return f
}

func told(namespace, name, kind, object, reason string, age time.Duration) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Action: actionInstances, Reason: reason, Type: "Normal",
		EventTime: metav1.NewMicroTime(now.Add(-age)), Regarding: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: object},
	}
}

var fleetOnly = Namespaces{Names: []string{"fleet"}}

// The states of a cluster's machines in AWS are on its page, worst first, next to its node
// groups, and its card counts them.
func TestMachines(t *testing.T) {
	g := NewWithT(t)
	f := machined()
	page, ok := ClusterDetail(f, Everything(), cluster("prod"))
	g.Expect(ok).To(BeTrue())
	groups := data[GroupRow](page, "groups")
	g.Expect(groups).To(HaveLen(3))
	g.Expect(groups[0]).To(And(HaveField("Name", "empty"), HaveField("Mark", Mark{Bad, "None ready"})))
	g.Expect(groups[1].Mark).To(Equal(Mark{Warning, "Some not ready"}))
	g.Expect(groups[2]).To(And(HaveField("Mark", Mark{Good, "Ready"}), HaveField("Capacity", []string{"cpu: 8"})))
	instances := data[InstanceRow](page, "machines")
	g.Expect(instances).To(HaveLen(2))
	g.Expect(instances[0]).To(And(HaveField("Instance", "i-2"), HaveField("Mark", Mark{Bad, "spot-interruption-terminate"})))
	g.Expect(instances[1].Mark).To(Equal(Mark{Good, "running"}))
	g.Expect(data[Event](page, "events")).To(HaveLen(2), "those of its machines")
	g.Expect(cardOf(Clusters(f, Everything(), Query{}), "prod").Nodes).To(Equal(Nodes{Groups: 3, Empty: 1, Ready: 4, Desired: 9, Instances: 2, Failing: 1}))
	g.Expect(cardOf(Clusters(f, Everything(), Query{}), "dev").Nodes).To(Equal(Nodes{Instances: 1, Failing: 1}))

	blind := Everything()
	blind.NodeGroups, blind.Instances = Namespaces{}, Namespaces{}
	page, _ = ClusterDetail(f, blind, cluster("prod"))
	g.Expect(data[Empty](page, "groups")[0].Need).To(Equal(NeedNodeGroups))
	g.Expect(data[Empty](page, "machines")[0].Need).To(Equal(NeedInstances))
	g.Expect(cardOf(Clusters(f, blind, Query{}), "prod").Nodes).To(BeZero())
}

// Each value of the state labels has a tone; terminating and failed instances are counted.
func TestInstanceMarks(t *testing.T) {
	g := NewWithT(t)
	for word, tone := range map[string]Tone{
		"": Idle, "running": Good, "launched": Good, "pending": Busy, "launching": Busy, "stopping": Warning, "shutting-down": Warning,
		"rebalance-recommended": Warning, "spot-interruption-hibernate": Bad, "launch-failed": Bad, "terminated": Idle, "word-of-tomorrow": Idle,
	} {
		g.Expect(instanceMark(word).Tone).To(Equal(tone), word)
	}
}

// A notice is urgent until its due time.
func TestDueTimePasses(t *testing.T) {
	g := NewWithT(t)
	f := machined()
	f.Instances[1].Due = now.Add(2 * time.Minute)
	g.Expect(f.machineMark(&f.Instances[1])).To(Equal(Mark{Bad, "spot-interruption-terminate"}))
	f.Now = now.Add(2 * time.Minute)
	g.Expect(f.machineMark(&f.Instances[1])).To(Equal(Mark{Warning, "spot-interruption-terminate, due time passed"}))
	row, _ := healthOf(f, Everything(), "prod")
	g.Expect(row.Health[aspectInstances].Mark).To(Equal(Mark{Warning, instancesLeave}))
	g.Expect(data[MachineRow](InstanceEvents(f, Everything(), Query{State: "spot-interruption-terminate"}), "machines")).To(HaveLen(1), "it is found by its label")
}

// Events about instances are sorted newest first and have their cluster.
func TestInstanceEvents(t *testing.T) {
	g := NewWithT(t)
	f := machined()
	f.Events = append(f.Events, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "other"}, Action: "Promote", Reason: "Promoted"})
	page := InstanceEvents(f, Everything(), Query{})
	events := data[InstanceEvent](page, "events")
	g.Expect(events).To(HaveLen(4))
	g.Expect(events[1]).To(And(HaveField("Object", "fleet/b"), HaveField("Cluster", "fleet/prod"), HaveField("ClusterLink", "/clusters/Cluster/fleet/prod")))
	g.Expect(events[3]).To(HaveField("ClusterLink", "/clusters/Cluster/fleet/staging"), "told of the Cluster, as the object is in it")
	for _, tc := range []struct {
		q                Query
		events, machines int
	}{
		{Query{}, 4, 3}, {Query{State: "spot-interruption-terminate"}, 4, 1}, {Query{State: "running"}, 4, 1}, {Query{State: "nonsense"}, 4, 3},
		{Query{Search: "PROD"}, 3, 3}, {Query{Namespace: "fleet"}, 3, 2},
	} {
		page := InstanceEvents(f, Everything(), tc.q)
		g.Expect(data[InstanceEvent](page, "events")).To(HaveLen(tc.events), "%+v", tc.q)
		g.Expect(data[MachineRow](page, "machines")).To(HaveLen(tc.machines), "%+v", tc.q)
	}

	scope := Scope{Events: fleetOnly, Instances: fleetOnly}
	page = InstanceEvents(f, scope, Query{})
	said, err := json.Marshal(page)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(said)).NotTo(ContainSubstring("secret"))
	g.Expect(data[InstancesSummary](page, "summary")[0].Instances).To(Equal(3))
	g.Expect(data[InstanceEvent](page, "events")[0].ClusterLink).To(BeEmpty(), "who may not see clusters is given no way to them")
	page = InstanceEvents(f, Scope{}, Query{})
	g.Expect(data[InstancesSummary](page, "summary")[0]).To(And(HaveField("Instances", 0), HaveField("Hidden.Limits", HaveLen(1)), HaveField("Counts", BeEmpty())))
	g.Expect(data[Empty](page, "events")[0].Need).To(Equal(NeedEvents))
}

// The page of machines has each queue that the hub reads, also before it was read and while its configuration has errors.
func TestSources(t *testing.T) {
	g := NewWithT(t)
	f := machined()
	queue := func(name, role string, status eventingv1.EventingBackendStatus) eventingv1.EventingBackend {
		return eventingv1.EventingBackend{
			ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name}, Status: status,
			Spec: eventingv1.EventingBackendSpec{Type: "sqs", Config: []eventingv1.ConfigEntry{{"queueUrl": {Raw: []byte(`"q"`)}}, {"role": {Raw: []byte(role)}}}},
		}
	}
	f.Backends = []eventingv1.EventingBackend{
		queue("read", `"source"`, eventingv1.EventingBackendStatus{EventingReady: ptr.To(true), Delivery: &eventingv1.Delivery{Waiting: 2}}),
		queue("unread", `"source"`, eventingv1.EventingBackendStatus{}),
		queue("broken", `"source"`, eventingv1.EventingBackendStatus{EventingReady: ptr.To(false), ValidationErrors: []eventingv1.ValidationError{{Config: "queueUrl"}}}),
		queue("sink", `"sink"`, eventingv1.EventingBackendStatus{EventingReady: ptr.To(true)}),
	}
	names := func(scope Scope) []string {
		var all []string
		for _, b := range data[Backend](InstanceEvents(f, scope, Query{}), "sources") {
			all = append(all, b.Name+": "+b.Mark.Word)
		}
		return all
	}
	g.Expect(names(Everything())).To(Equal([]string{"broken: Invalid", "read: Ready", "unread: Not observed yet"}))
	g.Expect(names(Scope{})).To(BeEmpty())

	for n := range maxSources {
		f.Backends = append(f.Backends, queue(fmt.Sprint("more-", n), `"source"`, eventingv1.EventingBackendStatus{}))
		f.Events = append(f.Events, told("fleet", fmt.Sprint("more-", n), "AWSMachine", "a", "InstanceStateChanged", time.Hour))
	}
	page := InstanceEvents(f, Everything(), Query{})
	g.Expect(data[MoreRows](page, "sources")).To(Equal([]MoreRows{{Columns: sourceColumns, N: 3, Link: BackendsPath}}))
	g.Expect(data[int](page, "events")).To(Equal([]int{4 + maxSources - maxInstanceEvents}), "the others are counted")
}

// A backend is shown with the errors of its configuration, and without the configuration.
func TestBackends(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	config := []eventingv1.ConfigEntry{{"password": {Raw: []byte(`"hunter2"`)}}}
	backend := func(namespace, name string, status eventingv1.EventingBackendStatus) eventingv1.EventingBackend {
		return eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: eventingv1.EventingBackendSpec{Type: "nats", Config: config}, Status: status}
	}
	wrong := eventingv1.ValidationError{Type: eventingv1.InvalidDataType, Config: "maxInFlightMessages", Value: "ten", Error: "should be of type int"}
	f.Backends = []eventingv1.EventingBackend{
		backend("apps", "well", eventingv1.EventingBackendStatus{EventingReady: ptr.To(true)}),
		backend("apps", "new", eventingv1.EventingBackendStatus{}),
		backend("apps", "down", eventingv1.EventingBackendStatus{EventingReady: ptr.To(false), Conditions: []eventingv1.Condition{{Type: eventingv1.BackendReadyCondition, Status: "False", Reason: eventingv1.BackendNotReadyReason, Message: "no answer"}},
			Delivery: &eventingv1.Delivery{Waiting: 3, OldestWaiting: &metav1.Time{Time: now}}}),
		backend("other", "invalid", eventingv1.EventingBackendStatus{EventingReady: ptr.To(true), BackendType: "beb", ValidationErrors: []eventingv1.ValidationError{wrong}}),
	}
	f.Events = []*eventsv1.Event{told("apps", "1", "EventingBackend", "down", "MalformedMessage", 0)}
	page := Backends(f, Everything(), Query{})
	backends := data[Backend](page, "entries")
	g.Expect(backends).To(HaveLen(4))
	g.Expect(backends[0]).To(And(HaveField("Name", "down"), HaveField("Mark", Mark{Bad, "Not ready"}), HaveField("Events", HaveLen(1)), HaveField("Conditions", HaveLen(1))))
	g.Expect(*backends[0].Delivery).To(And(HaveField("Waiting", BeEquivalentTo(3)), HaveField("Oldest", now), HaveField("Success", BeZero())))
	g.Expect(backends[0].Source).To(BeFalse())
	g.Expect(backends[1].Delivery).To(BeNil())
	g.Expect(backends[1]).To(And(HaveField("Mark", Mark{Bad, "Invalid"}), HaveField("InUse", "beb"), HaveField("Errors", []eventingv1.ValidationError{wrong})))
	g.Expect(backends[2].Mark).To(Equal(Mark{Good, "Ready"}))
	g.Expect(backends[3].Mark).To(Equal(Mark{Idle, "Not observed yet"}))
	said, err := json.Marshal(page)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(said)).NotTo(ContainSubstring("hunter2"))
	for _, b := range backends {
		g.Expect(backendWords).To(ContainElement(b.Mark.Word), "it can be filtered by")
		g.Expect(data[Backend](Backends(f, Everything(), Query{State: b.Mark.Word}), "entries")).To(HaveLen(1))
	}
	// What is said of the configuration before is not said of a changed one.
	f.Backends[0].Generation, f.Backends[0].Status.ObservedGeneration = 2, 1
	g.Expect(data[Backend](Backends(f, Everything(), Query{Search: "well"}), "entries")[0].Mark).To(Equal(Mark{Idle, "Not observed yet"}))
	f.Backends[0].Status.ObservedGeneration = 2
	g.Expect(data[Backend](Backends(f, Everything(), Query{Search: "well"}), "entries")[0].Mark).To(Equal(Mark{Good, "Ready"}))
	page = Backends(f, Scope{Backends: Namespaces{Names: []string{"apps"}}}, Query{})
	g.Expect(data[Backend](page, "entries")).To(HaveLen(3))
	g.Expect(data[Backend](page, "entries")[0].Events).To(BeEmpty(), "Events are by a right of their own")
	g.Expect(data[BackendsSummary](page, "summary")[0].Backends).To(Equal(3))
}

func TestAnd(t *testing.T) {
	g := NewWithT(t)
	all, ab, bc := Namespaces{All: true}, Namespaces{Names: []string{"a", "b"}}, Namespaces{Names: []string{"b", "c"}}
	g.Expect(all.And(ab)).To(Equal(ab))
	g.Expect(ab.And(all)).To(Equal(ab))
	g.Expect(ab.And(bc)).To(Equal(Namespaces{Names: []string{"b"}}))
}
