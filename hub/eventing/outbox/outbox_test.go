package outbox_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/outbox"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// recorded returns the ids in the record of an object, for a backend.
func (w *world) recorded(o client.Object, b *eventingv1.EventingBackend) func() []string {
	return func() []string {
		var r struct {
			To map[types.UID][]string `json:"to"`
		}
		if raw := w.record(o); raw != "" {
			w.g.Expect(json.Unmarshal([]byte(raw), &r)).To(Succeed())
		}
		return r.To[b.UID]
	}
}

var life3 = []string{"promotion.detected.v1", "promotion.started.v1", "promotion.succeeded.v1"}

// TestPublishedAndRecorded: the events of an object are published in order and recorded on it.
// The next process does not publish them again.
func TestPublishedAndRecorded(t *testing.T) {
	shared.Get(t)
	leaks.AtEnd(t) // The test is not parallel: no other outbox runs.
	w := newWorld(t)
	b := w.backend("bus")
	first := &broker{}
	l := w.live(how{}, map[string]sink.Sink{"bus": first})
	p := w.promotion("web-prod-1", 1, false)
	w.started(p)
	w.ended(p, capstanv1.PhaseSucceeded)
	w.g.Eventually(first.kinds).Should(Equal(life3))
	w.g.Eventually(w.recorded(p, b)).Should(HaveLen(3))
	l.end()

	second := &broker{}
	w.live(how{}, map[string]sink.Sink{"bus": second})
	last := w.promotion("web-prod-2", 2, false)
	w.g.Eventually(w.recorded(last, b)).Should(HaveLen(1))
	w.g.Expect(second.kinds()).To(Equal([]string{"promotion.detected.v1"}), "of the second promotion")
}

// TestPublishedAgainAfterRestart: one process dies while the broker is down, and another after
// an acknowledgement that it did not record. The next publishes the same events, with the
// same ids.
func TestPublishedAgainAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.backend("bus")
	down := &broker{fail: errDown}
	l := w.live(how{}, map[string]sink.Sink{"bus": down})
	p := w.promotion("web-prod-1", 1, false)
	w.started(p)
	c := w.connection("eu")
	w.state(c, capstanv1.ConnectionUnreachable, time.Now())
	w.g.Eventually(func() int { s, _ := l.p.Status(w.name("bus")); return s.Queued }).Should(Equal(4))
	l.end()
	w.g.Expect(w.record(p)).To(BeEmpty())

	forgetful, cut := &broker{}, &line{}
	cut.now.Store(&fault{}) // No record is written, as if the process died before.
	l = w.live(how{line: cut}, map[string]sink.Sink{"bus": forgetful})
	all := []string{"promotion.detected.v1", "promotion.started.v1", "cluster.registered.v1", "cluster.unreachable.v1"}
	w.g.Eventually(forgetful.kinds).Should(ConsistOf(all))
	l.end()
	w.g.Expect(w.record(p)).To(BeEmpty())

	next := &broker{}
	l = w.live(how{}, map[string]sink.Sink{"bus": next})
	w.g.Eventually(next.kinds).Should(ConsistOf(all))
	w.g.Expect(next.ids()).To(ConsistOf(forgetful.ids()))
	w.g.Eventually(w.recorded(p, b)).Should(HaveLen(2))
	w.g.Eventually(w.recorded(c, b)).Should(HaveLen(2))
}

// TestOrderAfterRestart: the promotions of one Pipeline have one subject, and are published in
// the order of their numbers.
func TestOrderAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.backend("bus")
	var want []string
	for n, name := range []string{"web-prod-1", "web-prod-2", "web-prod-3"} {
		p := w.promotion(name, int64(n+1), false)
		w.started(p)
		w.ended(p, capstanv1.PhaseSucceeded)
		for _, e := range hub.Promotions(p) {
			want = append(want, e.ID())
		}
	}
	bus := &broker{}
	w.live(how{}, map[string]sink.Sink{"bus": bus})
	w.g.Eventually(bus.kinds).Should(HaveLen(9))
	got := bus.ids()
	for n := range 3 { // A second may hold several promotions, whose events then go by number.
		of := func(id string) bool { return id == want[3*n] || id == want[3*n+1] || id == want[3*n+2] }
		var mine []string
		for _, id := range got {
			if of(id) {
				mine = append(mine, id)
			}
		}
		w.g.Expect(mine).To(Equal(want[3*n : 3*n+3]))
	}
}

// TestRecovery: the hub dies while a cluster is unreachable. The next hub publishes a recovery
// when the cluster is Ready again.
func TestRecovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.backend("bus")
	bus := &broker{}
	l := w.live(how{}, map[string]sink.Sink{"bus": bus})
	c := w.connection("eu")
	at := time.Now()
	w.state(c, capstanv1.ConnectionReady, at)
	w.state(c, capstanv1.ConnectionUnreachable, at.Add(time.Second))
	w.g.Eventually(bus.kinds).Should(ContainElement("cluster.unreachable.v1"))
	w.g.Eventually(w.recorded(c, b)).Should(HaveLen(2), "registered, unreachable")
	w.g.Eventually(func() string { return w.record(c) }).Should(ContainSubstring(`"state":"Unreachable"`))
	l.end()
	w.state(c, capstanv1.ConnectionConnecting, at.Add(2*time.Second))
	w.state(c, capstanv1.ConnectionReady, at.Add(3*time.Second))
	next := &broker{}
	w.live(how{}, map[string]sink.Sink{"bus": next})
	w.g.Eventually(next.kinds).Should(Equal([]string{"cluster.recovered.v1"}))
}

// TestFlapsWithinOneSecond: several edges with the same time are several events.
func TestFlapsWithinOneSecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.backend("bus")
	bus := &broker{}
	w.live(how{}, map[string]sink.Sink{"bus": bus})
	c := w.connection("eu")
	at := time.Now()
	want := []string{"cluster.registered.v1"}
	for range 3 {
		w.state(c, capstanv1.ConnectionUnreachable, at)
		want = append(want, "cluster.unreachable.v1")
		w.g.Eventually(bus.kinds).Should(Equal(want))
		w.state(c, capstanv1.ConnectionReady, at)
		want = append(want, "cluster.recovered.v1")
		w.g.Eventually(bus.kinds).Should(Equal(want))
	}
	seen := map[string]bool{}
	for _, id := range bus.ids() {
		w.g.Expect(seen).NotTo(HaveKey(id))
		seen[id] = true
	}
}

// TestFlappingFleet: clusters flap as fast as the API server accepts it. The queues stay
// within their limits. At the end each backend has the last state of every cluster, also the
// backend that was down all the time.
func TestFlappingFleet(t *testing.T) {
	t.Parallel()
	clusters, flaps, room := 250, 2, 100
	if soaks() {
		clusters, room = 500, 200
	}
	w := newWorld(t)
	w.backend("bus")
	w.backend("dead")
	bus, dead := &broker{}, &broker{fail: errDown}
	l := w.live(how{}, nil)
	for name, b := range map[string]*broker{"bus": bus, "dead": dead} {
		w.g.Expect(l.p.Set(w.name(name), publisher.Settings{
			Type: "memory", Sink: b, Backoff: time.Millisecond, BackoffMax: 20 * time.Millisecond, MaxEvents: room,
		})).To(Succeed())
	}
	bounded := func() {
		for _, name := range []string{"bus", "dead"} {
			s, _ := l.p.Status(w.name(name))
			w.g.Expect(s.Queued).To(BeNumerically("<=", room))
		}
	}
	connections := make([]*capstanv1.ClusterConnection, clusters)
	for i := range connections {
		connections[i] = w.connection(fmt.Sprint("c", i))
		bounded()
	}
	at := time.Now()
	for flap := range flaps {
		for i, c := range connections {
			state := []capstanv1.ConnectionState{capstanv1.ConnectionReady, capstanv1.ConnectionUnreachable}
			w.state(c, state[(flap+i)%2], at.Add(time.Duration(flap)*time.Second))
			bounded()
		}
	}
	s, _ := l.p.Status(w.name("dead"))
	w.g.Expect(s.Deferring).To(BeTrue(), "events that do not fit wait in their objects")
	dead.dies(nil)
	for _, b := range []*broker{bus, dead} {
		w.g.Eventually(func() int {
			bounded()
			right := 0
			last := b.last()
			for i, c := range connections {
				kind := last["clusters/Cluster/"+w.ns+"/"+c.Spec.ClusterRef.Name]
				if unreachable := (flaps-1+i)%2 == 1; (kind == event.ClusterUnreachable) == unreachable && kind != "" && kind != event.ClusterRegistered {
					right++
				}
			}
			return right
		}).Should(Equal(clusters))
	}
}

// TestNoPast: a backend gets no events from before its creation.
func TestNoPast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connection("eu")
	w.state(c, capstanv1.ConnectionUnreachable, time.Now().Add(-time.Hour))
	b := w.backend("bus")
	bus := &broker{}
	w.live(how{}, map[string]sink.Sink{"bus": bus})
	w.g.Eventually(w.recorded(c, b)).Should(HaveLen(1))
	w.g.Expect(bus.kinds()).To(Equal([]string{"cluster.registered.v1"}))
}

// TestMoreKindsLater: a backend that selects more kinds later does not get old events of an
// object after newer ones, also not from the next process.
func TestMoreKindsLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.backend("bus")
	bus := &broker{}
	l := w.live(how{}, nil)
	settings := publisher.Settings{Type: "memory", Sink: bus, EventTypes: []string{"promotion.succeeded.v1"}}
	w.g.Expect(l.p.Set(w.name("bus"), settings)).To(Succeed())
	done := w.promotion("web-prod-1", 1, false)
	w.started(done)
	w.ended(done, capstanv1.PhaseSucceeded)
	w.g.Eventually(w.recorded(done, b)).Should(HaveLen(3), "also the kinds that it does not select")
	running := w.promotion("web-prod-2", 2, false)
	w.started(running)
	w.g.Expect(bus.kinds()).To(Equal([]string{"promotion.succeeded.v1"}))
	w.g.Expect(w.record(running)).To(BeEmpty(), "an event that no backend selects causes no write")
	l.end()
	next := &broker{}
	w.live(how{}, map[string]sink.Sink{"bus": next})
	w.ended(running, capstanv1.PhaseFailed)
	w.g.Eventually(next.kinds).Should(Equal([]string{"promotion.detected.v1", "promotion.started.v1", "promotion.failed.v1"}))
}

// TestStandby: a standby publishes nothing until it leads, and then everything.
func TestStandby(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.backend("bus")
	bus := &broker{}
	l := w.live(how{standby: true}, map[string]sink.Sink{"bus": bus})
	w.promotion("web-prod-1", 1, false)
	w.g.Eventually(func() bool { s, _ := l.p.Status(w.name("bus")); return s.Deferring }).Should(BeFalse(), "it has walked")
	w.g.Consistently(bus.kinds, "200ms").Should(BeEmpty())
	l.run(l.outbox.Start)
	w.g.Eventually(bus.kinds).Should(Equal([]string{"promotion.detected.v1"}))
}

// TestBackends: the other backends get an event when a backend becomes ready or not ready. A
// backend that was never ready has no event.
func TestBackends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bus, log := w.backend("bus"), w.backend("log")
	one, other := &broker{}, &broker{}
	w.live(how{}, map[string]sink.Sink{"bus": one, "log": other})
	at := time.Now()
	ready := func(b *eventingv1.EventingBackend, status metav1.ConditionStatus) {
		at = at.Add(time.Second)
		w.g.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(b), b)).To(Succeed())
		w.status(b, func() {
			b.Status.BackendType = "http"
			b.Status.Conditions = []eventingv1.Condition{{Type: eventingv1.ReadyCondition, Status: status, LastTransitionTime: metav1.NewTime(at.Truncate(time.Second)), Reason: "Because"}}
		})
	}
	ready(bus, metav1.ConditionFalse)
	ready(bus, metav1.ConditionTrue)
	w.g.Eventually(other.kinds).Should(Equal([]string{"backend.ready.v1"}))
	ready(bus, metav1.ConditionFalse)
	w.g.Eventually(other.kinds).Should(Equal([]string{"backend.ready.v1", "backend.notready.v1"}))
	ready(bus, metav1.ConditionTrue)
	ready(log, metav1.ConditionTrue)
	w.g.Eventually(other.kinds).Should(Equal([]string{"backend.ready.v1", "backend.notready.v1", "backend.ready.v1"}))
	w.g.Eventually(one.kinds).Should(Equal([]string{"backend.ready.v1"}), "of the other")
}

// TestCredentials: an event is published when the credentials of a cluster are rotated, and
// one before they expire: in the last quarter of a short lifetime.
func TestCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.backend("bus")
	w.backend("down")
	bus, down := &broker{}, &broker{fail: errDown}
	clock := testclock.NewFakeClock(time.Now())
	l := w.live(how{clock: clock}, map[string]sink.Sink{"bus": bus, "down": down})
	c := w.connection("eu")
	end := func(in time.Duration) {
		w.g.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(c), c)).To(Succeed())
		w.status(c, func() { c.Status.CredentialExpiryTime = &metav1.Time{Time: clock.Now().Add(in).Truncate(time.Second)} })
	}
	end(15 * time.Minute)
	w.g.Eventually(bus.kinds).Should(Equal([]string{"cluster.registered.v1"}))
	clock.Step(10 * time.Minute)
	end(15 * time.Minute)
	w.g.Eventually(bus.kinds).Should(Equal([]string{"cluster.registered.v1", "cluster.credentialsrotated.v1"}))
	w.g.Eventually(func() []string {
		clock.Step(time.Minute)
		return bus.kinds()
	}, patience, "50ms").Should(Equal([]string{"cluster.registered.v1", "cluster.credentialsrotated.v1", "cluster.credentialsexpiring.v1"}))
	w.g.Eventually(func() []string {
		clock.Step(time.Second)
		return w.recorded(c, b)()
	}, patience, "50ms").Should(HaveLen(3))
	l.end()
	next := &broker{}
	down.dies(nil)
	w.live(how{clock: clock}, map[string]sink.Sink{"bus": next, "down": down})
	w.g.Eventually(down.kinds).Should(ConsistOf("cluster.registered.v1", "cluster.credentialsrotated.v1", "cluster.credentialsexpiring.v1"))
	end(time.Hour)
	w.g.Eventually(next.kinds).Should(Equal([]string{"cluster.credentialsrotated.v1"}))
}

// TestTwoBackends: each backend has its own record. One that is down does not delay the
// record of the other.
func TestTwoBackends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	up, down := w.backend("up"), w.backend("down")
	works, broken := &broker{}, &broker{fail: errDown}
	l := w.live(how{}, map[string]sink.Sink{"up": works, "down": broken})
	p := w.promotion("web-prod-1", 1, false)
	w.g.Eventually(w.recorded(p, up)).Should(HaveLen(1))
	w.g.Expect(w.recorded(p, down)()).To(BeEmpty())
	l.end()
	again := &broker{}
	w.live(how{}, map[string]sink.Sink{"up": again, "down": broken})
	broken.dies(nil)
	w.g.Eventually(w.recorded(p, down)).Should(HaveLen(1))
	w.g.Expect(again.kinds()).To(BeEmpty())
	w.g.Expect(broken.kinds()).To(Equal([]string{"promotion.detected.v1"}))
}

// TestRecords: a record that is not valid JSON is replaced, and entries of backends that were
// deleted are removed.
func TestRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.backend("bus")
	p := w.promotion("web-prod-1", 1, false)
	before := p.DeepCopy()
	p.Annotations = map[string]string{outbox.RecordAnnotation: `{"to":{"gone":["0123456789abcdef"]}`}
	w.g.Expect(w.c.Patch(t.Context(), p, client.MergeFrom(before))).To(Succeed())
	bus := &broker{}
	w.live(how{}, map[string]sink.Sink{"bus": bus})
	w.g.Eventually(func() error { return json.Unmarshal([]byte(w.record(p)), &struct{}{}) }).Should(Succeed())
	w.g.Eventually(w.recorded(p, b)).Should(HaveLen(1))
	w.g.Expect(w.record(p)).NotTo(ContainSubstring("gone"))
}

// TestALevelIsRecordedAtOnce: the record is the only memory of a level for the next leader, so
// it does not wait behind a burst of Promotions.
func TestALevelIsRecordedAtOnce(t *testing.T) {
	t.Parallel()
	const promotions, few = 200, 50
	w := newWorld(t)
	w.backend("bus")
	began := time.Now()
	fake := testclock.NewFakeClock(began)
	bus := &broker{}
	w.live(how{clock: fake}, map[string]sink.Sink{"bus": bus})
	written := func() int {
		var list capstanv1.PromotionList
		w.g.Expect(w.c.List(t.Context(), &list, client.InNamespace(w.ns))).To(Succeed())
		return len(slices.DeleteFunc(list.Items, func(p capstanv1.Promotion) bool { return p.Annotations[outbox.RecordAnnotation] == "" }))
	}
	for i := range promotions {
		w.promotion(fmt.Sprint("web-", i), int64(i+1), true)
	}
	w.g.Eventually(bus.ids).Should(HaveLen(promotions))
	w.g.Eventually(func() int {
		fake.Step(10 * time.Millisecond)
		return written()
	}).Should(BeNumerically(">=", few))
	c := w.connection("edge")
	w.state(c, capstanv1.ConnectionUnreachable, began)
	w.g.Eventually(bus.last).Should(HaveKeyWithValue(ContainSubstring("edge"), event.ClusterUnreachable))
	since := fake.Now()
	w.g.Eventually(func() string {
		fake.Step(time.Millisecond)
		return w.record(c)
	}).Should(ContainSubstring(`"state":"Unreachable"`))
	w.g.Expect(fake.Since(since)).To(BeNumerically("<", time.Second), "the record must not wait for those of the Promotions")
	w.g.Expect(written()).To(BeNumerically("<", promotions))
}
