package clusters

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// TestManagementClusterWaitsForNoPlaceToDial: unreachable workload clusters hold all places.
func TestManagementClusterWaitsForNoPlaceToDial(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	m, err := New(Options{Local: &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, LocalOnly: true})
	g.Expect(err).NotTo(HaveOccurred())
	for i := range cap(m.dials.all) {
		release, err := m.dials.acquire(t.Context(), i < cap(m.dials.retry))
		g.Expect(err).NotTo(HaveOccurred())
		defer release()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	defer func() {
		cancel()
		g.Eventually(ended, "20s").Should(Receive(BeNil()))
	}()
	g.Eventually(func() capstanv1.ConnectionState {
		s, _ := m.Snapshot(LocalName)
		return s.State
	}, "20s").Should(Equal(capstanv1.ConnectionReady))
}

// TestTurns: a cluster that was not connected yet waits for a place to read its Secret, for a minute at most. One that is
// connected does not wait.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m, err := New(Options{Local: &rest.Config{Host: "https://127.0.0.1:1"}})
		g.Expect(err).NotTo(HaveOccurred())
		var held []func()
		for range cap(m.reads) {
			release, err := m.reads.acquire(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			held = append(held, release)
		}
		ref := Ref{Kind: "Cluster", Namespace: "team", Name: "prod"}
		k := newKeeper(m.shared, ref.ClusterName(), ref, m.forget)
		// turn returns how long a turn took to come.
		turn := func(ctx context.Context, k *keeper) (time.Duration, error) {
			began := time.Now()
			release, err := k.turn(ctx)
			release()
			return time.Since(began), err
		}

		g.Expect(turn(t.Context(), k)).To(Equal(longestTurn), "goes on without a place")
		ending, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		after, err := turn(ending, k)
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(after).To(Equal(time.Second))
		began := time.Now()
		reading, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g.Expect(k.readSecret(reading)).To(BeFalse())
		g.Expect(time.Since(began)).To(Equal(time.Second), "it takes a turn")
		time.AfterFunc(3*time.Second, held[0])
		g.Expect(turn(t.Context(), k)).To(Equal(3 * time.Second))
		g.Expect(turn(t.Context(), k)).To(BeZero(), "the place is free again")
		held[0], err = m.reads.acquire(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		k.lockedState.connection = &Connection{}
		g.Expect(turn(t.Context(), k)).To(BeZero(), "is connected")
	})
}

// TestConnectingIsShownAfterAMinute: a ClusterConnection continues to show its last state
// while the hub connects, which takes seconds. If it takes longer, it shows Connecting.
func TestConnectingIsShownAfterAMinute(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Unix(1_000_000, 0))
	m, err := New(Options{Local: &rest.Config{Host: "https://127.0.0.1:1"}, Clock: clock})
	g.Expect(err).NotTo(HaveOccurred())
	ref := Ref{Kind: "Cluster", Namespace: "team", Name: "prod"}
	k := newKeeper(m.shared, ref.ClusterName(), ref, m.forget)
	shown := func() capstanv1.ConnectionState {
		want := m.writer.lockedState.queue[k.name].desired
		return merged(capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionReady}, want.status, want.brief).State
	}
	k.apply(eventDemanded, readingMessage)
	g.Expect(shown()).To(Equal(capstanv1.ConnectionReady))
	g.Expect(k.untilNext()).To(Equal(time.Minute))
	clock.Step(time.Minute - time.Second)
	k.publishOverdue()
	g.Expect(shown()).To(Equal(capstanv1.ConnectionReady))
	clock.Step(time.Second)
	k.publishOverdue()
	g.Expect(shown()).To(Equal(capstanv1.ConnectionConnecting))
	g.Expect(k.untilNext()).To(Equal(idle), "once")
}

func TestIsBrief(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		outcome
		age  time.Duration
		want bool
	}{
		"reading":            {waiting, time.Second, true},
		"dialling":           {dialling, 59 * time.Second, true},
		"dialling for long":  {dialling, time.Minute, false},
		"hub unreadable":     {hubUnreadable, time.Second, false},
		"another server":     {replaced, time.Second, false},
		"connected":          {connected, time.Second, false},
		"credentials refuse": {unauthorized, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := Snapshot{State: tc.State, Reason: tc.Reason, Since: now.Add(-tc.age)}
			NewWithT(t).Expect(isBrief(s, now)).To(Equal(tc.want))
		})
	}
}

// TestTheNewestStatusIsQueuedLast: a cluster changes while what is watched in it is reported. The status
// that is queued has both.
func TestTheNewestStatusIsQueuedLast(t *testing.T) {
	g := NewWithT(t)
	m, err := New(Options{Local: &rest.Config{Host: "https://127.0.0.1:1"}, Clock: testclock.NewFakeClock(time.Unix(1_000_000, 0))})
	g.Expect(err).NotTo(HaveOccurred())
	ref := Ref{Kind: "Cluster", Namespace: "team", Name: "prod"}
	for apps := range 100_000 {
		k := newKeeper(m.shared, ref.ClusterName(), ref, m.forget)
		var reporting sync.WaitGroup
		reporting.Go(func() {
			k.report(nil, apps)
			k.publish()
		})
		k.apply(eventDemanded, readingMessage)
		reporting.Wait()
		queued := m.writer.lockedState.queue[k.name].desired.status
		g.Expect(queued.State).To(Equal(capstanv1.ConnectionConnecting))
		g.Expect(queued.Apps).To(BeEquivalentTo(apps))
	}
}
