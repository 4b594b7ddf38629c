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

// ids that are recorded of an object, for a backend.
func (w *world) recorded(o client.Object, b *eventingv1.EventingBackend) func() []string {
	return func() []string {
		var r struct {
			To map[types.UID][]string `json:"to"`
		}
		if raw := w.told(o); raw != "" {
			w.g.Expect(json.Unmarshal([]byte(raw), &r)).To(Succeed())
		}
		return r.To[b.UID]
	}
}

var life3 = []string{"promotion.detected.v1", "promotion.started.v1", "promotion.succeeded.v1"}

// TestTold: what happens to an object is told in order, recorded on it, and not told
// again by the next process.
func TestTold(t *testing.T) {
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

// TestToldAgain: a process dies with a broker down, and one after a broker's yes that it
// did not record. The next tells the same, under the same ids.
func TestToldAgain(t *testing.T) {
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
	w.g.Expect(w.told(p)).To(BeEmpty())

	forgetful := &broker{}
	l = w.live(how{silent: true}, map[string]sink.Sink{"bus": forgetful})
	all := []string{"promotion.detected.v1", "promotion.started.v1", "cluster.registered.v1", "cluster.unreachable.v1"}
	w.g.Eventually(forgetful.kinds).Should(ConsistOf(all))
	l.end()
	w.g.Expect(w.told(p)).To(BeEmpty())

	next := &broker{}
	l = w.live(how{}, map[string]sink.Sink{"bus": next})
	w.g.Eventually(next.kinds).Should(ConsistOf(all))
	w.g.Expect(next.ids()).To(ConsistOf(forgetful.ids()))
	w.g.Eventually(w.recorded(p, b)).Should(HaveLen(2))
	w.g.Eventually(w.recorded(c, b)).Should(HaveLen(2))
}

// TestOrderAfterRestart: promotions of one Pipeline are one subject, told in the order of
// their numbers.
func TestOrderAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.backend("bus")
	var want []string
	for n, name := range []string{"web-prod-1", "web-prod-2", "web-prod-3"} {
		p := w.promotion(name, int64(n+1), false)
		w.started(p)
		w.ended(p, capstanv1.PhaseSucceeded)
		for _, e := range teller.Promotions(p) {
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

// TestRecovery: the hub dies while a cluster is unreachable; that it is Ready again is a
// recovery to the next, too.
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
	l.end()
	w.state(c, capstanv1.ConnectionConnecting, at.Add(2*time.Second))
	w.state(c, capstanv1.ConnectionReady, at.Add(3*time.Second))
	next := &broker{}
	w.live(how{}, map[string]sink.Sink{"bus": next})
	w.g.Eventually(next.kinds).Should(Equal([]string{"cluster.recovered.v1"}))
}

// TestFlapsWithinOneSecond are several edges, though their times are the same.
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

// TestFlappingFleet: clusters flap as fast as the API server takes it. The queues hold
// no more than they may, and when it is over each backend knows how every cluster is: also
// one that was dead all the while.
func TestFlappingFleet(t *testing.T) {
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
	w.g.Expect(s.Deferring).To(BeTrue(), "what does not fit waits in its objects")
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

// TestNoPast: a backend is not told of what was before it.
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

// TestWidened: a backend that is to get more kinds from now on does not get old events of
// an object after newer ones, also not from the next process.
func TestWidened(t *testing.T) {
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
	w.g.Eventually(w.recorded(done, b)).Should(HaveLen(3), "also what it did not want")
	running := w.promotion("web-prod-2", 2, false)
	w.started(running)
	w.g.Expect(bus.kinds()).To(Equal([]string{"promotion.succeeded.v1"}))
	w.g.Expect(w.told(running)).To(BeEmpty(), "what nobody wants is not worth a write")
	l.end()
	next := &broker{}
	w.live(how{}, map[string]sink.Sink{"bus": next})
	w.ended(running, capstanv1.PhaseFailed)
	w.g.Eventually(next.kinds).Should(Equal([]string{"promotion.detected.v1", "promotion.started.v1", "promotion.failed.v1"}))
}

// TestStandby tells nothing until it leads, and then all.
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

// TestBackends: that a backend is ready, or not any more, is told to the others; one that
// never was is not told of.
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

// TestCredentials: another end of a cluster's credentials is told, and once that they end
// soon, in the last quarter of a short life.
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

// TestTwoBackends have a record each: one that is down does not hold up the other's.
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

// TestRecordsOfBackendsThatAreGone do not pile up, and a broken one is overcome.
func TestRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.backend("bus")
	p := w.promotion("web-prod-1", 1, false)
	before := p.DeepCopy()
	p.Annotations = map[string]string{outbox.ToldAnnotation: `{"to":{"gone":["0123456789abcdef"]}`}
	w.g.Expect(w.c.Patch(t.Context(), p, client.MergeFrom(before))).To(Succeed())
	bus := &broker{}
	w.live(how{}, map[string]sink.Sink{"bus": bus})
	w.g.Eventually(func() error { return json.Unmarshal([]byte(w.told(p)), &struct{}{}) }).Should(Succeed())
	w.g.Eventually(w.recorded(p, b)).Should(HaveLen(1))
	w.g.Expect(w.told(p)).NotTo(ContainSubstring("gone"))
}

// TestALevelDoesNotWaitForPromotions: the record is all that the next leader knows of a
// level, so it does not queue up behind a burst of Promotions.
func TestALevelDoesNotWaitForPromotions(t *testing.T) {
	t.Parallel()
	const promotions, few = 200, 50
	w := newWorld(t)
	w.backend("bus")
	began := time.Now()
	fake := testclock.NewFakeClock(began)
	bus := &broker{}
	w.live(how{clock: fake}, map[string]sink.Sink{"bus": bus})
	told := func() int {
		var list capstanv1.PromotionList
		w.g.Expect(w.c.List(t.Context(), &list, client.InNamespace(w.ns))).To(Succeed())
		return len(slices.DeleteFunc(list.Items, func(p capstanv1.Promotion) bool { return p.Annotations[outbox.ToldAnnotation] == "" }))
	}
	for i := range promotions {
		w.promotion(fmt.Sprint("web-", i), int64(i+1), true)
	}
	w.g.Eventually(bus.ids).Should(HaveLen(promotions))
	w.g.Eventually(func() int {
		fake.Step(10 * time.Millisecond)
		return told()
	}).Should(BeNumerically(">=", few))
	c := w.connection("edge")
	w.state(c, capstanv1.ConnectionUnreachable, began)
	w.g.Eventually(bus.last).Should(HaveKeyWithValue(ContainSubstring("edge"), event.ClusterUnreachable))
	since := fake.Now()
	w.g.Eventually(func() string {
		fake.Step(time.Millisecond)
		return w.told(c)
	}).Should(ContainSubstring(`"state":"Unreachable"`))
	w.g.Expect(fake.Since(since)).To(BeNumerically("<", time.Second), "or the Promotions had their turn")
	w.g.Expect(told()).To(BeNumerically("<", promotions))
}
