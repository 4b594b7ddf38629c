package annotator

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// A Warning is repeated before API servers delete its Event, and when another one is over; the end of the last one is
// reported. A notice that is no Warning, or was never reported, is not.
func TestRepeats(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	n := &notifier{kind: "MachineDeployment", metrics: newMetrics(), clock: clock}
	n.lockedState.seen = map[mcreconcile.Request]map[notice]sighting{}
	who := mcreconcile.Request{Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "a", Name: "b"}}}
	lost, odd := warn(ReasonFailedUpdate, WordTemplateNotFound, "t"), warn(ReasonInvalidAnnotation, WordInvalidAnnotation, "o")
	kept := notice{severity: "Normal", reason: ReasonOverridden, word: WordOverridden}
	slow := warn(ReasonReconcileError, WordThrottled, "s")
	slow.patience = throttlePatience

	g.Expect(n.due(who, []notice{lost, odd, kept})).To(Equal(dueNotices{fresh: []notice{lost, odd, kept}}))
	clock.Step(repeatAfter - 1)
	g.Expect(n.due(who, []notice{lost, odd, kept})).To(BeZero())
	clock.Step(1)
	g.Expect(n.due(who, []notice{lost, odd, kept})).To(Equal(dueNotices{again: []notice{lost, odd}}))
	g.Expect(n.due(who, []notice{odd, kept})).To(Equal(dueNotices{again: []notice{odd}}), "else the newest Event would be of the one that is over")
	g.Expect(n.due(who, []notice{kept})).To(Equal(dueNotices{resolved: true}))
	g.Expect(n.due(who, []notice{kept})).To(BeZero())
	g.Expect(n.due(who, nil)).To(BeZero())

	g.Expect(n.due(who, []notice{slow})).To(BeZero())
	g.Expect(n.due(who, nil)).To(BeZero(), "it was never reported")
	g.Expect(n.due(who, []notice{lost})).To(Equal(dueNotices{fresh: []notice{lost}}))
	g.Expect(n.due(who, []notice{slow})).To(Equal(dueNotices{resolved: true}), "a failure that is not reported yet is no problem")
	g.Expect(n.due(who, []notice{slow})).To(BeZero())
	g.Expect(n.due(who, []notice{slow})).To(Equal(dueNotices{fresh: []notice{slow}}))

	g.Expect(repeating(0, []notice{kept})).To(BeZero())
	g.Expect(repeating(0, []notice{kept, odd})).To(Equal(repeatAfter))
	g.Expect(repeating(time.Minute, []notice{odd})).To(Equal(time.Minute))
}
