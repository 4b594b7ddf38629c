package instancestate

import (
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/internal/memberwrite"
)

// watchTest is a Labeler with one handler, and an object that a watch delivers.
type watchTest struct {
	*Labeler
	handler  *Handler
	key      owner.Key
	woken    int
	old, now *unstructured.Unstructured
}

func newWatchTest() *watchTest {
	c := testclock.NewFakeClock(time.Now())
	w := &watchTest{key: owner.Key{Kind: capa.AWSMachine, Namespace: "n", Name: "m"}}
	w.Labeler = &Labeler{
		Options: Options{Clock: c, Logger: logr.Discard()},
		ring:    &owner.Ring[arrival]{Clock: c}, lanes: newLanes(c), writer: newWriter(memberwrite.Writer{}), metrics: newMetrics(),
	}
	w.drift = newDrift(w.Labeler)
	w.handler = w.Handle("cordoner", func(Woken) { w.woken++ })
	at := func(version, event string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(capa.AWSMachine.WithVersion(capa.Version))
		u.SetNamespace("n")
		u.SetName("m")
		u.SetResourceVersion(version)
		u.SetAnnotations(map[string]string{AnnotationEvent: `{"id":"` + event + `"}`})
		return u
	}
	w.old, w.now = at("1", "old"), at("2", "new")
	return w
}

func (w *watchTest) written() seen { return seenOf(w.now.GroupVersionKind(), w.now, w.key) }

// A watch delivers an object as it was before the newest event was written to it: the
// reports for that event are still awaited, and no handler is called for the old one.
func TestWatchBehindTheLabel(t *testing.T) {
	g := NewWithT(t)
	w := newWatchTest()
	w.writer.wrote(w.key, w.written())
	done := false
	w.handlers.await(w.key, "new", func(outcome) { done = true })
	w.observe(t.Context(), w.key, w.old)
	g.Expect(done).To(BeFalse())
	g.Expect(w.woken).To(BeZero())
	w.observe(t.Context(), w.key, w.now)
	g.Expect(done).To(BeFalse())
	g.Expect(w.woken).To(Equal(1))
	w.handler.Processed(objectFor(w.key, w.written()), "new")
	g.Expect(done).To(BeTrue())
}

// A watch delivers what a worker writes while the worker notes that it has written it. Whichever
// is first, the handler is called for the new state, and the old state does not end the wait for
// the report of the new event.
func TestWatchWhileTheLabelIsWritten(t *testing.T) {
	g := NewWithT(t)
	for range 20_000 {
		w := newWatchTest()
		var worker sync.WaitGroup
		worker.Go(func() { w.writer.wrote(w.key, w.written()) })
		w.observe(t.Context(), w.key, w.now)
		worker.Wait()
		g.Expect(w.woken).To(Equal(1))

		w = newWatchTest()
		done := false
		worker.Go(func() {
			w.writer.wrote(w.key, w.written())
			w.handlers.await(w.key, "new", func(outcome) { done = true })
		})
		w.observe(t.Context(), w.key, w.old)
		worker.Wait()
		g.Expect(done).To(BeFalse())
	}
}
