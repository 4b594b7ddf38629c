package promotions_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/index"
)

// label gives a cluster labels, or removes it if there are none. The hub has not noticed it yet.
func (w *world) label(name string, set labels.Set) {
	w.clusters.mu.Lock()
	defer w.clusters.mu.Unlock()
	if w.clusters.labels == nil {
		w.clusters.labels = map[clusters.Ref]labels.Set{}
	}
	ref := clusters.Ref{Kind: "Cluster", Namespace: w.ns, Name: name}
	if set == nil {
		delete(w.clusters.labels, ref)
		return
	}
	w.clusters.labels[ref] = set
}

var ofProd = labels.Set{"tier": "prod"}

func eu(i int) string { return fmt.Sprintf("eu-%02d", i) }

// prodTargets selects the clusters of prod.
func prodTargets() []pipelinesv1.Target {
	return []pipelinesv1.Target{{Namespace: "shop", Clusters: &pipelinesv1.ClusterSelector{Selector: metav1.LabelSelector{MatchLabels: ofProd}}}}
}

// fleetOf is a world whose prod is n clusters, which all run 1.0, and whose dev runs 1.1.
func fleetOf(t *testing.T, n int, quorum *pipelinesv1.Quorum, change ...func(*pipelinesv1.Pipeline)) (*WithT, context.Context, *world, *hubUnder) {
	t.Helper()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", notify(false), "dev", "prod")
	p.Spec.Environments[1].Targets, p.Spec.Environments[1].Quorum = prodTargets(), quorum
	for _, c := range change {
		c(p)
	}
	for i := range n {
		w.label(eu(i), ofProd)
	}
	if err := w.c.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	h := w.hub("hub", w.c, nil)
	h.settle(ctx)
	for _, env := range p.Spec.Environments {
		if ref := env.Targets[0].ClusterRef; ref != nil {
			w.runs(ref.Name, "1.0")
		}
	}
	for i := range n {
		w.runs(eu(i), "1.0")
	}
	h.settle(ctx)
	if p.Spec.Environments[1].Verification != nil { // What prod runs is verified, too.
		h.live(ctx, 4*time.Hour, 30*time.Minute)
	}
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	return g, ctx, w, h
}

func (w *world) counts(ctx context.Context) *pipelinesv1.FleetStatus {
	w.Helper()
	return w.pipeline(ctx, "web").Status.Environments["prod"].Fleet
}

func mayLose(limit int32) *pipelinesv1.Quorum {
	return &pipelinesv1.Quorum{Lost: &pipelinesv1.LostTargets{Max: intstr.FromInt32(limit)}}
}

// standing returns the standing of a cluster.
func (w *world) standing(ctx context.Context, name string) pipelinesv1.TargetStanding {
	w.Helper()
	for _, t := range w.pipeline(ctx, "web").Status.Environments["prod"].Targets {
		if t.ClusterAppRef.ClusterRef.Name == name {
			return t.Standing
		}
	}
	w.Fatalf("%s is not in the environment", name)
	return ""
}

// G35, G36: one of 20 clusters is dead for more than an hour: the promotion succeeds without it, and says so. It returns
// with the old revision and joins; nothing is superseded. When two are dead, the promotion waits.
func TestG35G36LostClusters(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := fleetOf(t, 20, mayLose(1))
	w.stale(eu(19))
	for i := range 19 {
		w.runs(eu(i), "1.1")
	}
	h.settle(ctx)
	h.live(ctx, 59*time.Minute, 10*time.Minute)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	restarted := w.hub("restarted", w.c, nil) // The time that another process has counted does not count.
	restarted.settle(ctx)
	restarted.live(ctx, 59*time.Minute, 10*time.Minute)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	restarted.live(ctx, 2*time.Minute, time.Minute)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseSucceeded, decision.RolledOut)
	dead := "shop/web in Cluster/" + w.ns + "/eu-19"
	g.Expect(w.newest(ctx, "prod").Status.Message).To(ContainSubstring("19 of its 20 targets do, and 19 must; lost: " + dead))
	p := w.pipeline(ctx, "web")
	g.Expect(p.Status.Environments["prod"].Fleet).To(And(HaveField("Targets", int32(20)), HaveField("Lost", int32(1)), HaveField("Ready", int32(19)), HaveField("Revision", "1.1")))
	g.Expect(p.Status.Conditions).To(ContainElement(And(HaveField("Type", pipelinesv1.ReadyCondition), HaveField("Status", metav1.ConditionTrue),
		HaveField("Message", ContainSubstring(`environment "prod": lost: `+dead)))))
	g.Expect(restarted.published()).To(ContainElement(ContainSubstring("TargetLost")))

	again := w.hub("again", w.c, nil) // It is lost for this process, too.
	again.settle(ctx)
	g.Expect(w.standing(ctx, eu(19))).To(Equal(pipelinesv1.TargetLost))
	agreed := *p.Status.Environments["prod"].Agreed
	w.runs(eu(19), "1.0")
	again.settle(ctx)
	g.Expect(w.standing(ctx, eu(19))).To(Equal(pipelinesv1.TargetJoining))
	g.Expect(again.published()).To(ContainElement(ContainSubstring("TargetReturned")))
	w.expectReason(ctx, g, "prod", capstanv1.PhaseSucceeded, decision.RolledOut)
	again.live(ctx, 31*time.Minute, 5*time.Minute)
	g.Expect(w.standing(ctx, eu(19))).To(Equal(pipelinesv1.TargetLate))
	g.Expect(*w.pipeline(ctx, "web").Status.Environments["prod"].Agreed).To(Equal(agreed))
	g.Expect(w.into(ctx, "prod")).To(HaveLen(1), "nothing is superseded")
	w.runs(eu(19), "1.1")
	again.settle(ctx)
	g.Expect(w.standing(ctx, eu(19))).To(BeEmpty())

	w.stale(eu(0))
	w.stale(eu(1))
	w.runs("dev", "1.2")
	again.settle(ctx)
	again.live(ctx, 5*time.Hour, 30*time.Minute)
	g.Expect(w.into(ctx, "prod")).To(HaveLen(1), "two are dead: it is not known what prod runs")
	g.Expect(w.counts(ctx).Message).To(HavePrefix("2 of 20 targets are lost, and 1 may be: the hub may be cut off from them; lost: "))
	w.x.SetFreshness(w.cluster(eu(1)), helm, index.Freshness{Fresh: true})
	again.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
}

// G37: clusters join and leave while a revision soaks, is rolled out and is verified. It goes on, and neither the
// sequence nor the soak begins again.
func TestG37ClustersJoinAndLeave(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := fleetOf(t, 4, nil, func(p *pipelinesv1.Pipeline) {
		p.Spec.Environments[1].Verification = &pipelinesv1.Verification{For: "30m"}
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: "last", Gates: soaking("2h"),
			Targets: []pipelinesv1.Target{{Namespace: "shop", ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "last"}}}})
	})
	for i := range 3 {
		w.runs(eu(i), "1.1")
	}
	w.label(eu(3), nil) // It never gets the revision, and leaves.
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseVerifying)
	w.label(eu(4), ofProd) // G60: it joins, and is broken all the time.
	h.settle(ctx)
	w.unready(eu(4), "1.0", false)
	h.settle(ctx)
	g.Expect(w.standing(ctx, eu(4))).To(Equal(pipelinesv1.TargetJoining))
	h.live(ctx, 29*time.Minute, time.Minute)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseVerifying)
	h.live(ctx, 2*time.Minute, time.Minute)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseSucceeded, decision.Verified)
	w.runs(eu(4), "1.1")
	h.settle(ctx)
	soaked := func() int64 { return w.pipeline(ctx, "web").Status.Environments["prod"].Agreed.Soak.Seconds }
	sequence := w.pipeline(ctx, "web").Status.Environments["prod"].Agreed.Sequence
	before := w.newest(ctx, "last")
	g.Expect(before.Status.Phase).To(Equal(capstanv1.PhaseAwaitingGates))
	for i := range 6 { // Every ten minutes one joins and another leaves.
		w.label(eu(10+i), ofProd)
		h.settle(ctx)
		h.live(ctx, 5*time.Minute, time.Minute)
		w.runs(eu(10+i), "1.1")
		if i > 0 {
			w.label(eu(9+i), nil)
		}
		h.settle(ctx)
		h.live(ctx, 5*time.Minute, time.Minute)
	}
	g.Expect(soaked()).To(BeNumerically(">=", int64(time.Hour/time.Second)))
	g.Expect(w.pipeline(ctx, "web").Status.Environments["prod"].Agreed.Sequence).To(Equal(sequence))
	h.live(ctx, time.Hour, 10*time.Minute)
	g.Expect(w.newest(ctx, "last").Name).To(Equal(before.Name))
	w.expectPhase(ctx, g, "last", capstanv1.PhaseAwaitingRollout)
}

// G60: a cluster joins while a revision is verified, and one that was lost returns broken. Neither fails the
// verification, also when they are late.
func TestG60JoiningTargetsFailNoVerification(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := fleetOf(t, 6, mayLose(1), func(p *pipelinesv1.Pipeline) {
		p.Spec.Environments[1].Verification = &pipelinesv1.Verification{For: "3h", Tolerate: "5m"}
		p.Spec.Environments[1].Quorum.JoinWithin = "10m"
	})
	w.stale(eu(5))
	h.settle(ctx)
	h.live(ctx, 61*time.Minute, time.Minute)
	for i := range 5 {
		w.runs(eu(i), "1.1")
	}
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseVerifying)
	w.label(eu(6), ofProd)
	h.settle(ctx)
	w.unready(eu(5), "1.0", false)
	w.x.SetFreshness(w.cluster(eu(5)), helm, index.Freshness{Fresh: true})
	w.x.SetFreshness(w.cluster(eu(6)), helm, index.Freshness{Fresh: true})
	w.unready(eu(6), "1.0", false)
	h.settle(ctx)
	h.live(ctx, 2*time.Hour, 5*time.Minute)
	g.Expect(w.standing(ctx, eu(5))).To(Equal(pipelinesv1.TargetLate))
	g.Expect(w.standing(ctx, eu(6))).To(Equal(pipelinesv1.TargetLate))
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseVerifying)
	h.live(ctx, time.Hour+time.Minute, 5*time.Minute)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseSucceeded, decision.Verified)
	w.runs(eu(5), "1.1")
	w.runs(eu(6), "1.1")
	h.settle(ctx)
	p := w.newest(ctx, "prod")
	p.Spec.Retry = 1
	g.Expect(w.c.Update(ctx, &p)).To(Succeed())
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseVerifying)
	w.unready(eu(6), "1.1", false)
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseFailed, decision.Degraded)
}

// G61: of 500 targets, one that the status does not list is broken: the promotion waits for it, and the status lists it.
func TestG61OneOf500IsBroken(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := fleetOf(t, 500, nil)
	for i := range 500 {
		w.runs(eu(i), "1.1")
	}
	w.unready("eu-321", "1.1", false)
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	env := w.pipeline(ctx, "web").Status.Environments["prod"]
	g.Expect(env.Targets).To(HaveLen(pipelinesv1.MaxShownTargets))
	g.Expect(env.Targets[0].ClusterAppRef.ClusterRef.Name).To(Equal("eu-321"))
	g.Expect(env.Fleet).To(And(HaveField("Targets", int32(500)), HaveField("Ready", int32(499)), HaveField("Required", int32(500))))
	w.runs("eu-321", "1.1")
	h.settle(ctx)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseSucceeded, decision.RolledOut)
	h.live(ctx, time.Hour, 10*time.Minute)
	w.unready("eu-321", "1.1", false)
	h.settle(ctx)
	restarted := w.hub("restarted", w.c, nil)
	restarted.settle(ctx)
	g.Expect(w.standing(ctx, "eu-321")).To(BeEmpty(), "it is broken, and does not join")
}

// G39: the list of clusters fails after a restart: the last selection is kept, nothing is promoted, and the status says
// why. A cluster that joins then is found when the list works again.
func TestG39TheListOfClustersFails(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := fleetOf(t, 3, nil)
	for i := range 3 {
		w.runs(eu(i), "1.1")
	}
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)
	w.clusters.fail(fmt.Errorf("%w: the hub has not read the Clusters of the management cluster yet: connection refused", clusters.ErrNotSynced))
	restarted := w.hub("restarted", w.c, nil)
	w.runs("dev", "1.2")
	restarted.settle(ctx)
	restarted.live(ctx, time.Hour, 10*time.Minute)
	env := w.pipeline(ctx, "web").Status.Environments["prod"]
	g.Expect(w.into(ctx, "prod")).To(HaveLen(1))
	g.Expect(env.Agreed.Revision).To(Equal("1.1"))
	g.Expect(env.Targets).To(HaveLen(4), "three, and the selector")
	g.Expect(env.Fleet.Message).To(HavePrefix("it is not known which clusters are selected"))
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(And(HaveField("Type", pipelinesv1.ReadyCondition), HaveField("Status", metav1.ConditionFalse),
		HaveField("Message", ContainSubstring("connection refused")))))
	w.clusters.fail(nil)
	w.label(eu(3), ofProd)
	restarted.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.pipeline(ctx, "web").Status.Environments["prod"].Targets).To(HaveLen(4))
	g.Expect(w.standing(ctx, eu(0))).To(BeEmpty())
}

// The hub is cut off from half of the fleet at once: nothing is promoted, and it says so.
func TestCutOffFromHalfOfTheFleet(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := fleetOf(t, 20, &pipelinesv1.Quorum{Ready: "51%", Lost: &pipelinesv1.LostTargets{Max: intstr.FromString("49%")}})
	for i := range 20 {
		w.runs(eu(i), "1.1")
	}
	h.settle(ctx)
	for i := range 10 {
		w.stale(eu(i))
	}
	w.runs("dev", "1.2")
	h.settle(ctx)
	h.live(ctx, 3*time.Hour, 10*time.Minute)
	g.Expect(w.into(ctx, "prod")).To(HaveLen(1))
	g.Expect(w.counts(ctx).Message).To(ContainSubstring("the hub may be cut off from them"))
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(And(HaveField("Type", pipelinesv1.ReadyCondition),
		HaveField("Message", ContainSubstring("the hub may be cut off from them")))))
	for i := range 10 {
		w.x.SetFreshness(w.cluster(eu(i)), helm, index.Freshness{Fresh: true})
	}
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
}

// Bad selectors and quorums stop their environment, with the path and what to do.
func TestBadFleets(t *testing.T) {
	t.Parallel()
	selector := func(change func(*pipelinesv1.Target)) func(*pipelinesv1.Pipeline) {
		return func(p *pipelinesv1.Pipeline) {
			p.Spec.Environments[2].Targets = prodTargets()
			change(&p.Spec.Environments[2].Targets[0])
		}
	}
	for text, change := range map[string]func(*pipelinesv1.Pipeline){
		`clusters.kind "Fleet" is not Cluster, `: selector(func(t *pipelinesv1.Target) { t.Clusters.Kind = "Fleet" }),
		`clusters.namespace "A b" is neither`:    selector(func(t *pipelinesv1.Target) { t.Clusters.Namespace = "A b" }),
		`both clusterRef and clusters`: selector(func(t *pipelinesv1.Target) {
			t.ClusterRef = &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: eu(0)}
		}),
		`clusters.selector: "Near" is not a valid label`: selector(func(t *pipelinesv1.Target) {
			t.Clusters.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
		}),
		`environment "prod" has no targets`:         selector(func(t *pipelinesv1.Target) { t.Clusters.Selector.MatchLabels = labels.Set{"tier": "none"} }),
		`spec.environments[2].quorum.ready: "half"`: selector(func(*pipelinesv1.Target) {}),
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
			p := w.newPipeline("web", notify(false), "dev", "staging", "prod")
			change(p)
			if text == `spec.environments[2].quorum.ready: "half"` {
				p.Spec.Environments[2].Quorum = &pipelinesv1.Quorum{Ready: "half"}
			}
			w.label(eu(0), ofProd)
			g.Expect(w.c.Create(ctx, p)).To(Succeed())
			h := w.hub("hub", w.c, nil)
			h.settle(ctx)
			for _, cluster := range []string{"dev", "staging", eu(0)} {
				w.runs(cluster, "1.0")
			}
			h.settle(ctx)
			w.runs("dev", "1.1")
			h.settle(ctx)
			h.delivers(ctx, "staging")
			w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)
			g.Expect(w.into(ctx, "prod")).To(BeEmpty())
			g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(And(HaveField("Reason", pipelinesv1.InvalidSpecReason), HaveField("Message", ContainSubstring(text)))))
		})
	}
}
