package clusters

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/backoff"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

var update = flag.Bool("update", false, "write generated documents instead of checking them")

// TestTableDocument: docs/connection-states.md is generated from the table.
func TestTableDocument(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(controlplane.Root(), "docs", "connection-states.md")
	if *update {
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(document()), 0o644)).To(Succeed())
	}
	written, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred(), "run go test ./clusters -run TestTableDocument -update")
	g.Expect(string(written)).To(Equal(document()), "run go test ./clusters -run TestTableDocument -update")
}

func document() string {
	var b strings.Builder
	b.WriteString("# States of a connection\n\n")
	b.WriteString("Generated from the table in clusters/state.go by its test (`go test ./clusters -run TestTableDocument -update`).\n")
	b.WriteString("Columns are states, rows are events. A cell is the next state and its reason; a dot means that nothing changes.\n")
	b.WriteString("Requests are sent in Ready and Degraded. They wait in every other state.\n\n| |")
	for _, s := range States() {
		fmt.Fprintf(&b, " %s |", s)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(States())) + "\n")
	for _, row := range Table() {
		fmt.Fprintf(&b, "| %s |", row.Event)
		for _, to := range row.To {
			if to == "" {
				to = "·"
			}
			fmt.Fprintf(&b, " %s |", to)
		}
		b.WriteString("\n")
	}
	d := DefaultTimings()
	fmt.Fprintf(&b, `
| what | when |
|---|---|
| probe (GET %s, %s at most) | every %s, less up to %.0f %%, unless there was a contact with the cluster within that time |
| after a failed probe | %s; %s while the cluster has answered neither this hub nor an earlier one |
| between the good probes that end an outage | %s; as after a failed probe, if it began within %s after the last one |
| Degraded | %d consecutive failed probes |
| Unreachable | %d consecutive failed probes, and no byte received for %s (while requests wait: no response to the probes). Not after %s, which answers 500: then it stays Degraded |
| AuthFailed, where the credentials worked before | %d consecutive 401: at once, and %s, %s and %s later. Requests wait meanwhile, open watches continue |
| Ready again | %d consecutive good probes |
| probes of an Unreachable cluster | %s, doubling to %s, with jitter, and at most a quarter of the outage |
| after AuthFailed | at once when the Secret changes; else %s, doubling to %s |
| a kind makes the cluster Degraded | when it cannot be watched, or its initial list takes longer than the watchers permit (ListSlow) |
| a connection without demand is kept for | %s |
`, probePath, d.ProbeTimeout, d.ProbeInterval, 100*probeJitter, d.ProbeRetry, d.ConnectRetry, d.ProbeConfirm, steadyFor, failingThreshold, lossThreshold, d.Silence,
		probePath, rejectedThreshold, d.AuthRecheck, 2*d.AuthRecheck, 4*d.AuthRecheck,
		steadyThreshold, d.UnreachableRetry, d.UnreachableRetryMax, d.AuthRetry, d.AuthRetryMax, d.Linger)
	return b.String()
}

func TestTableIsWhole(t *testing.T) {
	g := NewWithT(t)
	g.Expect(states).To(HaveLen(7))
	for e := range eventCount {
		g.Expect(e.String()).NotTo(Equal("unknown"))
		if e != eventAnswered && e != eventMissed && e != eventRejected { // which change nothing, on purpose
			g.Expect(table[e]).NotTo(BeZero(), "a row was forgotten: %s", e)
		}
	}
}

func TestTableRules(t *testing.T) {
	g := NewWithT(t)
	for _, s := range states {
		from := outcome{State: s, Reason: "Some"}
		// One lost packet greys nothing.
		g.Expect(next(from, eventMissed)).To(Equal(from))
		// Neither do some seconds of 401.
		g.Expect(next(from, eventRejected)).To(Equal(from))
		// Silence of the management cluster takes nothing from what works.
		if passes(s) {
			g.Expect(next(from, eventHubUnreadable)).To(Equal(from))
		}
		// The state of a cluster without demand only changes with its removal or a demand.
		if s == capstanv1.ConnectionUnused {
			for e := range eventCount {
				if e != eventDemanded && e != eventRemoved {
					g.Expect(next(from, e)).To(Equal(from), "%s", e)
				}
			}
		}
		// No probe brings a removed cluster back.
		if s == capstanv1.ConnectionRemoved {
			for _, e := range []event{eventAnswered, eventHealthy, eventKinds, eventProbeForbidden, eventFailing, eventLost, eventUnauthorized} {
				g.Expect(next(from, e)).To(Equal(from), "%s", e)
			}
		}
		g.Expect(next(from, eventRemoved).State).To(Equal(capstanv1.ConnectionRemoved))
	}
}

func TestHealth(t *testing.T) {
	ready, away := connected, probesFailed
	type probe struct {
		result probeResult
		loud   bool // bytes still come
		bad    bool // a kind fails
		want   event
	}
	for _, tc := range []struct {
		name   string
		was    outcome
		probes []probe
		ends   outcome
	}{
		{"first connect", dialling, []probe{{result: probeGood, want: eventHealthy}}, ready},
		{"one failure", ready, []probe{{result: probeFailed, want: eventMissed}, {result: probeGood, want: eventHealthy}}, ready},
		{"two failures, two good", ready, []probe{{result: probeFailed, want: eventMissed}, {result: probeFailed, want: eventFailing}, {result: probeGood, want: eventAnswered}, {result: probeGood, want: eventHealthy}}, ready},
		{"three failures", ready, []probe{{result: probeFailed, want: eventMissed}, {result: probeFailed, want: eventFailing}, {result: probeFailed, want: eventLost}}, away},
		{"failures while bytes come", ready, []probe{{result: probeFailed, loud: true, want: eventMissed}, {result: probeFailed, loud: true, want: eventFailing}, {result: probeFailed, loud: true, want: eventFailing}, {result: probeFailed, want: eventLost}}, away},
		{"recovery", away, []probe{{result: probeGood, want: eventAnswered}, {result: probeGood, want: eventHealthy}}, ready},
		{"flapping", away, []probe{{result: probeGood, want: eventAnswered}, {result: probeFailed, want: eventMissed}, {result: probeGood, want: eventAnswered}, {result: probeFailed, want: eventMissed}}, away},
		{"recovery with a failing kind", away, []probe{{result: probeGood, bad: true, want: eventAnswered}, {result: probeGood, bad: true, want: eventKinds}}, kindNotSynced},
		{"forbidden", ready, []probe{{result: probe403, want: eventProbeForbidden}, {result: probeGood, want: eventHealthy}}, ready},
		{"rejected for a moment", ready, []probe{{result: probe401, want: eventRejected}, {result: probe401, want: eventRejected}, {result: probe401, want: eventRejected}, {result: probeGood, want: eventHealthy}}, ready},
		{"rejected twice for a moment", ready, []probe{{result: probe401, want: eventRejected}, {result: probe401, want: eventRejected}, {result: probe401, want: eventRejected}, {result: probeGood, want: eventHealthy}, {result: probe401, want: eventRejected}, {result: probeGood, want: eventHealthy}}, ready},
		{"rejected", ready, []probe{{result: probe401, want: eventRejected}, {result: probe401, want: eventRejected}, {result: probe401, want: eventRejected}, {result: probe401, want: eventUnauthorized}, {result: probe401, want: eventUnauthorized}}, unauthorized},
		{"rejected, renewed", ready, []probe{{result: probe401, want: eventRejected}, {result: probe401, want: eventRejected}, {result: probe401, want: eventRejected}, {result: probe401, want: eventUnauthorized}, {result: probeGood, want: eventHealthy}}, ready},
		{"never accepted", dialling, []probe{{result: probe401, want: eventUnauthorized}}, unauthorized},
		{"not ready, with silent watches", ready, []probe{{result: probeNotReady, want: eventMissed}, {result: probeNotReady, want: eventFailing}, {result: probeNotReady, want: eventFailing}, {result: probeNotReady, want: eventFailing}}, probeFailing},
		{"not ready, then lost", ready, []probe{{result: probeNotReady, want: eventMissed}, {result: probeNotReady, want: eventFailing}, {result: probeUnanswered, want: eventLost}}, away},
		{"never ready", dialling, []probe{{result: probeNotReady, want: eventMissed}, {result: probeNotReady, want: eventFailing}, {result: probeNotReady, want: eventLost}}, away},
		{"never there", dialling, []probe{{result: probeFailed, want: eventMissed}, {result: probeFailed, want: eventFailing}, {result: probeFailed, want: eventLost}}, away},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			h, at := health{}, tc.was
			for i, p := range tc.probes {
				e := h.judge(p.result, at, !p.loud, !p.bad)
				g.Expect(e).To(Equal(p.want), "probe %d", i)
				at = next(at, e)
			}
			g.Expect(at).To(Equal(tc.ends))
		})
	}
}

// TestHealthProperty: however probes fall, a cluster is only Unreachable after
// three failures in a row, and only leaves that with two good ones in a row.
func TestHealthProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, at := health{}, connected
		var results []probeResult
		lastN := func(n int, r probeResult) bool {
			if len(results) < n {
				return false
			}
			for _, x := range results[len(results)-n:] {
				if x != r {
					return false
				}
			}
			return true
		}
		for range rapid.IntRange(1, 60).Draw(t, "probes") {
			r := rapid.SampledFrom([]probeResult{probeGood, probeFailed}).Draw(t, "result")
			silent := rapid.Bool().Draw(t, "silent")
			results = append(results, r)
			was := at
			at = next(at, h.judge(r, at, silent, true))
			entered := was.State != capstanv1.ConnectionUnreachable && at.State == capstanv1.ConnectionUnreachable
			left := was.State == capstanv1.ConnectionUnreachable && at.State != capstanv1.ConnectionUnreachable
			if entered && (!silent || !lastN(lossThreshold, probeFailed)) {
				t.Fatalf("Unreachable after %v, silent %t", results, silent)
			}
			if left && !lastN(steadyThreshold, probeGood) {
				t.Fatalf("left Unreachable after %v", results)
			}
			if lastN(steadyThreshold, probeGood) && at != connected {
				t.Fatalf("%v after %v", at, results)
			}
		}
	})
}

func TestFailingKind(t *testing.T) {
	for _, tc := range []struct {
		name    string
		kinds   []capstanv1.WatchedKind
		failing string
	}{
		{name: "none"},
		{name: "synced", kinds: []capstanv1.WatchedKind{{Kind: "b", Synced: true, Reason: "Forbidden"}}},
		{name: "being listed", kinds: []capstanv1.WatchedKind{{Kind: "a", Reason: ReasonSyncing}}},
		{name: "failing", kinds: []capstanv1.WatchedKind{{Kind: "a", Reason: ReasonSyncing}, {Kind: "b", Reason: "Forbidden"}, {Kind: "c", Reason: "TooLarge"}}, failing: "b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			failing := failingKind(tc.kinds)
			if tc.failing == "" {
				g.Expect(failing).To(BeNil())
			} else {
				g.Expect(failing.Kind).To(Equal(tc.failing))
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	g := NewWithT(t)
	b := backoff.NewSequence(5*time.Second, 5*time.Minute)
	for _, full := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		g.Expect(b.Wait()).To(And(BeNumerically(">=", full*time.Second/2), BeNumerically("<=", full*time.Second)))
	}
	b.Reset()
	g.Expect(b.Wait()).To(BeNumerically("<=", 5*time.Second))
}

// TestOneLostProbeIsNotStale: a silent cluster of which one probe is lost answers the next one
// before its observations are stale, which they are 45 s after the last contact.
func TestOneLostProbeIsNotStale(t *testing.T) {
	g := NewWithT(t)
	d := DefaultTimings()
	k := &keeper{m: &shared{timings: d}}
	const fresh = 45 * time.Second
	const answer = time.Second // which a healthy cluster takes at most
	for range 1000 {
		interval := k.probeInterval()
		g.Expect(interval).To(BeNumerically(">=", 24*time.Second))
		g.Expect(interval + d.ProbeTimeout + d.ProbeRetry + answer).To(BeNumerically("<", fresh))
	}
}

// TestDialsDoNotStarve: clusters that have failed cannot take the places of those
// that are tried for the first time.
func TestDialsDoNotStarve(t *testing.T) {
	g := NewWithT(t)
	const places, retryPlaces = 64, 64 / retryShare
	d := newDials(places)
	taken := make(chan func(), 1000)
	for range 200 {
		go func() {
			if release, err := d.acquire(t.Context(), true); err == nil {
				taken <- release
			}
		}()
	}
	g.Eventually(taken).Should(HaveLen(retryPlaces))
	g.Consistently(taken, "50ms").Should(HaveLen(retryPlaces))
	var fresh []func()
	for range places - retryPlaces {
		release, err := d.acquire(t.Context(), false)
		g.Expect(err).NotTo(HaveOccurred())
		fresh = append(fresh, release)
	}
	for _, release := range fresh {
		release()
	}
	(<-taken)()
	g.Eventually(taken).Should(HaveLen(retryPlaces), "a place that is given back is taken again")
}

// TestReadTable: a text that is no table of all events and states is refused, with what
// is wrong.
func TestReadTable(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"column":  {"Unreachable  ", "Unreached    ", "Unreached"},
		"outcome": {"kindNotSynced", "kindOfSynced", "kindOfSynced"},
		"event":   {"one failed probe", "one lost probe", "one lost probe"},
		"cells":   {"demanded  ", "demanded  -  ", "demanded"},
		"rows":    {"\nunauthorized  ", "  ", "one row for each event"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(tableText).To(ContainSubstring(tc.old))
			g.Expect(func() { readTable(strings.Replace(tableText, tc.old, tc.new, 1)) }).To(PanicWith(ContainSubstring(tc.want)))
		})
	}
}

// uids records the UIDs of which it is notified.
type uids []string

func (u *uids) ConnectionChanged(from, to Snapshot) {
	*u = append(*u, from.ClusterUID+">"+to.ClusterUID)
}
func (u *uids) ReferenceChanged(Ref) {}

// TestAnotherClusterAnswers: the listeners are notified when another cluster answers at the address without a
// change of state. What is read for the first time, again, or not at all, is no change.
func TestAnotherClusterAnswers(t *testing.T) {
	g := NewWithT(t)
	var notified uids
	k := &keeper{m: &shared{listeners: []Listener{&notified}}}
	for _, read := range []string{"", "a", "a", "", "b"} {
		k.identified("", read)
	}
	g.Expect(notified).To(Equal(uids{"a>b"}))
	k.lockedState.snapshot.ClusterUID = "" // The Secret was away.
	for _, read := range []string{"", "c"} {
		k.identified("", read)
	}
	g.Expect(notified).To(Equal(uids{"a>b", ">c"}))
	g.Expect(k.snapshot().ClusterUID).To(Equal("c"))
}

// TestAMessageIsAChange: where it says why a cluster does not answer, and not where the cluster answers.
func TestAMessageIsAChange(t *testing.T) {
	g := NewWithT(t)
	var notified uids
	k := &keeper{m: &shared{listeners: []Listener{&notified}, clock: clock.RealClock{}}}
	for _, tc := range []struct {
		from outcome
		e    event
		want int
	}{
		{secretMissing, eventSecretMissing, 1},
		{kindNotSynced, eventKinds, 0},
	} {
		notified = nil
		k.lockedState.snapshot.State, k.lockedState.snapshot.Reason = tc.from.State, tc.from.Reason
		k.apply(tc.e, "one")
		k.apply(tc.e, "one")
		g.Expect(notified).To(HaveLen(tc.want), tc.from.Reason)
		k.apply(tc.e, "another")
		g.Expect(notified).To(HaveLen(2*tc.want), tc.from.Reason)
		g.Expect(k.snapshot().Message).To(Equal("another"))
	}
}
