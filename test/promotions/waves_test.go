package promotions_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/strategy/notification"
)

// ring returns the labels of a cluster of prod in a ring.
func ring(n int) labels.Set { return labels.Set{"tier": "prod", "ring": fmt.Sprint(n)} }

// inRing is a wave that selects a ring.
func inRing(name string, n int) pipelinesv1.Wave {
	return pipelinesv1.Wave{Name: name, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": fmt.Sprint(n)}}}
}

// rings are the waves canary (ring 0), early (ring 1) and rest.
func rings(change ...func([]pipelinesv1.Wave)) []pipelinesv1.Wave {
	waves := []pipelinesv1.Wave{inRing("canary", 0), inRing("early", 1), {Name: "rest"}}
	for _, c := range change {
		c(waves)
	}
	return waves
}

// wavesOf is a world whose prod has waves, with clusters that have labels and run 1.0. dev runs 1.1.
func wavesOf(t *testing.T, waves []pipelinesv1.Wave, members map[string]labels.Set, change ...func(*pipelinesv1.Pipeline)) (*WithT, context.Context, *world, *hubUnder) {
	t.Helper()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", notify(false), "dev", "prod")
	p.Spec.Environments[1].Targets, p.Spec.Environments[1].Waves = prodTargets(), waves
	for _, c := range change {
		c(p)
	}
	for name, set := range members {
		w.label(name, set)
	}
	if err := w.c.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	h := w.hub("hub", w.c, nil)
	h.settle(ctx)
	w.runs("dev", "1.0")
	for name := range members {
		w.runs(name, "1.0")
	}
	h.settle(ctx)
	if p.Spec.Environments[1].Verification != nil {
		h.live(ctx, 6*time.Hour, 10*time.Minute)
	}
	w.runs("dev", "1.1")
	h.settle(ctx)
	return g, ctx, w, h
}

// verifiedOrBack: a revision is verified in prod, and rolled back if it fails.
func verifiedOrBack(p *pipelinesv1.Pipeline) {
	p.Spec.Environments[1].Verification = &pipelinesv1.Verification{For: "30m", Tolerate: "5m"}
	p.Spec.Environments[1].Rollback = &pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote}
}

// threeRings are five clusters in three rings.
func threeRings() map[string]labels.Set {
	return map[string]labels.Set{"eu-0": ring(0), "eu-1": ring(1), "eu-2": ring(1), "eu-3": ring(2), "eu-4": ofProd}
}

// runsInAll lets the clusters of threeRings run a revision, ring by ring, until its promotions have succeeded.
func (w *world) runsInAll(ctx context.Context, h *hubUnder, revision string) {
	w.Helper()
	for _, clusters := range [][]string{{"eu-0"}, {"eu-1", "eu-2"}, {"eu-3", "eu-4"}} {
		for _, c := range clusters {
			w.runs(c, revision)
		}
		h.settle(ctx)
		if w.pipeline(ctx, "web").Spec.Environments[1].Verification != nil {
			h.live(ctx, 35*time.Minute, 5*time.Minute)
		}
	}
	w.expectPhase(ctx, NewWithT(w), "prod/rest", capstanv1.PhaseSucceeded)
}

// sentTo returns which revisions were sent to an environment, in order.
func (w *world) sentTo(env string) []string {
	var all []string
	for _, e := range w.receiver.received() {
		if e.Metadata[notification.KeyEnvironment] == env {
			all = append(all, e.Metadata[notification.KeyRevision])
		}
	}
	return all
}

// lastSentTo returns the revision that was sent last to a cluster with a manifest of its own; empty for none.
func (w *world) lastSentTo(cluster string) (revision string) {
	for _, e := range w.receiver.received() {
		if slices.Contains(strings.Split(e.Metadata[notification.KeyClusters], ","), w.ns+"/"+cluster) {
			revision = e.Metadata[notification.KeyVersion]
		}
	}
	return revision
}

func (w *world) wave(ctx context.Context, name string) *pipelinesv1.EnvironmentStatus {
	w.Helper()
	status := w.pipeline(ctx, "web").Status.Environments["prod/"+name]
	if status == nil {
		w.Fatalf("there is no wave %s", name)
	}
	return status
}

// G40: a revision goes through the waves one after the other, and a wave waits for all of the one before. Each is a promotion of
// its own; the whole environment shows how far it is.
func TestG40WavesFollowEachOther(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings())
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.into(ctx, "prod/early")).To(BeEmpty())
	p := w.newest(ctx, "prod/canary")
	g.Expect(*p.Spec.Wave).To(Equal(capstanv1.PromotionWave{Environment: "prod", Name: "canary", Clusters: []string{w.ns + "/eu-0"}}))
	g.Expect(p.Spec.Source).To(Equal(capstanv1.PromotionSource{Environment: "dev", Sequence: 2}))
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseSucceeded)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.newest(ctx, "prod/early").Spec.Source).To(Equal(capstanv1.PromotionSource{Environment: "prod/canary", Sequence: 2}))
	whole := w.counts(ctx)
	g.Expect(whole).To(And(HaveField("Targets", int32(5)), HaveField("Ready", int32(1)), HaveField("Revision", "1.1"), HaveField("Message", "1.1: canary; 1.0: early, rest")))

	w.runs("eu-1", "1.1") // One of two still shows the old revision, ready.
	h.settle(ctx)
	h.live(ctx, 2*time.Hour, 10*time.Minute)
	g.Expect(w.into(ctx, "prod/rest")).To(BeEmpty())
	w.runs("eu-2", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseAwaitingRollout)
	last := w.newest(ctx, "prod/rest")
	g.Expect(*last.Spec.Wave).To(Equal(capstanv1.PromotionWave{Environment: "prod", Name: "rest", Last: true, Clusters: []string{w.ns + "/eu-3", w.ns + "/eu-4"}}))
	w.runs("eu-3", "1.1")
	w.runs("eu-4", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseSucceeded)
	g.Expect(w.counts(ctx)).To(And(HaveField("Ready", int32(5)), HaveField("Message", "1.1: canary, early, rest")))
	for _, wave := range []string{"canary", "early", "rest"} {
		g.Expect(w.sentTo("prod/" + wave)).To(Equal([]string{"1.1"}))
	}
	received := w.receiver.received()
	g.Expect(received[len(received)-1].Metadata).To(HaveKeyWithValue(notification.KeyClusters, w.ns+"/eu-3,"+w.ns+"/eu-4"))
}

// G18: a window that closes holds the waves that have not begun, and so does the stop button.
func TestG18AWindowHoldsAllWaves(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings())
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingRollout)
	p := w.pipeline(ctx, "web")
	p.Spec.Gates = &pipelinesv1.Gates{Windows: []pipelinesv1.Window{{Name: "freeze", WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow}}}}
	g.Expect(w.c.Update(ctx, p)).To(Succeed())
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	h.live(ctx, 3*time.Hour, 10*time.Minute)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseSucceeded)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingGates)
	g.Expect(w.into(ctx, "prod/rest")).To(BeEmpty())
	g.Expect(w.receiver.received()).To(HaveLen(1), "no attempt")
	p = w.pipeline(ctx, "web")
	p.Spec.Gates = nil
	g.Expect(w.c.Update(ctx, p)).To(Succeed())
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
}

// A wave soaks before the next one; the soak of the gates is that of the source, and is for the first wave only. The first
// wave needs the approval, and the others do not.
func TestSoaksAndApprovalsOfWaves(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(func(waves []pipelinesv1.Wave) { waves[0].Soak = &pipelinesv1.Soak{For: "1h"} }), threeRings(), func(p *pipelinesv1.Pipeline) {
		p.Spec.Gates, p.Spec.Promotion.Manual = soaking("2h"), true
	})
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingGates)
	h.live(ctx, 119*time.Minute, 10*time.Minute)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingGates)
	h.live(ctx, 2*time.Minute, time.Minute)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingApproval)
	approve(ctx, g, w, w.newest(ctx, "prod/canary"))
	h.settle(ctx)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingGates)
	h.live(ctx, 30*time.Minute, 10*time.Minute)
	restarted := w.hub("restarted", w.c, nil)
	restarted.settle(ctx)
	restarted.live(ctx, 25*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingGates)
	restarted.live(ctx, 15*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
	w.runs("eu-1", "1.1")
	w.runs("eu-2", "1.1")
	restarted.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseAwaitingRollout)
}

// G37, G38: clusters join and leave waves, one fits none, and a wave becomes empty. An empty wave is passed over; the approval is then that of
// the first wave that has clusters.
func TestG37G38ClustersOfWaves(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingApproval)
	w.label("eu-0", nil) // The canary is empty now.
	h.settle(ctx)
	w.expectReason(ctx, g, "prod/canary", capstanv1.PhaseSuperseded, decision.EnvironmentRemoved)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingApproval)
	g.Expect(w.receiver.received()).To(BeEmpty())
	g.Expect(w.pipeline(ctx, "web").Status.Environments).NotTo(HaveKey("prod/canary"))
	approve(ctx, g, w, w.newest(ctx, "prod/early"))
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
	w.label("eu-9", labels.Set{"tier": "prod", "ring": "9"}) // It fits no wave: it is in the last one.
	w.runs("eu-1", "1.1")
	w.runs("eu-2", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.newest(ctx, "prod/rest").Spec.Wave.Clusters).To(ContainElement(w.ns + "/eu-9"))
	w.label("eu-4", nil)
	w.runs("eu-3", "1.1")
	w.runs("eu-9", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseSucceeded)

	w.label("eu-0", ring(0)) // It returns with the old revision: that of dev is promoted to it.
	h.settle(ctx)
	w.runs("eu-0", "1.0")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingApproval)
	g.Expect(w.into(ctx, "prod/early")).To(HaveLen(1))
	g.Expect(w.into(ctx, "prod/rest")).To(HaveLen(1))
}

// A cluster that joins a wave after its promotion gets a promotion when it is late: its manifest is its own.
func TestAClusterThatJoinsAWaveIsPromotedTo(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings())
	for _, c := range []string{"eu-0", "eu-1", "eu-2", "eu-3", "eu-4"} {
		w.runs(c, "1.1")
		h.settle(ctx)
	}
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseSucceeded)
	g.Expect(w.into(ctx, "prod/early")).To(HaveLen(1))
	w.label("eu-8", ring(1))
	h.settle(ctx)
	w.runs("eu-8", "1.0")
	h.settle(ctx)
	h.live(ctx, 25*time.Minute, 5*time.Minute)
	g.Expect(w.into(ctx, "prod/early")).To(HaveLen(1))
	h.live(ctx, 10*time.Minute, 5*time.Minute)
	g.Expect(w.into(ctx, "prod/early")).To(HaveLen(2))
	p := w.newest(ctx, "prod/early")
	g.Expect(p.Spec.Revision).To(Equal("1.1"))
	g.Expect(p.Spec.Wave.Clusters).To(Equal([]string{w.ns + "/eu-1", w.ns + "/eu-2", w.ns + "/eu-8"}))
	h.live(ctx, 2*time.Hour, 10*time.Minute)
	g.Expect(w.into(ctx, "prod/early")).To(HaveLen(2), "once")
	w.runs("eu-8", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseSucceeded)
	g.Expect(w.into(ctx, "prod/rest")).To(HaveLen(1))
}

// G62: the second wave fails, and a new revision is released: the canary gets it first, and no cluster is skipped.
func TestG62TheSecondWaveFails(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), verifiedOrBack)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseSucceeded)
	w.runs("eu-1", "1.1")
	w.runs("eu-2", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseVerifying)
	w.unready("eu-2", "1.1", false)
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	p := w.newest(ctx, "prod/early")
	g.Expect(p.Spec.RollbackOf).NotTo(BeNil())
	g.Expect(p.Spec.Revision).To(Equal("1.0"))
	g.Expect(w.newest(ctx, "prod/canary").Spec.RollbackOf).To(BeNil(), "only its own wave is rolled back")
	w.runs("eu-1", "1.0")
	w.runs("eu-2", "1.0")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseSucceeded)
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(And(HaveField("Type", pipelinesv1.WavesDivergedCondition),
		HaveField("Message", ContainSubstring(`environment "prod": early runs 1.0 since 1.1 was rolled back there, and still in canary`)))))
	g.Expect(w.sentTo("prod/rest")).NotTo(ContainElement("1.1"))

	w.runs("dev", "1.2")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingRollout)
	for _, wave := range []struct {
		name    string
		members []string
	}{{"canary", []string{"eu-0"}}, {"early", []string{"eu-1", "eu-2"}}, {"rest", []string{"eu-3", "eu-4"}}} {
		g.Expect(w.newest(ctx, "prod/"+wave.name).Spec.Revision).To(Equal("1.2"), wave.name)
		for _, c := range wave.members {
			w.runs(c, "1.2")
		}
		h.settle(ctx)
		h.live(ctx, 31*time.Minute, 5*time.Minute)
		w.expectPhase(ctx, g, "prod/"+wave.name, capstanv1.PhaseSucceeded)
	}
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).NotTo(ContainElement(HaveField("Type", pipelinesv1.WavesDivergedCondition)))
}

// The clusters cannot be listed after a restart: each wave keeps its clusters, nothing is promoted, and nothing in flight
// ends.
func TestWavesKeepTheirClusters(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings())
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
	w.clusters.fail(fmt.Errorf("%w: connection refused", clusters.ErrNotSynced))
	restarted := w.hub("restarted", w.c, nil)
	w.runs("eu-1", "1.1")
	w.runs("eu-2", "1.1")
	restarted.settle(ctx)
	restarted.live(ctx, time.Hour, 10*time.Minute)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.into(ctx, "prod/rest")).To(BeEmpty())
	g.Expect(w.wave(ctx, "early").Targets).To(HaveLen(3), "two, and the selector")
	w.clusters.fail(nil)
	restarted.settle(ctx)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseSucceeded)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.into(ctx, "prod/early")).To(HaveLen(1))
}

// Batches: the name of a cluster determines its batch, so that clusters that join and leave move no other.
func TestBatches(t *testing.T) {
	t.Parallel()
	all := map[string]labels.Set{}
	for i := range 30 {
		all[eu(i)] = ofProd
	}
	g, ctx, w, h := wavesOf(t, []pipelinesv1.Wave{{Name: "rest", Batches: 3}}, all)
	members := func() map[string]string {
		of := map[string]string{}
		for _, wave := range []string{"rest-1", "rest-2", "rest-3"} {
			for _, target := range w.wave(ctx, wave).Targets {
				of[target.ClusterAppRef.ClusterRef.Name] = wave
			}
		}
		return of
	}
	before := members()
	g.Expect(before).To(HaveLen(30))
	for _, wave := range []string{"rest-1", "rest-2", "rest-3"} {
		g.Expect(w.wave(ctx, wave).Fleet.Targets).To(BeNumerically(">=", 4), wave)
	}
	w.expectPhase(ctx, g, "prod/rest-1", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.into(ctx, "prod/rest-2")).To(BeEmpty())
	for i := range 10 {
		w.label(eu(i), nil)
	}
	for i := range 40 {
		w.label(eu(100+i), ofProd)
	}
	h.settle(ctx)
	for i := range 40 { // They are connected and do not run the application. A wave may have more of them than of the others.
		w.absent(eu(100 + i))
	}
	h.settle(ctx)
	for name, wave := range members() {
		if was, known := before[name]; known {
			g.Expect(wave).To(Equal(was), name)
		}
	}
	for _, wave := range []string{"rest-1", "rest-2", "rest-3"} {
		w.expectPhase(ctx, g, "prod/"+wave, capstanv1.PhaseAwaitingRollout)
		for name, of := range members() {
			if of == wave {
				w.runs(name, "1.1")
			}
		}
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod/"+wave, capstanv1.PhaseSucceeded)
	}
}

// A wave that cannot be observed holds the waves behind it.
func TestAWaveThatCannotBeObserved(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings())
	w.runs("eu-0", "1.1")
	w.stale("eu-0")
	h.settle(ctx)
	h.live(ctx, 3*time.Hour, 10*time.Minute)
	g.Expect(w.into(ctx, "prod/early")).To(BeEmpty())
	w.x.SetFreshness(w.cluster("eu-0"), helm, index.Freshness{Fresh: true})
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
}

// Bad waves stop their environment, with the path and what to do. What is in flight goes on when they are corrected.
func TestBadWaves(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		waves []pipelinesv1.Wave
		want  string
	}{
		"a wave behind the rest": {[]pipelinesv1.Wave{{Name: "all"}, inRing("late", 2)},
			`spec.environments[1].waves[0] (wave "all") has no selector, or an empty one, so that no cluster is left for the waves behind it: set one, or move the wave to the end`},
		"a wave that selects all clusters": {[]pipelinesv1.Wave{{Name: "all", Selector: &metav1.LabelSelector{}}, {Name: "rest"}},
			`spec.environments[1].waves[0] (wave "all") has no selector, or an empty one, so that no cluster is left for the waves behind it: set one, or move the wave to the end`},
		"a selector that is none": {[]pipelinesv1.Wave{{Name: "canary", Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "ring", Operator: "Near"}}}}, {Name: "rest"}},
			`spec.environments[1].waves[0].selector (wave "canary"): "Near" is not a valid label selector operator`},
		"too many": {[]pipelinesv1.Wave{inRing("canary", 0), {Name: "rest", Batches: 20}},
			"spec.environments[1].waves has 21 batches and other waves, and may have 20: use fewer batches"},
		"a name that is also a batch": {[]pipelinesv1.Wave{inRing("rest-2", 0), {Name: "rest", Batches: 2}},
			`spec.environments[1].waves[1]: the name "prod/rest-2" is used twice`},
		"a soak that is none": {[]pipelinesv1.Wave{{Name: "canary", Selector: inRing("canary", 0).Selector, Soak: &pipelinesv1.Soak{For: "soon"}}, {Name: "rest"}},
			`spec.environments[1].waves[0].soak.for: "soon" is not a duration`},
		"a soak with nothing behind it": {[]pipelinesv1.Wave{inRing("canary", 0), {Name: "rest", Soak: &pipelinesv1.Soak{For: "1h"}}},
			`spec.environments[1].waves[1].soak: no wave or batch is behind wave "rest": remove it, or set gates.soak of the environment behind`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w, h := wavesOf(t, rings(), threeRings())
			w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingRollout)
			p := w.pipeline(ctx, "web")
			p.Spec.Environments[1].Waves = tc.waves
			g.Expect(w.c.Update(ctx, p)).To(Succeed())
			h.settle(ctx)
			stalled := slices.IndexFunc(w.pipeline(ctx, "web").Status.Conditions, func(c metav1.Condition) bool { return c.Type == pipelinesv1.StalledCondition })
			g.Expect(stalled).To(BeNumerically(">=", 0))
			g.Expect(w.pipeline(ctx, "web").Status.Conditions[stalled].Message).To(ContainSubstring(tc.want))
			h.live(ctx, time.Hour, 10*time.Minute)
			g.Expect(w.receiver.received()).To(HaveLen(1))
			p = w.pipeline(ctx, "web")
			p.Spec.Environments[1].Waves = rings()
			g.Expect(w.c.Update(ctx, p)).To(Succeed())
			h.settle(ctx)
			w.runs("dev", "1.1") // Nothing is watched while names are used twice.
			for c := range threeRings() {
				w.runs(c, "1.0")
			}
			w.runs("eu-0", "1.1")
			h.settle(ctx)
			w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
		})
	}
}

// The first wave has the approval for all: what was changed there by hand does not go on, and neither does a request for a later
// wave pass it.
func TestNoWavePassesTheApproval(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingApproval)
	w.runs("eu-0", "1.1") // By hand.
	h.settle(ctx)
	h.live(ctx, time.Hour, 10*time.Minute)
	g.Expect(w.into(ctx, "prod/early")).To(BeEmpty())
	w.ask(ctx, "hotfix", "prod/early", "1.1")
	h.settle(ctx)
	g.Expect(w.outcome(ctx, "hotfix")).To(And(HaveField("Phase", capstanv1.RequestRefused), HaveField("Message",
		`1.1 did not succeed in the first wave of environment "prod", which has the approval for all of them: request it for "prod/canary" first`)))
	w.ask(ctx, "all", "prod", "1.1")
	h.settle(ctx)
	g.Expect(w.outcome(ctx, "all")).To(HaveField("Message", `environment "prod" has waves: name one of prod/canary, prod/early, prod/rest`))
	g.Expect(w.receiver.received()).To(BeEmpty())

	w.ask(ctx, "canary", "prod/canary", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingApproval)
	approve(ctx, g, w, w.newest(ctx, "prod/canary"))
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseSucceeded)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
}

// A cluster moves to an earlier wave while a promotion into its former wave waits to be sent. What is sent to the former wave later
// is not for this cluster any more, which the earlier wave has given a newer revision.
func TestAClusterThatMovedGetsNothingOfItsFormerWave(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings())
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	w.runs("eu-1", "1.1")
	w.runs("eu-2", "1.1")
	w.receiver.fail = 1
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhasePromoting)
	waits := w.newest(ctx, "prod/rest")
	g.Expect(waits.Spec.Wave.Clusters).To(ContainElement(w.ns + "/eu-3"))
	w.label("eu-3", ring(0))
	h.settle(ctx)
	g.Expect(w.c.Get(ctx, client.ObjectKeyFromObject(&waits), &waits)).To(Succeed())
	g.Expect(waits.Status).To(And(HaveField("Phase", capstanv1.PhaseSuperseded), HaveField("Reason", string(decision.WaveChanged)),
		HaveField("Message", ContainSubstring(`belongs to another wave of "prod" now`))))
	again := w.newest(ctx, "prod/rest") // The wave before, early, runs the revision.
	g.Expect(again.Spec).To(And(HaveField("Revision", "1.1"), HaveField("Wave.Clusters", []string{w.ns + "/eu-4"})))
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseAwaitingRollout)
	w.runs("dev", "1.2")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "prod/canary").Spec).To(And(HaveField("Revision", "1.2"), HaveField("Wave.Clusters", []string{w.ns + "/eu-0", w.ns + "/eu-3"})))
	for range 30 {
		w.clock.Step(3 * time.Minute)
		h.settle(ctx)
		for name := range threeRings() {
			if sent := w.lastSentTo(name); sent != "" {
				w.runs(name, sent)
			}
		}
		h.settle(ctx)
	}
	g.Expect(w.counts(ctx)).To(And(HaveField("Ready", int32(5)), HaveField("Message", "1.2: canary, early, rest")))
	g.Expect(w.sentTo("prod/rest")).To(Equal([]string{"1.1", "1.2"}))
}

// A PromotionRequest is carried out for the clusters that its wave has then.
func TestARequestForAWaveWhoseClusterMoved(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings())
	w.receiver.fail = 1
	w.ask(ctx, "rest", "prod/rest", "1.0")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhasePromoting)
	w.label("eu-4", ring(1))
	h.settle(ctx)
	h.live(ctx, time.Hour, time.Minute)
	newest := w.newest(ctx, "prod/rest")
	g.Expect(newest.Spec.Wave.Clusters).To(Equal([]string{w.ns + "/eu-3"}))
	g.Expect(newest.Spec.Request).NotTo(BeNil())
	g.Expect(w.sentTo("prod/rest")).To(Equal([]string{"1.0"}))
}
