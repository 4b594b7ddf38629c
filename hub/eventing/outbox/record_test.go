package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
)

// published is a Publisher that keeps the kinds of the events.
type published struct{ kinds []string }

func (p *published) Publish(e ce.Event, _ publisher.Source) {
	p.kinds = append(p.kinds, string(event.KindOf(e)))
}

func (p *published) Resync() {}

// box is an Outbox that leads, without an API server: the test decides in which order
// records are written and observed.
type box struct {
	*Outbox
	published *published
	now       time.Time
}

func newBox(t *testing.T, backends ...string) *box {
	t.Helper()
	b := &box{published: &published{}, now: time.Now().Truncate(time.Second)}
	b.Outbox = New(Options{Hub: event.Hub{Name: "fleet", UID: "hub"}, Clock: clock.RealClock{}, Logger: logr.Discard()})
	b.PublishTo(b.published)
	queue := workqueue.NewTypedDelayingQueue[key]()
	t.Cleanup(queue.ShutDown)
	b.lockedState.leading, b.lockedState.prompt, b.lockedState.paced = true, queue, queue
	for _, name := range backends {
		b.backend(name, types.UID("uid-"+name))
	}
	return b
}

func (b *box) backend(name string, uid types.UID) {
	b.observe(&eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: uid, CreationTimestamp: metav1.NewTime(b.now.Add(-time.Hour)),
	}})
}

// pending returns the kinds of the pending events of a backend.
func (b *box) pending(g *WithT, backend string) []string {
	kinds := []string{}
	g.Expect(b.Pending(context.Background(), "ns/"+backend, func(e ce.Event) bool {
		kinds = append(kinds, string(event.KindOf(e)))
		return true
	})).To(Succeed())
	return kinds
}

// settles all pending events of a backend.
func (b *box) settles(g *WithT, backend string) {
	g.Expect(b.Pending(context.Background(), "ns/"+backend, func(e ce.Event) bool {
		b.Settled("ns/"+backend, e.ID(), publisher.Published)
		return true
	})).To(Succeed())
}

// recorded returns the object with the record that is due now.
func (b *box) recorded(g *WithT, o client.Object) client.Object {
	_, value, ok := b.outdated(keyOf(o))
	g.Expect(ok).To(BeTrue(), "there is something to record")
	o, _ = o.DeepCopyObject().(client.Object)
	o.SetAnnotations(map[string]string{RecordAnnotation: value})
	return o
}

func promotionAt(at time.Time) *capstanv1.Promotion {
	return &capstanv1.Promotion{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p", CreationTimestamp: metav1.NewTime(at)}}
}

// TestARecordIsOfOneBackend: a second backend settles an event after the record of the first
// is written and before the outbox observes it. The second gets no event again, and its own
// record is written.
func TestARecordIsOfOneBackend(t *testing.T) {
	g := NewWithT(t)
	b := newBox(t, "a", "b")
	p := promotionAt(b.now)
	b.observe(p)
	b.settles(g, "a")
	written := b.recorded(g, p)
	b.settles(g, "b")
	b.observe(written)
	g.Expect(b.pending(g, "b")).To(BeEmpty())
	both := b.recorded(g, written)
	g.Expect(recordOf(both).To).To(And(HaveLen(2), HaveKey(types.UID("uid-a")), HaveKey(types.UID("uid-b"))))
	b.observe(both)
	g.Expect(b.pending(g, "a")).To(BeEmpty())
	g.Expect(b.pending(g, "b")).To(BeEmpty())
	g.Expect(b.lockedState.entries[keyOf(p)].settled).To(BeEmpty())
}

func connectionAt(at time.Time) *capstanv1.ClusterConnection {
	return &capstanv1.ClusterConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c", CreationTimestamp: metav1.NewTime(at)}}
}

// TestWaysBackAreNoEdges: a connection that was unused for a while, or that failed again in
// the same way, has one event, also if the hub restarts in between.
func TestWaysBackAreNoEdges(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprint("restarts ", restarts), func(t *testing.T) {
			g := NewWithT(t)
			b := newBox(t, "a", "dead")
			var all []string
			c := connectionAt(b.now)
			for i, state := range []capstanv1.ConnectionState{
				"Ready", "Unreachable", "Ready", "Unused", "Connecting", "Ready", "AuthFailed", "Connecting", "AuthFailed", "Connecting", "Ready",
			} {
				since := metav1.NewTime(b.now.Add(time.Duration(i) * time.Second))
				c = c.DeepCopy()
				c.Status.State, c.Status.LastTransitionTime = state, &since
				b.observe(c)
				if _, _, held := b.outdated(keyOf(c)); held { // The level is recorded before its event is published.
					c, _ = b.recorded(g, c).(*capstanv1.ClusterConnection)
					b.observe(c)
				}
				if state == "Connecting" {
					g.Expect(b.pending(g, "dead")).To(HaveLen(2), "registered, and the edge before")
				}
				all = append(all, b.published.kinds...)
				b.published.kinds = nil
				if len(b.pending(g, "a")) > 0 {
					b.settles(g, "a")
					c, _ = b.recorded(g, c).(*capstanv1.ClusterConnection)
					b.observe(c)
				}
				if restarts {
					b = newBox(t, "a", "dead")
					b.lockedState.leading = false
					b.observe(c)
					b.lockedState.leading = true
					g.Expect(b.pending(g, "a")).To(BeEmpty())
				}
			}
			g.Expect(all).To(Equal([]string{
				"cluster.registered.v1", "cluster.ready.v1", "cluster.unreachable.v1", "cluster.recovered.v1", "cluster.authfailed.v1", "cluster.recovered.v1",
			}))
			g.Expect(b.pending(g, "dead")).To(Equal([]string{"cluster.registered.v1", "cluster.recovered.v1"}))
		})
	}
}

// TestALevelIsRecordedBeforeItIsPublished: also one that changed just before the backend was
// created, and not one that changed long before.
func TestALevelIsRecordedBeforeItIsPublished(t *testing.T) {
	for _, since := range []time.Duration{time.Second, time.Hour} {
		wanted := since < skew
		t.Run(since.String(), func(t *testing.T) {
			g := NewWithT(t)
			b := newBox(t)
			c := connectionAt(b.now.Add(-24 * time.Hour))
			at := metav1.NewTime(b.now.Add(-since))
			c.Status.State, c.Status.LastTransitionTime = capstanv1.ConnectionUnreachable, &at
			b.observe(c)
			b.observe(&eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "a", CreationTimestamp: metav1.NewTime(b.now)}})
			g.Expect(b.pending(g, "a")).To(BeEmpty())
			b.published.kinds = nil
			_, _, held := b.outdated(keyOf(c))
			g.Expect(held).To(Equal(wanted))
			if !wanted {
				return
			}
			g.Expect(b.lockedState.prompt.Len()).To(Equal(1), "a worker records it")
			b.observe(b.recorded(g, c))
			g.Expect(b.published.kinds).To(Equal([]string{"cluster.unreachable.v1"}))
			g.Expect(b.pending(g, "a")).To(Equal(b.published.kinds))
		})
	}
}

// TestTheLastEventOfADeletedObject: an event that waits for its record is published when the object
// is deleted, because nothing can be recorded any more.
func TestTheLastEventOfADeletedObject(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		t.Run(fmt.Sprint("replaced ", replaced), func(t *testing.T) {
			g := NewWithT(t)
			b := newBox(t, "a")
			c := connectionAt(b.now)
			at := metav1.NewTime(b.now)
			c.Status.State, c.Status.LastTransitionTime = capstanv1.ConnectionRemoved, &at
			b.observe(c)
			g.Expect(b.published.kinds).To(Equal([]string{"cluster.registered.v1"}))
			if replaced { // The watch missed the deletion.
				next := connectionAt(b.now)
				next.UID = "next"
				b.observe(next)
				g.Expect(b.published.kinds).To(Equal([]string{"cluster.registered.v1", "cluster.removed.v1", "cluster.registered.v1"}))
				return
			}
			b.forget(c)
			g.Expect(b.published.kinds).To(Equal([]string{"cluster.registered.v1", "cluster.removed.v1"}))
			g.Expect(b.lockedState.entries).NotTo(HaveKey(keyOf(c)))
			g.Expect(b.lockedState.byID).To(BeEmpty())
		})
	}
}

// TestARecordThatIsUndone: a write that the API server accepts and does not store counts as failed.
func TestARecordThatIsUndone(t *testing.T) {
	g := NewWithT(t)
	b := newBox(t, "a")
	b.options.Client = stripper{}
	c := connectionAt(b.now)
	at := metav1.NewTime(b.now)
	c.Status.State, c.Status.LastTransitionTime = capstanv1.ConnectionUnreachable, &at
	b.observe(c)
	g.Expect(b.write(t.Context(), keyOf(c))).To(MatchError(errUndone))
	g.Expect(testutil.ToFloat64(b.failures.WithLabelValues("Undone"))).To(Equal(1.0))
	g.Expect(b.published.kinds).NotTo(ContainElement("cluster.unreachable.v1"))
}

// stripper accepts every patch and stores nothing.
type stripper struct{ client.Writer }

func (stripper) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

// TestRotationOutlivesTheHub: a backend that was down when credentials were rotated gets
// the event from the next process. The time of the event about their expiry does not change.
func TestRotationOutlivesTheHub(t *testing.T) {
	g := NewWithT(t)
	b := newBox(t, "a", "dead")
	c := connectionAt(b.now)
	for _, hours := range []int{1, 2} {
		c = c.DeepCopy()
		c.Status.CredentialExpiryTime = &metav1.Time{Time: b.now.Add(time.Duration(hours) * time.Hour)}
		b.observe(c)
	}
	b.settles(g, "a")
	c, _ = b.recorded(g, c).(*capstanv1.ClusterConnection)
	warnAt := b.lockedState.entries[keyOf(c)].credentials.WarnAt
	next := newBox(t, "a", "dead")
	next.observe(c)
	g.Expect(next.pending(g, "a")).To(BeEmpty())
	g.Expect(next.pending(g, "dead")).To(Equal([]string{"cluster.registered.v1", "cluster.credentialsrotated.v1"}))
	g.Expect(next.lockedState.entries[keyOf(c)].credentials.WarnAt).To(BeTemporally("==", warnAt))
}

// TestClocksDiffer: the API server's clock sets when an object was created, the hub's clock
// when it started. The events keep the object's order, and none counts as the past.
func TestClocksDiffer(t *testing.T) {
	g := NewWithT(t)
	b := newBox(t)
	b.observe(&eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "a", CreationTimestamp: metav1.NewTime(b.now)}})
	p := promotionAt(b.now)
	behind := metav1.NewTime(b.now.Add(-3 * time.Second))
	p.Status.StartTime, p.Status.Attempt = &behind, &capstanv1.Attempt{Number: 1}
	b.observe(p)
	g.Expect(b.pending(g, "a")).To(Equal([]string{"promotion.detected.v1", "promotion.started.v1"}))

	old := promotionAt(b.now.Add(-time.Minute))
	old.Name, old.UID = "old", "old"
	now := metav1.NewTime(b.now.Add(time.Second))
	old.Status.StartTime, old.Status.Attempt = &now, &capstanv1.Attempt{Number: 1}
	b.forget(p)
	b.observe(old)
	g.Expect(b.pending(g, "a")).To(Equal([]string{"promotion.started.v1"}), "the rest was before the backend")
}

// TestTheNextBackendOfAName: a new backend with the same name has settled nothing.
func TestTheNextBackendOfAName(t *testing.T) {
	g := NewWithT(t)
	b := newBox(t, "a")
	b.observe(promotionAt(b.now))
	b.settles(g, "a")
	g.Expect(b.pending(g, "a")).To(BeEmpty())
	b.backend("a", "another")
	g.Expect(b.pending(g, "a")).To(Equal([]string{"promotion.detected.v1"}))
}

// patches counts the patches.
type patches struct {
	client.Writer
	made atomic.Int64
}

func (p *patches) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	p.made.Add(1)
	raw, err := patch.Data(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, o)
}

// TestRecordsDoNotDelayEdges: a few records are written at once. Many are written slowly, but
// the last after a minute at most.
func TestRecordsDoNotDelayEdges(t *testing.T) {
	for _, objects := range []int{recordBurst, 10 * recordRate, 2 * recordRate * int(recordWithin/time.Second)} {
		t.Run(fmt.Sprint(objects), func(t *testing.T) {
			g := NewWithT(t)
			b, time0, written := newBox(t, "bus"), time.Unix(0, 0), &patches{}
			fake := clocktesting.NewFakeClock(time0)
			b.options.Clock, b.options.Client = fake, written
			queue := newQueue(fake)
			others := fake.Waiters() // Those of the queue.
			for i := range objects {
				p := promotionAt(b.now)
				p.Name = fmt.Sprint("p-", i)
				p.UID = types.UID(p.Name)
				b.observe(p)
				b.lockedState.entries[keyOf(p)].settled["ns/bus"] = []string{event.Hub{Name: "fleet", UID: "hub"}.Promotions(p)[0].ID()}
				queue.Add(keyOf(p))
			}
			var workers sync.WaitGroup
			pace := rate.NewLimiter(recordRate, recordBurst)
			for range recorders {
				workers.Go(func() { b.record(t.Context(), queue, pace) })
			}
			g.Eventually(written.made.Load).Should(BeNumerically("==", min(recordBurst, objects)))
			for written.made.Load() < int64(objects) {
				// All workers that have a record to make wait for the clock.
				g.Eventually(func() bool {
					left := objects - int(written.made.Load())
					return left == 0 || fake.Waiters() >= others+min(recorders, left)
				}).WithPolling(100 * time.Microsecond).Should(BeTrue())
				passed := fake.Since(time0)
				most := float64(recordBurst) + max(recordRate, float64(objects)/recordWithin.Seconds())*passed.Seconds()
				g.Expect(float64(written.made.Load())).To(BeNumerically("<=", most+recorders), "after %s", passed)
				g.Expect(passed).To(BeNumerically("<=", recordWithin+recordWithin/20), "with what the steps of the clock add")
				fake.Step(10 * time.Millisecond)
			}
			queue.ShutDown()
			workers.Wait()
		})
	}
}
