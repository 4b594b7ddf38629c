package dashboard

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// drawNow is the time of drawn facts. All other times of them are full minutes, and LastContact is fresh or old: no bound, such as
// the end of a slot or of a credential, is within a second after it.
var drawNow = time.Date(2026, 3, 1, 12, 10, 20, 0, time.UTC)

// draw draws facts whose objects have few different names, so that they collide, and statuses that may be incomplete.
type draw struct{ *rapid.T }

func (d draw) of(label string, values ...string) string {
	return rapid.SampledFrom(values).Draw(d.T, label)
}
func (d draw) yes(label string) bool        { return rapid.Bool().Draw(d.T, label) }
func (d draw) n(label string, most int) int { return rapid.IntRange(0, most).Draw(d.T, label) }

func (d draw) time() metav1.Time {
	return metav1.NewTime(drawNow.Truncate(time.Minute).Add(-20 * time.Minute * time.Duration(d.n("age", 200))))
}

func (d draw) maybe() *metav1.Time {
	if d.yes("no time") {
		return nil
	}
	at := d.time()
	return &at
}

func (d draw) namespace() string { return d.of("namespace", "a", "b") }
func (d draw) name() string      { return d.of("name", "a", "b", "empty") }
func (d draw) reason() string    { return d.of("reason", "", "A", "B/c", "<b>") }
func (d draw) version() string   { return d.of("revision", "", "1.0.0", "1.1.0", "<i>") }

func (d draw) ref() *pipelinesv1.CrossNamespaceClusterReference {
	if d.yes("local") {
		return nil
	}
	return &pipelinesv1.CrossNamespaceClusterReference{Kind: d.of("kind", "Cluster", "GitopsCluster", "Secret", "ClusterProfile"), Namespace: d.of("namespace of the cluster", "", "a", "b"), Name: d.name()}
}

func (d draw) environment(p *pipelinesv1.Pipeline, name string, shared bool) {
	if d.yes("no status") {
		if d.yes("a nil status") {
			p.Status.Environments[name] = nil
		}
		return
	}
	s := &pipelinesv1.EnvironmentStatus{}
	for range d.n("targets in the status", 3) {
		t := pipelinesv1.TargetStatus{
			Namespace: d.namespace(), Ready: d.yes("ready"), Revision: d.version(), Reason: d.reason(), Stale: d.yes("stale"), ObservedTime: d.maybe(),
			Standing: pipelinesv1.TargetStanding(d.of("standing", "", "", "", "Lost", "Joining", "Late")),
		}
		t.ClusterAppRef.ClusterRef = d.ref()
		s.Targets = append(s.Targets, t)
	}
	if shared || d.yes("fleet") {
		s.Fleet = &pipelinesv1.FleetStatus{Targets: int32(d.n("targets", 4)), Ready: int32(d.n("ready targets", 4)), Revision: d.version()}
	}
	if d.yes("agreed") {
		s.Agreed = &pipelinesv1.AgreedRevision{Revision: d.version(), Sequence: 1}
	}
	if d.yes("promotion") {
		s.Promotion = &pipelinesv1.PromotionSummary{Name: p.Name + "-" + d.of("number", "1", "2", "9"), Revision: d.version(), Phase: d.phase(), Reason: d.reason()}
	}
	p.Status.Environments[name] = s
}

func (d draw) phase() string {
	return d.of("phase", "", "AwaitingGates", "AwaitingApproval", "Promoting", "AwaitingMerge", "AwaitingRollout", "Verifying", "Succeeded", "Failed", "Rejected", "Superseded")
}

func (d draw) conditions(kinds ...string) []metav1.Condition {
	var all []metav1.Condition
	for _, kind := range kinds {
		if d.yes(kind) {
			all = append(all, metav1.Condition{Type: kind, Status: metav1.ConditionStatus(d.of("status", "True", "False")), Reason: d.reason(), LastTransitionTime: d.time()})
		}
	}
	return all
}

func (d draw) pipeline(namespace, name string) pipelinesv1.Pipeline {
	p := pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)},
		Spec:       pipelinesv1.PipelineSpec{AppRef: pipelinesv1.LocalAppReference{Kind: "HelmRelease", Name: d.name()}, Suspend: d.yes("suspended")},
		Status:     pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{}, Conditions: d.conditions("Stalled", "Ready")},
	}
	for _, env := range []string{"dev", "empty", "prod"}[:d.n("environments", 3)] {
		e := pipelinesv1.Environment{Name: env}
		for range d.n("targets of the spec", 3) {
			e.Targets = append(e.Targets, pipelinesv1.Target{Namespace: d.namespace(), ClusterRef: d.ref()})
		}
		waves := d.yes("waves")
		if waves {
			e.Waves = []pipelinesv1.Wave{{Name: "dev"}, {Name: "prod"}}
		}
		p.Spec.Environments = append(p.Spec.Environments, e)
		d.environment(&p, env, waves)
		if waves || d.yes("former waves") {
			d.environment(&p, env+"/dev", true)
			d.environment(&p, env+"/prod", true)
		}
	}
	return *p.Shown()
}

func (d draw) promotion(namespace, pipeline string, number int) capstanv1.Promotion {
	p := capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", pipeline, number), UID: types.UID(fmt.Sprint(namespace, pipeline, number)), CreationTimestamp: d.time()},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: pipeline, UID: types.UID(d.of("uid", namespace+"/"+pipeline, "former"))}, Number: int64(number),
			Environment: d.of("environment", "dev", "prod", "prod/dev", "gone"), Revision: d.version(), Manual: d.yes("manual"), Retry: int64(d.n("retry", 1)),
		},
		Status: capstanv1.PromotionStatus{
			Phase: capstanv1.PromotionPhase(d.phase()), Reason: d.reason(), StartTime: d.maybe(), FinishTime: d.maybe(), CarriedOutTime: d.maybe(), VerifyTime: d.maybe(),
			GatesCloseTime: d.maybe(), GatesOpenTime: d.maybe(), ExpectedTime: d.maybe(), Conditions: d.conditions("Stalled"),
		},
	}
	if d.yes("rollback") {
		p.Spec.RollbackOf = &capstanv1.RollbackReference{Name: pipeline + "-1", Number: 1}
	}
	if d.yes("gates") {
		p.Status.Gates = []capstanv1.GateStatus{{Name: "soak", State: capstanv1.GateState(d.of("gate", "Open", "Closed", "Invalid", ""))}, {Name: "empty"}}
		p.Status.Checks = []capstanv1.CheckStatus{{Name: "soak", Verdict: capstanv1.CheckVerdict(d.of("verdict", "", "Pass", "Fail", "NoData", "Error"))}}
	}
	return p
}

func drawFacts(t *rapid.T) *view.Facts {
	d := draw{t}
	f := &view.Facts{Now: drawNow, Leads: d.yes("leads"), Observed: map[view.Cluster]view.Observed{}, Past: map[view.Cluster]view.Past{}, PastSince: drawNow.Add(-time.Hour)}
	states := []string{"", "Connecting", "Ready", "Degraded", "Unreachable", "AuthFailed", "Unused", "Removed"}
	for _, kind := range []string{"Cluster", "GitopsCluster", "Secret"} {
		for _, namespace := range []string{"a", "b"} {
			for _, name := range []string{"a", "b", "empty"} {
				c := view.Cluster{Kind: kind, Namespace: namespace, Name: name}
				if d.yes("object") {
					o := view.Object{Cluster: c, Labels: map[string]string{"tier": d.of("tier", "", "a", "b")}}
					if kind == "GitopsCluster" && d.yes("alias") {
						o.Of = view.Cluster{Kind: "Cluster", Namespace: namespace, Name: d.name()}
					}
					f.Objects = append(f.Objects, o)
				}
				if d.yes("connection") {
					f.Connections = append(f.Connections, capstanv1.ClusterConnection{
						ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kind + "." + name},
						Spec:       capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{Kind: kind, Namespace: namespace, Name: name}},
						Status: capstanv1.ClusterConnectionStatus{
							State: capstanv1.ConnectionState(d.of("state", states...)), Reason: d.reason(), LastTransitionTime: d.maybe(), CredentialExpiryTime: d.maybe(), CredentialIssuedTime: d.maybe(),
						},
					})
					f.Past[c] = view.Past{}.Observe(view.Tone(d.n("tone", 6)), view.SlotOf(drawNow)-int64(d.n("slots", 60)))
				}
				if f.Leads && d.yes("observed") {
					f.Observed[c] = view.Observed{State: capstanv1.ConnectionState(d.of("state", states...)), Reason: d.reason(), Since: d.time().Time, LastContact: drawNow.Add(-time.Duration(1+60*d.n("silence", 1)) * time.Second)}
				}
			}
		}
	}
	for _, namespace := range []string{"a", "b"} {
		for _, name := range []string{"a", "b"} {
			if d.yes("Pipeline") {
				f.Pipelines = append(f.Pipelines, d.pipeline(namespace, name))
			}
			for number := range d.n("promotions", 3) {
				f.Promotions = append(f.Promotions, d.promotion(namespace, name, number+1))
			}
			if d.yes("backend") {
				ready := d.yes("ready")
				b := eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: eventingv1.EventingBackendStatus{EventingReady: &ready}}
				if d.yes("source") {
					b.Status.Conditions = []eventingv1.Condition{{Type: "Ready", Status: "False", Message: eventingv1.SourceOnlyMessage, LastTransitionTime: d.time()}}
				}
				if d.yes("delivery") {
					b.Status.Delivery = &eventingv1.Delivery{Waiting: int64(d.n("waiting", 3)), RefusedInARow: int64(d.n("refused", 2))}
					f.BackendPast = map[view.BackendKey]view.BackendPast{{Namespace: namespace, Name: name}: view.BackendPast{}.Observe(*b.Status.Delivery, d.time().Time)}
				}
				f.Backends = append(f.Backends, b)
			}
			for _, kind := range []string{"MachineDeployment", "MachinePool", "MachineSet"} {
				if d.yes("group") {
					f.NodeGroups = append(f.NodeGroups, view.NodeGroup{Kind: kind, Namespace: namespace, Name: name, Cluster: d.name(), Ready: int64(d.n("ready", 2)), Desired: int64(d.n("desired", 2))})
				}
			}
			for _, kind := range []string{"AWSMachine", "AWSMachinePool", "AWSManagedMachinePool", "ROSAMachinePool"} {
				if d.yes("machine") {
					f.Instances = append(f.Instances, view.Instances{Kind: kind, Namespace: namespace, Name: name, Cluster: d.name(), State: d.of("label", "", "running", "terminating", "spot-interruption-stop", "new"), Due: d.time().Time})
				}
			}
		}
	}
	for i := range d.n("events", 8) {
		e := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace(), Name: fmt.Sprint("event-", i), UID: types.UID(fmt.Sprint(i))}, Type: d.of("type", "Warning", "Normal"),
			Action: d.of("action", "FollowInstances", "Undone", "CapacityResolved"), Reason: d.of("reason", "FailedUpdate", "CapacityResolved", "SpotInterruption"), Note: d.of("note", "", "a", "b"),
			EventTime: metav1.NewMicroTime(d.time().Time),
			Regarding: corev1.ObjectReference{Kind: d.of("kind", "AWSMachine", "MachineDeployment", "Cluster", "EventingBackend"), Name: d.name()},
		}
		e.Regarding.Namespace = e.Namespace
		f.Events = append(f.Events, e)
	}
	return f
}

// drawScope draws a viewer with rights in all namespaces, in one, or in none.
func drawScope(t *rapid.T) view.Scope {
	d := draw{t}
	in := func() view.Namespaces {
		switch d.n("right", 3) {
		case 0:
			return view.Namespaces{}
		case 1:
			return view.Namespaces{Names: []string{"a"}}
		}
		return view.Namespaces{All: true}
	}
	return view.Scope{
		Clusters: in(), Objects: map[string]view.Namespaces{"Cluster": in(), "GitopsCluster": in(), "Secret": in()}, Pipelines: in(), Promotions: in(), Events: in(), Backends: in(), NodeGroups: in(), MachineSets: in(), Instances: in(), ManagedPools: in(),
		Approve: in(), Patch: in(), Override: in(), Suspend: in(), Request: in(),
	}
}

// drawAddress draws the address of a page, with values of the parameters that it knows and others.
func drawAddress(t *rapid.T) *url.URL {
	d := draw{t}
	path := d.of("path", "/", "/clusters", "/management", "/pipelines", "/promotions", "/delivery", "/instances", "/backends", "/about", "/search",
		"/clusters/Cluster/a/a", "/clusters/GitopsCluster/a/a", "/clusters/GitopsCluster/b/b", "/pipelines/a/a", "/pipelines/b/b", "/promotions/a/a-1/approve", "/promotions/a/a-2/override/soak", "/promotions/b/b-1/retry",
		"/pipelines/a/a/suspend", "/pipelines/a/a/promote/prod", "/pipelines/a/a/rollback/prod", "/pipelines/b/b/rollback/empty")
	q := url.Values{}
	for _, values := range [][]string{
		{"q", "a", "a/a", "<"}, {"namespace", "a", "none"}, {"state", "Failed", "Ready", "none"}, {"reason", "A", "none"}, {"environment", "prod", "none"}, {"user", "x"}, {"within", "24h", "0"},
		{"tab", "attention", "waiting", "failed", "namespaces", "none"}, {"sort", "name", "lead", "nodes", "none"},
		{"group", "state", "reason", "namespace", "cause", "label:tier", "label:none", "none"}, {"page", "2", "9999", "-1", "x"},
	} {
		if name := values[0]; d.n(name, 3) == 0 {
			q.Set(name, d.of("value", values[1:]...))
		}
	}
	return &url.URL{Path: path, RawQuery: q.Encode()}
}

// shuffled returns the facts with the objects in another order: the caches have none.
func shuffled(t *rapid.T, f *view.Facts) *view.Facts {
	other := *f
	other.Connections = rapid.Permutation(f.Connections).Draw(t, "connections")
	other.Pipelines = rapid.Permutation(f.Pipelines).Draw(t, "pipelines")
	other.Promotions = rapid.Permutation(f.Promotions).Draw(t, "promotions")
	other.Backends = rapid.Permutation(f.Backends).Draw(t, "backends")
	other.Events = rapid.Permutation(f.Events).Draw(t, "events")
	return &other
}

var idAttribute = regexp.MustCompile(` id="([^"]*)"`)

// A page has each ID once, and a place for each list. It does not depend on the order of objects in the caches, and does not change
// while only time passes.
func TestPagesOfAnyFacts(t *testing.T) {
	r := largeRenderer(t)
	rapid.Check(t, func(t *rapid.T) {
		f, scope := drawFacts(t), drawScope(t)
		other := shuffled(t, f)
		for range 4 {
			u := drawAddress(t)
			a, ok := (&Options{}).parseAddress(u)
			if !ok {
				t.Fatalf("%s is the address of no page", u)
			}
			page, there := a.build(f, scope)
			if again, _ := a.build(other, scope); !reflect.DeepEqual(page, again) {
				t.Fatalf("%s depends on the order of objects:\n%s", u, difference(page, again))
			}
			later := *f
			later.Now = f.Now.Add(time.Second)
			if again, _ := a.build(&later, scope); !reflect.DeepEqual(page, again) {
				t.Fatalf("%s changes after a second:\n%s", u, difference(page, again))
			}
			if !there {
				continue
			}
			seen := map[string]bool{}
			html := map[string]string{}
			for _, b := range page.Blocks {
				if seen[b.ID] {
					t.Fatalf("%s has two blocks with the ID %q", u, b.ID)
				}
				seen[b.ID] = true
				one, err := r.block(b)
				if err != nil {
					t.Fatalf("%s: %v", u, err)
				}
				html[b.ID] = one
			}
			main, err := r.page(page, html)
			if err != nil {
				t.Fatalf("%s: %v", u, err)
			}
			ids := map[string]bool{}
			for _, m := range idAttribute.FindAllStringSubmatch(main, -1) {
				if ids[m[1]] {
					t.Fatalf("%s has two elements with the ID %q", u, m[1])
				}
				ids[m[1]] = true
			}
			for _, b := range page.Blocks {
				if !regexp.MustCompile(`data-list="` + regexp.QuoteMeta(b.List) + `"`).MatchString(main) {
					t.Fatalf("%s has no place for the list %q", u, b.List)
				}
			}
		}
	})
}

// difference says which blocks of two pages differ.
func difference(a, b view.Page) string {
	if !reflect.DeepEqual(a.Frame, b.Frame) {
		return fmt.Sprintf("frame %+v\nframe %+v", a.Frame, b.Frame)
	}
	for i := range a.Blocks {
		if i >= len(b.Blocks) || !reflect.DeepEqual(a.Blocks[i], b.Blocks[i]) {
			return fmt.Sprintf("%+v\n%+v", a.Blocks[i], b.Blocks[min(i, max(0, len(b.Blocks)-1)):][:min(1, len(b.Blocks))])
		}
	}
	return fmt.Sprint(slices.Collect(func(yield func(string) bool) { yield(a.Title); yield(b.Title) }))
}
