package watchers

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// judged is a view of a kind in a cluster without a connection, at a fixed time, with
// default timings.
func judged(edit view) view {
	edit.now = time.Unix(1_000_000, 0)
	edit.timings.defaults()
	edit.place = place{kind: Kind{GroupKind: schema.GroupKind{Group: "example.org", Kind: "Fake"}}, cluster: "Cluster/team/prod", limits: limits{objects: 1}}
	return edit
}

func ago(seconds int64) time.Time { return time.Unix(1_000_000-seconds, 0) }

var (
	unreadable = problem{ReasonUnreadable, "is broken"}
	forbidden  = problem{ReasonForbidden, "is forbidden"}
	up         = clusters.Snapshot{State: capstanv1.ConnectionReady}
)

// TestJudge: the problems of a kind, a namespace or a connection, and which of them is
// reported.
func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name       string
		view       view
		want       string // "" is fresh
		namespaces map[string]string
	}{
		{name: "unknown cluster", want: ReasonConnecting},
		{name: "connecting", view: view{connection: clusters.Snapshot{State: capstanv1.ConnectionConnecting, Message: "x"}}, want: ReasonConnecting},
		{
			name: "the management cluster is silent", want: ReasonConnecting,
			view: view{connection: clusters.Snapshot{State: capstanv1.ConnectionConnecting, Reason: clusters.ReasonHubUnreadable}},
		},
		{name: "unreachable", view: view{connection: clusters.Snapshot{State: capstanv1.ConnectionUnreachable}, problem: unreadable}, want: ReasonUnreachable},
		{name: "credentials", view: view{connection: clusters.Snapshot{State: capstanv1.ConnectionAuthFailed}}, want: ReasonAuthFailed},
		{name: "removed", view: view{connection: clusters.Snapshot{State: capstanv1.ConnectionRemoved}}, want: ReasonRemoved},
		{name: "not planned", view: view{connection: up}, want: ReasonNotSynced},
		{name: "not planned for long", view: view{connection: up, began: ago(30)}, want: ReasonSlow},
		{name: "cannot be planned", view: view{connection: up, problem: unreadable}, want: ReasonUnreadable},
		{name: "no informer yet", view: view{connection: up, scopes: scopeAll}, want: ReasonNotSynced},
		{name: "waiting for a slot", view: view{connection: up, began: ago(1000), scopes: scopeAll, informers: []informerView{{}}}, want: ReasonNotSynced},
		{name: "listing", view: view{connection: up, scopes: scopeAll, informers: []informerView{{began: ago(29)}}}, want: ReasonNotSynced},
		{name: "listing for long", view: view{connection: up, scopes: scopeAll, informers: []informerView{{began: ago(30)}}}, want: ReasonSlow},
		{name: "cannot be listed", view: view{connection: up, scopes: scopeAll, informers: []informerView{{problem: unreadable}}}, want: ReasonUnreadable},
		{name: "synced, without a connection", view: view{connection: up, scopes: scopeAll, informers: []informerView{{ready: true}}}, want: ReasonSilent},
		{
			name: "synced, and silent", want: ReasonSilent,
			view: view{connection: up, connected: true, lastContact: ago(45), scopes: scopeAll, informers: []informerView{{ready: true}}},
		},
		{
			name: "fresh", want: "",
			view: view{connection: up, connected: true, lastContact: ago(44), scopes: scopeAll, informers: []informerView{{ready: true, behind: 44 * time.Second}}},
		},
		{
			name: "fresh, though the last run ended with a problem", want: "",
			view: view{connection: up, connected: true, lastContact: ago(1), problem: unreadable, scopes: scopeAll, informers: []informerView{{ready: true}}},
		},
		{
			name: "degraded is connected", want: "",
			view: view{connection: clusters.Snapshot{State: capstanv1.ConnectionDegraded}, connected: true, lastContact: ago(1), scopes: scopeAll, informers: []informerView{{ready: true}}},
		},
		{
			name: "synced, and its watch not open since an outage", want: ReasonResuming,
			view: view{connection: up, scopes: scopeAll, informers: []informerView{{ready: true, behind: 45 * time.Second}}},
		},
		{
			name: "fails for a moment", want: ReasonSilent,
			view: view{connection: up, scopes: scopeAll, informers: []informerView{{ready: true, problem: unreadable, failing: ago(44)}}},
		},
		{
			name: "fails for long, though probes are answered", want: ReasonUnreadable,
			view: view{connection: up, scopes: scopeAll, informers: []informerView{{ready: true, problem: unreadable, failing: ago(45)}}},
		},
		{
			name: "namespaces", want: ReasonSilent,
			view: view{connection: up, scopes: scopeNamespaces, informers: []informerView{
				{namespace: "a", ready: true}, {namespace: "b"}, {namespace: "c", ready: true, problem: forbidden, failing: ago(0)},
			}},
			namespaces: map[string]string{"b": ReasonNotSynced, "c": ReasonForbidden},
		},
		{
			name: "a namespace that is demanded and has no informer yet", want: ReasonSilent,
			view:       view{connection: up, scopes: scopeNamespaces, wanted: []string{"new"}},
			namespaces: map[string]string{"new": ReasonNotSynced},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			got := judge(judged(tc.view))
			g.Expect(got.whole.reason).To(Equal(tc.want))
			if tc.want == "" {
				g.Expect(got.whole).To(Equal(problem{}))
			} else {
				g.Expect(got.whole.message).To(Or(ContainSubstring("Cluster/team/prod"), ContainSubstring("broken")))
			}
			reasons := map[string]string{}
			for n, p := range got.namespaces {
				reasons[n] = p.reason
			}
			if tc.namespaces == nil {
				tc.namespaces = map[string]string{}
			}
			g.Expect(reasons).To(Equal(tc.namespaces))
		})
	}
}

// TestWatchedKind: what the Manager shows of a kind.
func TestWatchedKind(t *testing.T) {
	for _, tc := range []struct {
		name   string
		view   view
		synced bool
		reason string
	}{
		{name: "no run", reason: clusters.ReasonSyncing},
		{name: "no run for long", view: view{began: ago(30)}, reason: ReasonSlow},
		{name: "waiting for a slot", view: view{began: ago(1000), scopes: scopeAll, informers: []informerView{{}}}, reason: clusters.ReasonSyncing},
		{name: "listing", view: view{scopes: scopeAll, informers: []informerView{{began: ago(29)}}}, reason: clusters.ReasonSyncing},
		{name: "listing for long", view: view{scopes: scopeAll, informers: []informerView{{began: ago(30)}}}, reason: ReasonSlow},
		{name: "listed after a long time", view: view{scopes: scopeAll, informers: []informerView{{began: ago(1000), ready: true}}}, synced: true},
		{name: "the last run failed", view: view{problem: unreadable}, reason: ReasonUnreadable},
		{name: "another run is listing", view: view{problem: unreadable, scopes: scopeAll, informers: []informerView{{}}}, reason: clusters.ReasonSyncing},
		{name: "synced", view: view{scopes: scopeAll, informers: []informerView{{ready: true}}}, synced: true},
		{name: "no namespace demanded", view: view{scopes: scopeNamespaces}, reason: clusters.ReasonSyncing},
		{name: "one namespace is missing", view: view{scopes: scopeNamespaces, informers: []informerView{{namespace: "a", ready: true}, {namespace: "b"}}}, reason: clusters.ReasonSyncing},
		{name: "synced, and failing for a moment", view: view{scopes: scopeAll, informers: []informerView{{ready: true, problem: unreadable, failing: ago(44)}}}, synced: true},
		{name: "synced, and failing for long", view: view{scopes: scopeAll, informers: []informerView{{ready: true, problem: unreadable, failing: ago(45)}}}, reason: ReasonUnreadable},
		{
			name: "the first namespace that fails is named, and before one that is slow", reason: ReasonForbidden,
			view: view{scopes: scopeNamespaces, informers: []informerView{
				{namespace: "a", began: ago(30)}, {namespace: "b", ready: true, problem: forbidden}, {namespace: "c", problem: unreadable},
			}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			tc.view.version = "v1"
			got := watchedKind(judged(tc.view))
			g.Expect(got.Kind).To(Equal("Fake.example.org"))
			g.Expect(got.Version).To(Equal("v1"))
			g.Expect(got.Synced).To(Equal(tc.synced))
			g.Expect(got.Reason).To(Equal(tc.reason))
		})
	}
}

// TestDue: until a view is due, time alone changes nothing, and neither does the end of a watch, which is behind
// from the last contact at the earliest. Else it is due at once.
func TestDue(t *testing.T) {
	seconds := func(t *rapid.T, what string) time.Duration {
		return time.Duration(rapid.IntRange(0, 60).Draw(t, what)) * time.Second
	}
	rapid.Check(t, func(t *rapid.T) {
		at := func(what string) time.Time { // or none
			if rapid.Bool().Draw(t, what+" set") {
				return ago(0).Add(-seconds(t, what))
			}
			return time.Time{}
		}
		trouble := rapid.SampledFrom([]problem{{}, unreadable, forbidden})
		v := judged(view{
			connection: clusters.Snapshot{State: rapid.SampledFrom([]capstanv1.ConnectionState{
				capstanv1.ConnectionReady, capstanv1.ConnectionDegraded, capstanv1.ConnectionUnreachable, capstanv1.ConnectionConnecting,
			}).Draw(t, "state")},
			connected: rapid.Bool().Draw(t, "connected"), lastContact: ago(0).Add(-seconds(t, "contact")),
			moving: rapid.Bool().Draw(t, "moving"), began: at("began"), problem: trouble.Draw(t, "problem"),
			scopes: rapid.SampledFrom([]scopes{scopesUnknown, scopeAll, scopeNamespaces}).Draw(t, "scopes"),
			wanted: []string{"a", "b", "c"},
		})
		if rapid.Bool().Draw(t, "retries") {
			v.retryAt = ago(0).Add(seconds(t, "retry"))
		}
		if v.scopes != scopesUnknown {
			for _, namespace := range []string{"a", "b"}[:rapid.IntRange(0, 2).Draw(t, "informers")] {
				v.informers = append(v.informers, informerView{
					namespace: namespace, began: at("list"), ready: rapid.Bool().Draw(t, "ready"), problem: trouble.Draw(t, "call"),
					failing: ago(0).Add(-seconds(t, "failing")), behind: rapid.SampledFrom([]time.Duration{0, 0, seconds(t, "behind")}).Draw(t, "is behind"),
				})
			}
		}
		due := v.due()
		if due.Equal(v.now) {
			return
		}
		if !v.retryAt.IsZero() && v.retryAt.After(v.now) && (due.IsZero() || due.After(v.retryAt)) {
			t.Fatalf("due at %s, after the retry at %s", due, v.retryAt)
		}
		later := v
		later.now = v.now.Add(seconds(t, "later"))
		if !due.IsZero() && !later.now.Before(due) {
			later.now = due.Add(-1)
		}
		later.informers = slices.Clone(v.informers)
		ends, contact := v.connected && rapid.Bool().Draw(t, "watches end"), v.lastContact
		if v.moving {
			contact = contact.Add(-seconds(t, "older contact"))
		}
		for n := range later.informers {
			if i := &later.informers[n]; i.behind > 0 {
				i.behind += later.now.Sub(v.now)
			} else if ends {
				i.behind = later.now.Sub(contact)
			}
		}
		was, is := judge(v), judge(later)
		NewWithT(t).Expect(is.whole).To(Equal(was.whole), "due at %s, at %s", due, later.now)
		if answers(v.connection.State) { // Else the whole says more than the namespaces.
			NewWithT(t).Expect(is.namespaces).To(Equal(was.namespaces), "due at %s, at %s", due, later.now)
		}
		NewWithT(t).Expect(watchedKind(later)).To(Equal(watchedKind(v)), "due at %s, at %s", due, later.now)
	})
}

// TestWhatIsDueIsTaken: a tick takes the clusters that are due, and those that are marked as changed.
func TestWhatIsDueIsTaken(t *testing.T) {
	g := NewWithT(t)
	w, _, clock := still(nil)
	due := func() int { return len(w.takeDue()) }
	g.Expect(due()).To(Equal(1), "it is new")
	g.Expect(due()).To(BeZero())
	w.lockedState.clusters["Cluster/team/prod"].loop.due = clock.Now().Add(time.Second)
	g.Expect(due()).To(BeZero())
	clock.Step(time.Second)
	g.Expect(due()).To(Equal(1))
	w.ConnectionChanged(clusters.Snapshot{}, clusters.Snapshot{Name: "Cluster/team/prod"})
	w.lockedState.clusters["Cluster/team/prod"].loop.due = time.Time{}
	g.Expect(due()).To(Equal(1), "it has changed")
	g.Expect(due()).To(BeZero())
}

// TestReported: a kind that is not installed in the management cluster does not degrade it,
// except a kind of applications, which a Pipeline names.
func TestReported(t *testing.T) {
	missing := capstanv1.WatchedKind{Reason: ReasonNotInstalled}
	for _, tc := range []struct {
		name     string
		local    bool
		observed bool
		kind     capstanv1.WatchedKind
		want     bool
	}{
		{name: "not installed in the management cluster", local: true, kind: missing, want: false},
		{name: "applications, not installed in the management cluster", local: true, observed: true, kind: missing, want: true},
		{name: "forbidden in the management cluster", local: true, kind: capstanv1.WatchedKind{Reason: ReasonForbidden}, want: true},
		{name: "synced in the management cluster", local: true, kind: capstanv1.WatchedKind{Synced: true}, want: true},
		{name: "not installed in a workload cluster", kind: missing, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster := clusters.LocalName
			if !tc.local {
				cluster = "Cluster/team/prod"
			}
			NewWithT(t).Expect(reported(cluster, tc.observed, tc.kind)).To(Equal(tc.want))
		})
	}
}
