package watchers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/watchers/decode"
)

func eventOf(kind, name, more string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":%q%s}}}`+"\n", kind, name, more)
}

const endOfList = `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"

// TestHostileStreamIsRefused: client-go stores a streamed initial list before it passes any of
// it on. So its objects and their bytes are counted as they are decoded.
func TestHostileStreamIsRefused(t *testing.T) {
	asKey := func(u *unstructured.Unstructured) client.Object { return newKey(u) }
	big := &unstructured.Unstructured{Object: map[string]any{"text": strings.Repeat("x", maxStored/4+1)}}
	asBig := func(*unstructured.Unstructured) client.Object { return big }
	var many, modified strings.Builder
	for i := range 4 {
		many.WriteString(eventOf("ADDED", fmt.Sprint("n", i), ""))
		modified.WriteString(eventOf("MODIFIED", fmt.Sprint("n", i), ""))
	}
	for _, tc := range []struct {
		name, text string
		most       int
		reduce     func(*unstructured.Unstructured) client.Object
		want       error
	}{
		{"more objects than are stored", many.String(), 3, asKey, errTooMany},
		{"as modifications", modified.String(), 3, asKey, errTooMany},
		{"not more", many.String(), 4, asKey, nil},
		{"more after the list", eventOf("ADDED", "first", "") + endOfList + many.String(), 3, asKey, nil},
		{"more bytes than are stored", many.String(), 1000, asBig, errStored},
		{"a name that is too long", eventOf("ADDED", strings.Repeat("x", 300), ""), 1000, asKey, decode.ErrIdentity},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			c := &caller{limits: limits{tc.most, maxListed, maxStored}, reduce: tc.reduce}
			var refused error
			w := c.newWatch(io.NopCloser(strings.NewReader(tc.text)), true, func(err error) { refused = err })
			g.Eventually(w.ResultChan()).Should(BeClosed(), "at the end of the text, or the error")
			if tc.want == nil {
				g.Expect(refused).NotTo(HaveOccurred())
			} else {
				g.Expect(refused).To(MatchError(tc.want))
				g.Expect(needsUser(refused)).To(BeTrue())
			}
		})
	}
}

// TestLongListIsRefused: also if nothing of it is stored.
func TestLongListIsRefused(t *testing.T) {
	g := NewWithT(t)
	counted := tally{limits: limits{10, maxListed, maxStored}}
	for range maxListed / (128 << 20) {
		g.Expect(counted.add(&key{}, 128<<20)).To(Succeed())
	}
	g.Expect(counted.add(&key{}, 1)).To(MatchError(errListed))
}

// TestFloodOfEventsIsPaced: after the burst, the reader of events waits, and so does their
// sender. The management cluster is not paced.
func TestFloodOfEventsIsPaced(t *testing.T) {
	g := NewWithT(t)
	_, k, clock := still(nil)
	g.Expect(k.subject.pace).NotTo(BeNil())
	local := newSubject(k.subject.shared, identity{name: clusters.LocalName}, nil, k.subject.kind)
	g.Expect(local.pace).To(BeNil())
	a := &arrivals{
		reduce: func(u *unstructured.Unstructured) client.Object { return u },
		pace:   &pace{clock: clock, limiter: rate.NewLimiter(1, 2)},
	}
	decoded := make(chan struct{}, 4)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 4 {
			if _, err := a.accept(watch.Modified, &unstructured.Unstructured{}, 1); err != nil {
				t.Error(err)
			}
			decoded <- struct{}{}
		}
	}()
	g.Eventually(decoded).Should(HaveLen(2))
	for n := 3; n <= 4; n++ {
		g.Eventually(clock.HasWaiters).Should(BeTrue())
		g.Expect(decoded).To(HaveLen(n - 1))
		clock.Step(time.Second)
		g.Eventually(decoded).Should(HaveLen(n))
	}
	<-ended
}

// TestVersionsThatGoBackAgainAndAgain: a cluster that was restored is listed at once. A server
// whose versions go back all the time is listed after longer and longer waits.
func TestVersionsThatGoBackAgainAndAgain(t *testing.T) {
	g := NewWithT(t)
	_, k, clock := still(nil)
	ends := func() time.Duration {
		k.scheduleNext(&run{subject: k.subject, began: clock.Now()}, errRestored)
		at := k.subject.lockedState.retryAt
		if at.IsZero() {
			return 0
		}
		return at.Sub(clock.Now())
	}
	g.Expect(ends()).To(BeZero())
	longest := time.Duration(0)
	for range 20 {
		wait := ends()
		g.Expect(wait).To(BeNumerically(">", 0))
		longest = max(longest, wait)
		clock.Step(wait)
	}
	g.Expect(longest).To(BeNumerically(">=", 15*time.Second))
	g.Expect(k.subject.lockedState.problem.message).To(ContainSubstring("resourceVersions went back"))

	clock.Step(time.Hour)
	k.subject.lockedState.retryAt = time.Time{}
	g.Expect(ends()).To(BeZero(), "a restore an hour later")
}

// TestWakesOfAListThatDoesNotComplete: the Pipelines of objects that a list has delivered are
// woken, although the run ends before the list is complete. The next run finds no change.
func TestWakesOfAListThatDoesNotComplete(t *testing.T) {
	g := NewWithT(t)
	woken := map[types.NamespacedName]bool{}
	_, k, _ := still(func(pipelines []types.NamespacedName, initial bool) {
		for _, p := range pipelines {
			woken[p] = initial
		}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	i := &informer{namespace: "shop"}
	r := &run{
		subject: k.subject, ctx: ctx, cancel: cancel, unbind: func() bool { return true }, ledger: newLedger(nil, time.Time{}, k.subject.record),
		lockedState: runState{scopes: scopeNamespaces, informers: map[string]*informer{"shop": i}},
	}
	p := types.NamespacedName{Namespace: "team", Name: "shop"}
	g.Expect(i.initial.hold([]types.NamespacedName{p})).To(BeTrue())
	cancel(errors.New("connection lost"))
	g.Expect(r.end()).To(MatchError("connection lost"))
	g.Expect(woken).To(Equal(map[types.NamespacedName]bool{p: true}))
}

// TestStoredBytes: the estimate counts what an object keeps, not what it was read from.
func TestStoredBytes(t *testing.T) {
	g := NewWithT(t)
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"list": []any{strings.Repeat("x", 1000), int64(1)}}}}
	g.Expect(storedBytes(u)).To(And(BeNumerically(">", 1000), BeNumerically("<", 2500)))
	g.Expect(storedBytes(newKey(u))).To(BeEquivalentTo(identityBytes + len("web")))
	g.Expect(storedBytes(&metav1.PartialObjectMetadata{})).To(BeEquivalentTo(typedBytes))
	g.Expect(int64(maxObjects)*typedBytes).To(BeNumerically("<", int64(maxStored)), "as many applications as objects are allowed fit")
}
