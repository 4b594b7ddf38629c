package watchers

import (
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
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/clusters/transport"
	"github.com/capstan-hub/capstan/index"
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
	return w, w.lockedState.clusters["Cluster/team/prod"].lockedKinds[gk], clock
}

// TestOlderReadsNeverOverwrite: the same object comes by the watch and by a read of
// its own, in any order.
func TestOlderReadsNeverOverwrite(t *testing.T) {
	at := func(version string) client.Object {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: version}}
	}
	want := wanted{"shop", "web"}
	see := func(version string) func(*run) { return func(r *run) { r.observe(at(version)) } }
	gone := func(version string) func(*run) { return func(r *run) { r.observeGone(at(version)) } }
	absent := func(r *run) { r.observeAbsent(want) }
	for _, tc := range []struct {
		name  string
		steps []func(*run)
		want  string
	}{
		{"newer follows", []func(*run){see("9"), see("10")}, "of 10"},
		{"older is dropped", []func(*run){see("10"), see("9")}, "of 10"},
		{"the same may be told again", []func(*run){see("10"), see("10")}, "of 10"},
		{"a read under way does not bring back what was deleted", []func(*run){see("9"), gone("11"), see("10")}, "not found"},
		{"nor the one it was deleted from", []func(*run){gone("10"), see("10")}, "not found"},
		{"made anew", []func(*run){see("9"), gone("10"), see("11")}, "of 11"},
		{"absent was seen meanwhile", []func(*run){see("9"), absent}, "of 9"},
		{"absent", []func(*run){absent}, "not found"},
		{"absent, then made", []func(*run){absent, see("9")}, "of 9"},
		{"absent, but just reduced to its key", []func(*run){func(r *run) { r.ledger.unread(want) }, absent}, "unknown"},
		{"a deletion that is older than what was seen", []func(*run){see("12"), gone("11")}, "of 12"},
		{"versions that cannot be compared are believed", []func(*run){see("x"), see("9")}, "of 9"},
		{"nothing after the end", []func(*run){see("9"), func(r *run) { r.ledger.close() }, see("10"), gone("11"), absent}, "of 9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, k, _ := still(nil)
			k.w.o.Index.SetPipeline(types.NamespacedName{Name: "p"}, index.Use{Objects: []index.Object{k.object(want)}})
			r := &run{keeper: k, ledger: newLedger(nil)}
			for _, step := range tc.steps {
				step(r)
			}
			seen, known, _ := k.w.o.Index.Last(k.object(want))
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

// TestBucket: a burst passes, what is over is folded, and is delivered as one when
// there is room, live before initial.
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
		k.wake(p(i), false)
	}
	g.Expect(calls).To(HaveLen(wakeBurst))
	calls = nil
	k.wake(p(1), true)
	k.wake(p(1), false)
	k.wake(p(2), false)
	k.wake(p(3), true)
	k.wake(p(2), true)
	k.wake(nil, false)
	g.Expect(calls).To(BeEmpty())
	g.Expect(w.deliver()).To(BeTrue(), "there is no room yet")
	clock.Step(foldFor)
	g.Expect(w.deliver()).To(BeFalse())
	g.Expect(calls).To(Equal([]call{{[]string{"p1", "p2"}, false}, {[]string{"p3"}, true}}))
	g.Expect(w.deliver()).To(BeFalse())
	g.Expect(calls).To(HaveLen(2), "once")
}

// TestVerdict: what is wrong with a kind, a namespace or a connection, and which of
// them is named.
func TestVerdict(t *testing.T) {
	up := clusters.Snapshot{State: capstanv1.ConnectionReady}
	trouble := problem{ReasonUnreadable, "is broken"}
	forbidden := problem{ReasonForbidden, "is forbidden"}
	for _, tc := range []struct {
		name       string
		snapshot   clusters.Snapshot
		problem    problem
		scopes     scopes
		informers  map[string]*informer
		behind     time.Duration // how long no watch has been open
		wants      []wanted
		want       string
		namespaces map[string]string
	}{
		{name: "unknown cluster", want: ReasonConnecting},
		{name: "connecting", snapshot: clusters.Snapshot{State: capstanv1.ConnectionConnecting, Message: "x"}, want: ReasonConnecting},
		{name: "unreachable", snapshot: clusters.Snapshot{State: capstanv1.ConnectionUnreachable}, problem: trouble, want: ReasonUnreachable},
		{name: "credentials", snapshot: clusters.Snapshot{State: capstanv1.ConnectionAuthFailed}, want: ReasonAuthFailed},
		{name: "removed", snapshot: clusters.Snapshot{State: capstanv1.ConnectionRemoved}, want: ReasonRemoved},
		{name: "not planned", snapshot: up, want: ReasonNotSynced},
		{name: "cannot be planned", snapshot: up, problem: trouble, want: ReasonUnreadable},
		{name: "no informer yet", snapshot: up, scopes: scopeAll, want: ReasonNotSynced},
		{name: "listing", snapshot: up, scopes: scopeAll, informers: map[string]*informer{"": {}}, want: ReasonNotSynced},
		{name: "listing for long", snapshot: up, scopes: scopeAll, informers: map[string]*informer{"": {began: time.Unix(1_000_000-31, 0)}}, want: ReasonSlow},
		{name: "cannot be listed", snapshot: up, scopes: scopeAll, informers: map[string]*informer{"": {lockedProblem: trouble}}, want: ReasonUnreadable},
		{name: "synced, silent", snapshot: up, scopes: scopeAll, informers: map[string]*informer{"": {lockedReady: true}}, want: ReasonSilent},
		{
			name: "synced, and its watch not open since an outage", snapshot: up, scopes: scopeAll, behind: 45 * time.Second, want: ReasonResuming,
			informers: map[string]*informer{"": {lockedReady: true}},
		},
		{
			name: "fails for a moment", snapshot: up, scopes: scopeAll, want: ReasonSilent,
			informers: map[string]*informer{"": {lockedReady: true, lockedProblem: trouble, lockedFailing: time.Unix(1_000_000-44, 0)}},
		},
		{
			name: "fails for long, though probes are answered", snapshot: up, scopes: scopeAll, want: ReasonUnreadable,
			informers: map[string]*informer{"": {lockedReady: true, lockedProblem: trouble, lockedFailing: time.Unix(1_000_000-45, 0)}},
		},
		{
			name: "namespaces", snapshot: up, scopes: scopeNamespaces, want: ReasonSilent,
			informers: map[string]*informer{
				"a": {lockedReady: true}, "b": {}, "c": {lockedReady: true, lockedProblem: forbidden, lockedFailing: time.Unix(1_000_000, 0)},
			},
			namespaces: map[string]string{"b": ReasonNotSynced, "c": ReasonForbidden},
		},
		{
			name: "a namespace that is wanted and has no informer yet", snapshot: up, scopes: scopeNamespaces, want: ReasonSilent,
			informers: map[string]*informer{}, wants: []wanted{{"new", "web"}},
			namespaces: map[string]string{"new": ReasonNotSynced},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			_, k, clock := still(nil)
			k.lockedProblem = tc.problem
			for _, i := range tc.informers {
				i.stream = transport.NewStream(clock, nil)
			}
			clock.Step(tc.behind)
			clear(k.lockedWant)
			for _, want := range tc.wants {
				k.lockedWant[want] = &interest{owners: []string{"test"}}
			}
			if tc.scopes != scopesUnknown {
				k.lockedRun = &run{keeper: k, lockedScopes: tc.scopes, lockedInformers: tc.informers}
			}
			got, namespaces, _ := k.verdict(tc.snapshot, nil, clock.Now())
			g.Expect(got.reason).To(Equal(tc.want))
			g.Expect(got.message).NotTo(BeEmpty())
			g.Expect(got.message).To(Or(ContainSubstring("Cluster/team/prod"), ContainSubstring("broken")))
			reasons := map[string]string{}
			for n, p := range namespaces {
				reasons[n] = p.reason
			}
			if tc.namespaces == nil {
				tc.namespaces = map[string]string{}
			}
			g.Expect(reasons).To(Equal(tc.namespaces))
		})
	}
}

// TestDemandIsASetOfOwners: repeated demands count once, and the linger begins when
// the last owner goes.
func TestDemandIsASetOfOwners(t *testing.T) {
	g := NewWithT(t)
	w, k, clock := still(nil)
	d := []Demand{{Cluster: k.c.name, Kind: k.kind.GroupKind, Namespace: "shop", Name: "web"}}
	for range 3 {
		w.SetDemand("other", append(d, d...))
	}
	g.Expect(k.lockedApps()).To(Equal(1))
	w.SetDemand("other", nil)
	w.SetDemand("other", nil)
	g.Expect(k.lockedSweep(clock.Now().Add(time.Hour), time.Minute)).To(BeFalse())
	w.SetDemand("test", nil)
	g.Expect(k.lockedApps()).To(BeZero())
	g.Expect(k.wants("shop", "web")).To(BeTrue(), "it lingers")
	g.Expect(k.lockedSweep(clock.Now().Add(59*time.Second), time.Minute)).To(BeFalse())
	w.SetDemand("again", d)
	clock.Step(time.Hour)
	g.Expect(k.lockedSweep(clock.Now(), time.Minute)).To(BeFalse())
	w.SetDemand("again", nil)
	g.Expect(k.lockedSweep(clock.Now().Add(time.Minute), time.Minute)).To(BeTrue())
}

func TestBackoff(t *testing.T) {
	g := NewWithT(t)
	b := backoff{least: 30 * time.Second, most: 10 * time.Minute}
	for _, whole := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		got := b.wait()
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
	p := problemOf(errors.New(string(make([]byte, 10_000))), k, "shop")
	NewWithT(t).Expect(len(p.message)).To(BeNumerically("<", 2*maxProblem))
}

// TestProblemsQuoteNoStranger: what is no API server's Status is not quoted. Servers
// that are there to be looked at answer with the request, and the token in it.
func TestProblemsQuoteNoStranger(t *testing.T) {
	g := NewWithT(t)
	_, k, _ := still(nil)
	stranger := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.Error(rw, "you sent "+r.Header.Get("Authorization"), http.StatusInternalServerError)
	}))
	defer stranger.Close()
	set, err := kubernetes.NewForConfig(&rest.Config{Host: stranger.URL, BearerToken: "s3cr3t"})
	g.Expect(err).NotTo(HaveOccurred())
	request := set.RESTClient().Get().AbsPath("/apis/example.org")
	g.Expect(request.Do(t.Context()).Error()).To(MatchError(ContainSubstring("s3cr3t")), "client-go quotes it")
	p := problemOf(k.ask(t.Context(), request, &metav1.APIGroup{}), k, "")
	g.Expect(p.reason).To(Equal(ReasonUnreadable))
	g.Expect(p.message).NotTo(ContainSubstring("s3cr3t"))
	g.Expect(p.message).To(ContainSubstring("500"))
}

// TestProblemsLast: the same trouble has the same words at each try.
func TestProblemsLast(t *testing.T) {
	_, k, _ := still(nil)
	at := func(port, timeout int) error {
		return fmt.Errorf("listing fakes: %w", &url.Error{
			Op: "Get", URL: fmt.Sprintf("https://10.0.0.1/apis/example.org/v1/fakes?timeoutSeconds=%d&watch=true", timeout),
			Err: &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: errors.New("connection reset\x1b[2J")},
		})
	}
	g := NewWithT(t)
	p := problemOf(at(40001, 312), k, "")
	g.Expect(p).To(Equal(problemOf(at(50002, 577), k, "")))
	g.Expect(p.message).To(HaveSuffix("read: connection reset [2J"))
}

// What is asked of a namespace that nobody reads will never be synced: who asks is told,
// and does not wait.
func TestReaderOfAnotherNamespace(t *testing.T) {
	g := NewWithT(t)
	kind := schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "MachineDeployment"}
	k := &keeper{lockedRun: &run{lockedInformers: map[string]*informer{"here": {lockedReady: true}}}}
	w := &Watcher{lockedState: state{clusters: map[multicluster.ClusterName]*watched{
		"": {lockedKinds: map[schema.GroupKind]*keeper{kind: k}},
	}}}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind.WithVersion("v1beta2"))
	err := w.Reader("").Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: "md"}, u)
	var unsynced *NotSyncedError
	g.Expect(errors.As(err, &unsynced)).To(BeTrue())
	g.Expect(unsynced.Message).To(Equal("MachineDeployment.cluster.x-k8s.io of namespace elsewhere are not read: the hub is kept to other namespaces"))
}
