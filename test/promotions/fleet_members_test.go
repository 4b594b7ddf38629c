package promotions_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/index"
)

// restOf is a world whose prod has nine waves of one cluster and then the wave rest of n clusters, of which the status lists ten.
func restOf(t *testing.T, n int, quorum *pipelinesv1.Quorum) (*WithT, context.Context, *world, *hubUnder) {
	t.Helper()
	var waves []pipelinesv1.Wave
	all := map[string]labels.Set{}
	for i := range 9 {
		waves = append(waves, inRing(fmt.Sprintf("w%d", i), i))
		all[first(i)] = ring(i)
	}
	for i := range n {
		all[eu(i)] = ofProd
	}
	return wavesOf(t, append(waves, pipelinesv1.Wave{Name: "rest"}), all, func(p *pipelinesv1.Pipeline) {
		p.Spec.Environments[1].Quorum = quorum
	})
}

// first is the cluster of one of the waves before the rest.
func first(i int) string { return fmt.Sprintf("one-%d", i) }

// reachRest lets the revision 1.1 come through the waves before the rest.
func (w *world) reachRest(ctx context.Context, h *hubUnder) {
	w.Helper()
	for i := range 9 {
		w.runs(first(i), "1.1")
		h.settle(ctx)
	}
}

// expectRest expects counts of the wave rest, of which the status lists ten.
func (w *world) expectRest(ctx context.Context, g *WithT, targets, ready, required, lost int) {
	w.Helper()
	rest := w.wave(ctx, "rest")
	g.Expect(rest.Targets).To(HaveLen(10))
	g.Expect(rest.Members()).To(HaveLen(targets))
	g.Expect(rest.Fleet).To(HaveValue(And(HaveField("Targets", int32(targets)), HaveField("Ready", int32(ready)), HaveField("Required", int32(required)), HaveField("Lost", int32(lost)))))
}

// The clusters cannot be listed after a restart: the selection stays, with the targets that the status does not list. Those of
// them that are broken afterwards are not left out as new ones.
func TestTheSelectionStaysBeyondTheList(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := restOf(t, 25, &pipelinesv1.Quorum{Ready: "80%"})
	for i := range 3 {
		w.unready(eu(i), "1.0", false)
	}
	h.settle(ctx)
	w.expectRest(ctx, g, 25, 22, 20, 0)
	w.clusters.fail(fmt.Errorf("%w: connection refused", clusters.ErrNotSynced))
	restarted := w.hub("restarted", w.c, nil)
	restarted.live(ctx, 5*time.Minute, time.Minute)
	g.Expect(w.wave(ctx, "rest").Members()).To(HaveLen(25))
	w.clusters.fail(nil)
	w.label(eu(99), ofProd)
	restarted.live(ctx, time.Minute, time.Minute)
	for i := range 25 {
		if w.runs(eu(i), "1.0"); i < 15 {
			w.unready(eu(i), "1.0", false)
		}
	}
	for i := range 9 {
		w.runs(first(i), "1.0")
	}
	restarted.live(ctx, time.Minute, time.Minute)
	w.expectRest(ctx, g, 26, 10, 20, 0)
	g.Expect(w.wave(ctx, "rest").Fleet.Joining).To(Equal(int32(1)), "the one that was not selected before")
}

// The selector becomes invalid, and the hub is restarted: the clusters that were selected are no new ones when it is corrected.
func TestTheSelectionStaysWhileTheSelectorIsInvalid(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := fleetOf(t, 3, nil)
	for i := range 3 {
		w.runs(eu(i), "1.1")
	}
	h.settle(ctx)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Targets[0].Clusters.Kind = "Fleet" })
	w.runs("dev", "1.2")
	h.settle(ctx)
	restarted := w.hub("restarted", w.c, nil)
	restarted.settle(ctx)
	g.Expect(w.into(ctx, "prod")).To(HaveLen(1))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Targets = prodTargets() })
	w.unready(eu(0), "1.1", false)
	restarted.settle(ctx)
	g.Expect(w.standing(ctx, eu(0))).To(BeEmpty())
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
}

// A cluster joins a fleet of more than the status lists, while a revision is verified. It is broken, and fails no verification,
// also for a hub that starts then.
func TestAClusterJoinsAFleetThatIsNotListedInFull(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := fleetOf(t, 101, nil, func(p *pipelinesv1.Pipeline) {
		p.Spec.Environments[1].Verification = &pipelinesv1.Verification{For: "30m", Tolerate: "5m"}
	})
	for i := range 101 {
		w.runs(eu(i), "1.1")
	}
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseVerifying)
	w.label("eu-999", ofProd)
	h.settle(ctx)
	g.Expect(h.published()).To(ContainElement(And(ContainSubstring("TargetJoining"), ContainSubstring("eu-999"))))
	w.x.SetFreshness(w.cluster("eu-999"), helm, index.Freshness{Fresh: true})
	w.unready("eu-999", "1.0", false)
	h.settle(ctx)
	h.live(ctx, 10*time.Minute, time.Minute)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseVerifying)
	g.Expect(w.standing(ctx, "eu-999")).To(Equal(pipelinesv1.TargetJoining))
	w.label("eu-998", ofProd) // While no hub runs.
	restarted := w.hub("restarted", w.c, nil)
	restarted.settle(ctx)
	g.Expect(w.standing(ctx, "eu-998")).To(Equal(pipelinesv1.TargetJoining))
	restarted.live(ctx, 15*time.Minute, time.Minute)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseVerifying)
}

// A cluster joins a wave of more than the status lists: it gets the revision by a promotion of its own when it is late.
func TestAClusterJoinsAWaveThatIsNotListedInFull(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := restOf(t, 11, nil)
	w.reachRest(ctx, h)
	for i := range 11 {
		w.runs(eu(i), "1.1")
	}
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseSucceeded)
	w.label(eu(99), ofProd)
	h.settle(ctx)
	w.runs(eu(99), "1.0")
	h.settle(ctx)
	g.Expect(w.wave(ctx, "rest").Fleet.Joining).To(Equal(int32(1)))
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.newest(ctx, "prod/rest").Spec.Wave.Clusters).To(ContainElement(w.ns + "/" + eu(99)))
}

// More clusters of a wave are lost than its status lists, and its quorum permits that: the promotion arrives, and they stay lost
// for a hub that starts.
func TestMoreTargetsAreLostThanListed(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := restOf(t, 25, &pipelinesv1.Quorum{Lost: &pipelinesv1.LostTargets{Max: intstr.FromString("49%")}})
	for i := range 12 {
		w.stale(eu(i))
	}
	h.settle(ctx)
	h.live(ctx, 2*time.Hour, 30*time.Minute)
	w.expectRest(ctx, g, 25, 13, 13, 12)
	restarted := w.hub("restarted", w.c, nil)
	restarted.settle(ctx)
	restarted.live(ctx, time.Minute, time.Minute)
	w.expectRest(ctx, g, 25, 13, 13, 12)
	w.reachRest(ctx, restarted)
	for i := 12; i < 25; i++ {
		w.runs(eu(i), "1.1")
	}
	restarted.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseSucceeded)
}

// More targets are broken than the status lists and than the quorum permits: the verification fails.
func TestMoreTargetsAreBrokenThanListed(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := fleetOf(t, 210, &pipelinesv1.Quorum{Ready: "51%"}, func(p *pipelinesv1.Pipeline) {
		p.Spec.Environments[1].Verification = &pipelinesv1.Verification{For: "30m", Tolerate: "5m"}
	})
	for i := range 210 {
		w.runs(eu(i), "1.1")
	}
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseVerifying)
	for i := range 103 {
		w.unready(eu(i), "1.1", false)
	}
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseFailed, decision.Degraded)
}
