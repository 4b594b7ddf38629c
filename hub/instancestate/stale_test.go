package instancestate

import (
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

// A watch delivers an object as it was before the newest event was written to it: the
// reports for that event are still awaited, and no handler is called for the old one.
func TestWatchBehindTheLabel(t *testing.T) {
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	r := &Labeler{
		Options: Options{Clock: c, Logger: logr.Discard()},
		ring:    &owner.Ring[arrival]{Clock: c}, lanes: newLanes(c), writer: newWriter(memberwrite.Writer{}), metrics: newMetrics(),
	}
	r.drift = newDrift(r)
	woken := 0
	h := r.Handle("cordoner", func(Woken) { woken++ })
	key := owner.Key{Kind: capa.AWSMachine, Namespace: "n", Name: "m"}
	at := func(version, event string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(capa.AWSMachine.WithVersion(capa.Version))
		u.SetNamespace("n")
		u.SetName("m")
		u.SetResourceVersion(version)
		u.SetAnnotations(map[string]string{AnnotationEvent: `{"id":"` + event + `"}`})
		return u
	}
	old, now := at("1", "old"), at("2", "new")
	r.writer.wrote(key, seenOf(now.GroupVersionKind(), now, key))
	done := false
	r.handlers.await(key, "new", func(outcome) { done = true })
	r.observe(t.Context(), key, old)
	g.Expect(done).To(BeFalse())
	g.Expect(woken).To(BeZero())
	r.observe(t.Context(), key, now)
	g.Expect(done).To(BeFalse())
	g.Expect(woken).To(Equal(1))
	h.Processed(objectFor(key, seenOf(now.GroupVersionKind(), now, key)), "new")
	g.Expect(done).To(BeTrue())
}
