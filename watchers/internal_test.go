package watchers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/clusters/transport"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// still is a Watcher that was not started, and its keeper of one kind.
func still(wake func([]types.NamespacedName, bool)) (*Watcher, *keeper, *testclock.FakeClock) {
	clock := testclock.NewFakeClock(time.Unix(1_000_000, 0))
	gk := schema.GroupKind{Group: "example.org", Kind: "Fake"}
	w := New(Options{
		Index: index.New(), Clock: clock, Wake: wake,
		Kinds: func(schema.GroupKind) Kind {
			return Kind{GroupKind: gk, Observe: func(o client.Object) index.Observation {
				return index.Observation{Found: true, Revision: "of " + o.GetResourceVersion()}
			}}
		},
	})
	w.SetDemand("test", []Demand{{Cluster: "Cluster/team/prod", Kind: gk, Namespace: "shop", Name: "web"}})
	return w, w.lockedState.clusters["Cluster/team/prod"].lockedState.keepers[gk], clock
}

// TestOlderReadsNeverOverwrite: the same object is delivered by the watch and by a separate
// read, in any order.
func TestOlderReadsNeverOverwrite(t *testing.T) {
	at := func(version string) client.Object {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: version}}
	}
	want := wanted{"shop", "web"}
	toObservation := func(o client.Object) index.Observation {
		return index.Observation{Found: true, Revision: "of " + o.GetResourceVersion()}
	}
	see := func(version string) func(*ledger) {
		return func(l *ledger) { l.observe(at(version), toObservation) }
	}
	gone := func(version string) func(*ledger) { return func(l *ledger) { l.observeDeleted(at(version)) } }
	absent := func(l *ledger) { l.observeAbsent(want, time.Time{}) }
	for _, tc := range []struct {
		name  string
		steps []func(*ledger)
		want  string
	}{
		{"newer follows", []func(*ledger){see("9"), see("10")}, "of 10"},
		{"older is dropped", []func(*ledger){see("10"), see("9")}, "of 10"},
		{"the same may be told again", []func(*ledger){see("10"), see("10")}, "of 10"},
		{"a read under way does not bring back what was deleted", []func(*ledger){see("9"), gone("11"), see("10")}, "not found"},
		{"nor the one it was deleted from", []func(*ledger){gone("10"), see("10")}, "not found"},
		{"made anew", []func(*ledger){see("9"), gone("10"), see("11")}, "of 11"},
		{"absent was seen meanwhile", []func(*ledger){see("9"), absent}, "of 9"},
		{"absent", []func(*ledger){absent}, "not found"},
		{"absent, then made", []func(*ledger){absent, see("9")}, "of 9"},
		{"absent, but just reduced to its key", []func(*ledger){func(l *ledger) { l.unread(want) }, absent}, "unknown"},
		{"a deletion that is older than what was seen", []func(*ledger){see("12"), gone("11")}, "of 12"},
		{"versions that cannot be compared are believed", []func(*ledger){see("x"), see("9")}, "of 9"},
		{"nothing after the end", []func(*ledger){see("9"), func(l *ledger) { l.close() }, see("10"), gone("11"), absent}, "of 9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, k, _ := still(nil)
			x := k.subject.shared.options.Index
			x.SetPipeline(types.NamespacedName{Name: "p"}, index.Use{Objects: []index.Object{k.subject.object(want)}})
			l := newLedger(nil, time.Time{}, k.subject.record)
			for _, step := range tc.steps {
				step(l)
			}
			seen, known, _ := x.Last(k.subject.object(want))
			got := seen.Revision
			switch {
			case !known:
				got = "unknown"
			case !seen.Found:
				got = "not found"
			}
			NewWithT(t).Expect(got).To(Equal(tc.want))
		})
	}
}

// TestBucket: a burst passes. Wakes above it are folded, and delivered as one when the bucket
// has a token, live before initial.
func TestBucket(t *testing.T) {
	g := NewWithT(t)
	type call struct {
		names   []string
		initial bool
	}
	var calls []call
	w, k, clock := still(func(keys []types.NamespacedName, initial bool) {
		var names []string
		for _, key := range keys {
			names = append(names, key.Name)
		}
		slices.Sort(names)
		calls = append(calls, call{names, initial})
	})
	p := func(i int) []types.NamespacedName { return []types.NamespacedName{{Name: fmt.Sprintf("p%d", i)}} }
	for i := range wakeBurst {
		k.subject.wake(p(i), false)
	}
	g.Expect(calls).To(HaveLen(wakeBurst))
	calls = nil
	k.subject.wake(p(1), true)
	k.subject.wake(p(1), false)
	k.subject.wake(p(2), false)
	k.subject.wake(p(3), true)
	k.subject.wake(p(2), true)
	k.subject.wake(nil, false)
	g.Expect(calls).To(BeEmpty())
	g.Expect(w.shared.wakes.flush()).To(BeTrue(), "there is no room yet")
	clock.Step(foldFor)
	g.Expect(w.shared.wakes.flush()).To(BeFalse())
	g.Expect(calls).To(Equal([]call{{[]string{"p1", "p2"}, false}, {[]string{"p3"}, true}}))
	g.Expect(w.shared.wakes.flush()).To(BeFalse())
	g.Expect(calls).To(HaveLen(2), "once")
}

// TestView: a judgement uses the present state of the run that counts, its informers and
// the demand.
func TestView(t *testing.T) {
	g := NewWithT(t)
	_, k, clock := still(nil)
	up := clusters.Snapshot{State: capstanv1.ConnectionReady}
	v, ready := k.view(up, nil, clock.Now())
	g.Expect(ready).To(BeEmpty())
	g.Expect(v.scopes).To(Equal(scopesUnknown))
	g.Expect(v.objects).To(Equal(1))
	g.Expect(v.connection).To(Equal(up))
	g.Expect(v.connected).To(BeFalse())
	g.Expect(v.place.String()).To(Equal("Cluster/team/prod"))

	trouble, began := problem{ReasonUnreadable, "is broken"}, clock.Now()
	one := &informer{namespace: "shop", stream: transport.NewStream(clock)}
	one.lockedState = informerState{began: began, ready: true, problem: trouble, failing: began}
	two := &informer{namespace: "other", stream: transport.NewStream(clock)}
	k.lockedState.began, k.subject.lockedState.problem = began, trouble
	k.lockedState.run = &run{subject: k.subject, lockedState: runState{
		scopes: scopeNamespaces, version: "v1", informers: map[string]*informer{"shop": one, "other": two},
	}}
	clock.Step(45 * time.Second)
	v, ready = k.view(up, nil, clock.Now())
	g.Expect(ready).To(ConsistOf(one))
	g.Expect(v.informers).To(Equal([]informerView{
		{namespace: "other", behind: 45 * time.Second},
		{namespace: "shop", began: began, ready: true, problem: trouble, failing: began, behind: 45 * time.Second},
	}), "in order; one waits for a slot")
	g.Expect(v.wanted).To(ConsistOf("shop"))
	g.Expect(v.began).To(Equal(began))
	g.Expect(v.problem).To(Equal(trouble))
	g.Expect(v.version).To(Equal("v1"))
	g.Expect(v.timings.FreshFor).To(Equal(45 * time.Second))
}

// TestNewTargetIsNoSlowList: a run whose list was complete and that has to list again, because an
// object is demanded that it cannot read by itself, is not a slow list, however old the connection
// is. One whose list never was complete is.
func TestNewTargetIsNoSlowList(t *testing.T) {
	for name, tc := range map[string]struct {
		synced bool
		cause  error
		want   string
	}{
		"all was observed":                    {true, errRestored, ReasonNotSynced},
		"a key was stored that is demanded":   {false, errReplan, ReasonNotSynced},
		"no list was ever complete, restored": {false, errRestored, ReasonSlow},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, k, clock := still(nil)
			one := &informer{stream: transport.NewStream(clock)}
			one.lockedState.ready = tc.synced
			ctx, cancel := context.WithCancelCause(t.Context())
			r := &run{
				subject: k.subject, ctx: ctx, cancel: cancel, unbind: func() bool { return true }, ledger: newLedger(nil, time.Time{}, nil), began: clock.Now(),
				lockedState: runState{scopes: scopeAll, informers: map[string]*informer{"": one}},
			}
			k.lockedState.began, k.lockedState.run = clock.Now(), r
			clock.Step(time.Hour)
			r.cancel(tc.cause)
			k.conclude(r, k.endRun(r))
			clock.Step(130 * time.Millisecond)
			v, _ := k.view(clusters.Snapshot{State: capstanv1.ConnectionReady}, nil, clock.Now())
			whole, _ := v.listing()
			g.Expect(whole.reason).To(Equal(tc.want))
		})
	}
}

// TestTheEndOfAnInformerIsAChange: the loop judges the kind again when an informer is not needed any more, whose
// calls may have failed.
func TestTheEndOfAnInformerIsAChange(t *testing.T) {
	g := NewWithT(t)
	w, k, _ := still(nil)
	r := &run{subject: k.subject, lockedState: runState{scopes: scopeNamespaces, informers: map[string]*informer{"shop": {stop: func() {}}, "b": {stop: func() {}}}}}
	w.takeChanged()
	g.Expect(r.stopUnneeded([]string{"shop", "b"})).To(HaveLen(2))
	g.Expect(w.takeChanged()).To(BeEmpty())
	g.Expect(r.stopUnneeded([]string{"shop"})).To(HaveLen(1))
	g.Expect(w.takeChanged()).To(HaveLen(1))
}

// demanded is the keeper of a kind, of which one fresh object is demanded.
func demanded() (*keeper, *testclock.FakeClock, wanted) {
	_, k, clock := still(func([]types.NamespacedName, bool) {})
	want := wanted{"shop", "web"}
	o, x := k.subject.object(want), k.subject.shared.options.Index
	x.SetPipeline(types.NamespacedName{Namespace: "team", Name: "p"}, index.Use{Objects: []index.Object{o}})
	x.SetFreshness(o.Cluster, o.Kind, index.Freshness{Fresh: true})
	return k, clock, want
}

// TestObjectThatCannotBeReadIsReported: reading one object fails for longer than a list may
// take. The index then shows that, and the object is not waited for any more. A failure of a
// moment is not shown.
func TestObjectThatCannotBeReadIsReported(t *testing.T) {
	g := NewWithT(t)
	k, clock, want := demanded()
	r := &run{subject: k.subject, work: runWork{failing: map[wanted]time.Time{}}, ledger: newLedger(nil, time.Time{}, nil)}
	trouble := errors.New("the server answers 500")
	shown := func() index.Freshness {
		_, _, f := k.subject.shared.options.Index.Last(k.subject.object(want))
		return f
	}
	r.retryLater(want, trouble)
	clock.Step(29 * time.Second)
	r.retryLater(want, trouble)
	g.Expect(shown().Fresh).To(BeTrue())
	clock.Step(time.Second)
	r.retryLater(want, trouble)
	g.Expect(shown()).To(Equal(index.Freshness{Reason: ReasonUnreadable, Message: "Fake shop/web cannot be read in Cluster/team/prod: the server answers 500"}))
}

// TestFailureThatEndedIsForgotten: reading an object failed for a moment, and then the watch
// delivered it. A failure much later is again one of a moment.
func TestFailureThatEndedIsForgotten(t *testing.T) {
	g := NewWithT(t)
	k, clock, want := demanded()
	one := &informer{stream: transport.NewStream(clock)}
	r := &run{
		subject: k.subject, ctx: t.Context(), work: runWork{failing: map[wanted]time.Time{}}, ledger: newLedger(nil, time.Time{}, k.subject.record),
		lockedState: runState{scopes: scopeAll, informers: map[string]*informer{"": one}},
	}
	r.retryLater(want, errors.New("the server answers 500"))
	delivered := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: "2"}}
	r.ledger.observe(delivered, k.subject.kind.Observe)
	clock.Step(2 * time.Second)
	r.settle(one)
	clock.Step(time.Hour)
	r.retryLater(want, errors.New("the server answers 500"))
	_, _, shown := k.subject.shared.options.Index.Last(k.subject.object(want))
	g.Expect(shown.Fresh).To(BeTrue())
}

// TestDemandIsASetOfOwners: repeated demands count once, and the linger begins when
// the last owner leaves.
func TestDemandIsASetOfOwners(t *testing.T) {
	g := NewWithT(t)
	w, k, clock := still(nil)
	d := []Demand{{Cluster: k.subject.cluster.name, Kind: k.subject.kind.GroupKind, Namespace: "shop", Name: "web"}}
	for range 3 {
		w.SetDemand("other", append(d, d...))
	}
	g.Expect(k.subject.lockedState.demand.objects()).To(Equal(1))
	w.SetDemand("other", nil)
	w.SetDemand("other", nil)
	var next time.Time
	sweep := func(after time.Duration) (empty bool) {
		empty, next = k.subject.sweepLocked(clock.Now().Add(after))
		return empty
	}
	g.Expect(sweep(time.Hour)).To(BeFalse())
	g.Expect(next).To(BeZero())
	w.SetDemand("test", nil)
	g.Expect(k.subject.lockedState.demand.objects()).To(BeZero())
	g.Expect(k.subject.wants("shop", "web")).To(BeTrue(), "it lingers")
	g.Expect(sweep(59 * time.Second)).To(BeFalse())
	g.Expect(next).To(Equal(clock.Now().Add(time.Minute)))
	w.SetDemand("again", d)
	clock.Step(time.Hour)
	g.Expect(sweep(0)).To(BeFalse())
	w.SetDemand("again", nil)
	g.Expect(sweep(time.Minute)).To(BeTrue())
}

// TestDemandsOfManyOwners: all are set, and each is replaced on its own.
func TestDemandsOfManyOwners(t *testing.T) {
	g := NewWithT(t)
	w, k, _ := still(nil)
	app := func(name string) []Demand {
		return []Demand{{Cluster: k.subject.cluster.name, Kind: k.subject.kind.GroupKind, Namespace: "shop", Name: name}}
	}
	w.SetDemand("test", nil)
	w.SetDemands(map[string][]Demand{"one": app("a"), "two": app("b"), "three": app("b"), "none": nil})
	g.Expect(k.subject.lockedState.demand.objects()).To(Equal(2))
	w.SetDemand("two", nil)
	g.Expect(k.subject.lockedState.demand.objects()).To(Equal(2), "another owner demands it")
	w.SetDemands(map[string][]Demand{"one": app("c"), "three": nil})
	g.Expect(k.subject.lockedState.demand.objects()).To(Equal(1))
	g.Expect(k.subject.wants("shop", "c")).To(BeTrue())
}

func TestBackoff(t *testing.T) {
	g := NewWithT(t)
	b := backoff.NewSequence(30*time.Second, 10*time.Minute)
	for _, whole := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		got := b.Wait()
		g.Expect(got).To(And(BeNumerically(">=", whole/2), BeNumerically("<=", whole)))
	}
}

func TestPreferredVersions(t *testing.T) {
	g := NewWithT(t)
	group := &metav1.APIGroup{
		PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v1"},
		Versions:         []metav1.GroupVersionForDiscovery{{Version: "v2alpha1"}, {Version: "v1"}},
	}
	g.Expect(preferred(Kind{}, group)).To(Equal([]string{"v1", "v2alpha1"}))
	g.Expect(preferred(Kind{Versions: []string{"v3", "v2"}}, group)).To(Equal([]string{"v3", "v2"}))
}

func TestProblemsAreBounded(t *testing.T) {
	_, k, _ := still(nil)
	p := problemOf(errors.New(string(make([]byte, 10_000))), k.subject.place("shop"))
	NewWithT(t).Expect(len(p.message)).To(BeNumerically("<", 2*maxProblem))
}

// TestForeignAnswersAreNotQuoted: an answer that is not an API server's Status is not
// quoted. Some servers answer with the request, which contains the token.
func TestForeignAnswersAreNotQuoted(t *testing.T) {
	g := NewWithT(t)
	_, k, _ := still(nil)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.Error(rw, "you sent "+r.Header.Get("Authorization"), http.StatusInternalServerError)
	}))
	defer server.Close()
	set, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "s3cr3t"})
	g.Expect(err).NotTo(HaveOccurred())
	request := set.RESTClient().Get().AbsPath("/apis/example.org")
	g.Expect(request.Do(t.Context()).Error()).To(MatchError(ContainSubstring("s3cr3t")), "client-go quotes it")
	p := problemOf(fetch(t.Context(), time.Minute, request, &metav1.APIGroup{}), k.subject.place(""))
	g.Expect(p.reason).To(Equal(ReasonUnreadable))
	g.Expect(p.message).NotTo(ContainSubstring("s3cr3t"))
	g.Expect(p.message).To(ContainSubstring("500"))
}

// TestProblemsAreStable: the same failure has the same message at each try.
func TestProblemsAreStable(t *testing.T) {
	_, k, _ := still(nil)
	at := func(port, timeout int) error {
		return fmt.Errorf("listing fakes: %w", &url.Error{
			Op: "Get", URL: fmt.Sprintf("https://10.0.0.1/apis/example.org/v1/fakes?timeoutSeconds=%d&watch=true", timeout),
			Err: &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: errors.New("connection reset\x1b[2J")},
		})
	}
	g := NewWithT(t)
	p := problemOf(at(40001, 312), k.subject.place(""))
	g.Expect(p).To(Equal(problemOf(at(50002, 577), k.subject.place(""))))
	g.Expect(p.message).To(HaveSuffix("read: connection reset [2J"))
}

// A namespace that is not watched will never be synced: the caller of a Reader gets an
// error that says so, and does not wait.
func TestReaderOfAnotherNamespace(t *testing.T) {
	g := NewWithT(t)
	kind := schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "MachineDeployment"}
	k := newKeeper(&subject{shared: &shared{}})
	k.lockedState.run = &run{lockedState: runState{informers: map[string]*informer{"here": {lockedState: informerState{ready: true}}}}}
	w := New(Options{})
	w.lockedState.clusters[""] = &watched{lockedState: watchedState{keepers: map[schema.GroupKind]*keeper{kind: k}}}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind.WithVersion("v1beta2"))
	err := w.Reader("").Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: "md"}, u)
	var unsynced *NotSyncedError
	g.Expect(errors.As(err, &unsynced)).To(BeTrue())
	g.Expect(unsynced.Message).To(Equal("MachineDeployment.cluster.x-k8s.io of namespace elsewhere are not read: the hub is restricted to other namespaces"))
}
