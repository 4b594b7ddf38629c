package outbox

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
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

// told keeps what the publisher was told.
type told struct{ kinds []string }

func (p *told) Tell(e ce.Event, _ publisher.Source) {
	p.kinds = append(p.kinds, string(event.KindOf(e)))
}

func (p *told) Ask() {}

// box is an Outbox that leads, without an API server: the test says in which order
// records and their echoes come.
type box struct {
	*Outbox
	told *told
	now  time.Time
}

func newBox(t *testing.T, backends ...string) *box {
	t.Helper()
	b := &box{told: &told{}, now: time.Now().Truncate(time.Second)}
	b.Outbox = New(Options{Hub: event.Hub{Name: "fleet", UID: "hub"}, Clock: clock.RealClock{}, Logger: logr.Discard()})
	b.PublishTo(b.told)
	queue := workqueue.NewTypedDelayingQueue[key]()
	t.Cleanup(queue.ShutDown)
	b.lockedState.leading, b.lockedState.prompt, b.lockedState.leisurely = true, queue, queue
	for _, name := range backends {
		b.backend(name, types.UID("uid-"+name))
	}
	return b
}

func (b *box) backend(name string, uid types.UID) {
	b.see(&eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: uid, CreationTimestamp: metav1.NewTime(b.now.Add(-time.Hour)),
	}})
}

// pending kinds for a backend.
func (b *box) pending(g *WithT, backend string) []string {
	kinds := []string{}
	g.Expect(b.Pending(context.Background(), "ns/"+backend, func(e ce.Event) bool {
		kinds = append(kinds, string(event.KindOf(e)))
		return true
	})).To(Succeed())
	return kinds
}

// settles all that is pending for a backend.
func (b *box) settles(g *WithT, backend string) {
	g.Expect(b.Pending(context.Background(), "ns/"+backend, func(e ce.Event) bool {
		b.Settled("ns/"+backend, e.ID(), publisher.Published)
		return true
	})).To(Succeed())
}

// recorded is an object with the record that is written now.
func (b *box) recorded(g *WithT, o client.Object) client.Object {
	_, value, ok := b.outdated(keyOf(o))
	g.Expect(ok).To(BeTrue(), "there is something to record")
	o, _ = o.DeepCopyObject().(client.Object)
	o.SetAnnotations(map[string]string{ToldAnnotation: value})
	return o
}

func promotionAt(at time.Time) *capstanv1.Promotion {
	return &capstanv1.Promotion{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p", CreationTimestamp: metav1.NewTime(at)}}
}

// TestARecordIsOfOneBackend: a second backend settles an event between the write of the
// first one's record and its echo. It is not told again, and its own record is written.
func TestARecordIsOfOneBackend(t *testing.T) {
	g := NewWithT(t)
	b := newBox(t, "a", "b")
	p := promotionAt(b.now)
	b.see(p)
	b.settles(g, "a")
	written := b.recorded(g, p)
	b.settles(g, "b")
	b.see(written)
	g.Expect(b.pending(g, "b")).To(BeEmpty())
	both := b.recorded(g, written)
	g.Expect(recordOf(both).To).To(And(HaveLen(2), HaveKey(types.UID("uid-a")), HaveKey(types.UID("uid-b"))))
	b.see(both)
	g.Expect(b.pending(g, "a")).To(BeEmpty())
	g.Expect(b.pending(g, "b")).To(BeEmpty())
	g.Expect(b.lockedState.entries[keyOf(p)].settled).To(BeEmpty())
}

func connectionAt(at time.Time) *capstanv1.ClusterConnection {
	return &capstanv1.ClusterConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c", CreationTimestamp: metav1.NewTime(at)}}
}

// TestWaysBackAreNoEdges: a connection that nobody demanded for a while, or that tried
// again what it could not, is told of once; also when the hub restarts in between.
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
				b.see(c)
				if state == "Connecting" {
					g.Expect(b.pending(g, "dead")).To(HaveLen(2), "registered, and the edge before")
				}
				all = append(all, b.told.kinds...)
				b.told.kinds = nil
				if len(b.pending(g, "a")) > 0 {
					b.settles(g, "a")
					c, _ = b.recorded(g, c).(*capstanv1.ClusterConnection)
					b.see(c)
				}
				if restarts {
					b = newBox(t, "a", "dead")
					b.lockedState.leading = false
					b.see(c)
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

// TestRotationOutlivesTheHub: a backend that was down when credentials were rotated is
// told by the next process, and when they end soon is what it was before.
func TestRotationOutlivesTheHub(t *testing.T) {
	g := NewWithT(t)
	b := newBox(t, "a", "dead")
	c := connectionAt(b.now)
	for _, hours := range []int{1, 2} {
		c = c.DeepCopy()
		c.Status.CredentialExpiryTime = &metav1.Time{Time: b.now.Add(time.Duration(hours) * time.Hour)}
		b.see(c)
	}
	b.settles(g, "a")
	c, _ = b.recorded(g, c).(*capstanv1.ClusterConnection)
	warnAt := b.lockedState.entries[keyOf(c)].credentials.WarnAt
	next := newBox(t, "a", "dead")
	next.see(c)
	g.Expect(next.pending(g, "a")).To(BeEmpty())
	g.Expect(next.pending(g, "dead")).To(Equal([]string{"cluster.registered.v1", "cluster.credentialsrotated.v1"}))
	g.Expect(next.lockedState.entries[keyOf(c)].credentials.WarnAt).To(BeTemporally("==", warnAt))
}

// TestClocksDiffer: the API server's, which says when an object was made, and the hub's,
// which says when it began. The object's order holds, and nothing is taken for the past.
func TestClocksDiffer(t *testing.T) {
	g := NewWithT(t)
	b := newBox(t)
	b.see(&eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "a", CreationTimestamp: metav1.NewTime(b.now)}})
	p := promotionAt(b.now)
	behind := metav1.NewTime(b.now.Add(-3 * time.Second))
	p.Status.StartTime, p.Status.Attempt = &behind, &capstanv1.Attempt{Number: 1}
	b.see(p)
	g.Expect(b.pending(g, "a")).To(Equal([]string{"promotion.detected.v1", "promotion.started.v1"}))

	old := promotionAt(b.now.Add(-time.Minute))
	old.Name, old.UID = "old", "old"
	now := metav1.NewTime(b.now.Add(time.Second))
	old.Status.StartTime, old.Status.Attempt = &now, &capstanv1.Attempt{Number: 1}
	b.forget(p)
	b.see(old)
	g.Expect(b.pending(g, "a")).To(Equal([]string{"promotion.started.v1"}), "the rest was before the backend")
}

// TestTheNextBackendOfAName has settled nothing yet.
func TestTheNextBackendOfAName(t *testing.T) {
	g := NewWithT(t)
	b := newBox(t, "a")
	b.see(promotionAt(b.now))
	b.settles(g, "a")
	g.Expect(b.pending(g, "a")).To(BeEmpty())
	b.backend("a", "another")
	g.Expect(b.pending(g, "a")).To(Equal([]string{"promotion.detected.v1"}))
}

// patches counts them.
type patches struct {
	client.Writer
	made atomic.Int64
}

func (p *patches) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	p.made.Add(1)
	return nil
}

// TestRecordsGiveWayToNews: few are written at once; many take their time, but the last
// not more than a minute.
func TestRecordsGiveWayToNews(t *testing.T) {
	for _, objects := range []int{recordBurst, 10 * recordRate, 2 * recordRate * int(recordWithin/time.Second)} {
		t.Run(fmt.Sprint(objects), func(t *testing.T) {
			g := NewWithT(t)
			b, time0, written := newBox(t, "bus"), time.Unix(0, 0), &patches{}
			fake := clocktesting.NewFakeClock(time0)
			b.options.Clock, b.options.Client = fake, written
			queue := newQueue(fake)
			others := fake.Waiters() // The queue's own.
			for i := range objects {
				p := promotionAt(b.now)
				p.Name = fmt.Sprint("p-", i)
				p.UID = types.UID(p.Name)
				b.see(p)
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
				// All workers wait for the clock, or for the last of them to end.
				g.Eventually(func() bool { return fake.Waiters() >= others+recorders || queue.Len() == 0 }).WithPolling(100 * time.Microsecond).Should(BeTrue())
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
