package promotions_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
)

// ask creates a PromotionRequest for an environment of the Pipeline web: for a revision, or for a rollback if that is
// empty.
func (w *world) ask(ctx context.Context, name, env, revision string) *capstanv1.PromotionRequest {
	w.Helper()
	r := &capstanv1.PromotionRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec:       capstanv1.PromotionRequestSpec{Pipeline: "web", Environment: env, Revision: revision, By: "ann", Reason: "incident 4711"},
	}
	if revision == "" {
		r.Spec.Rollback = &capstanv1.RollbackRequest{}
	}
	if err := w.c.Create(ctx, r); err != nil {
		w.Fatalf("%v", err)
	}
	if r.CreationTimestamp.Add(time.Minute).Before(w.clock.Now()) { // The API server has the time of the machine.
		w.clock.SetTime(r.CreationTimestamp.Time)
	}
	return r
}

// outcome returns the status of a PromotionRequest.
func (w *world) outcome(ctx context.Context, name string) capstanv1.PromotionRequestStatus {
	w.Helper()
	r := &capstanv1.PromotionRequest{}
	if err := w.c.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, r); err != nil {
		w.Fatalf("%v", err)
	}
	return r.Status
}

// delivers lets an environment run what was promoted into it.
func (h *hubUnder) delivers(ctx context.Context, env string) {
	h.w.Helper()
	h.w.runs(env, h.w.newest(ctx, env).Spec.Revision)
	h.settle(ctx)
}

// threeReleases is a world whose environments run 1.1, which was promoted after 1.0 and 1.0.5.
func threeReleases(t *testing.T, envs ...string) (*WithT, context.Context, *world, *hubUnder) {
	t.Helper()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), append([]string{"dev"}, envs...)...))
	for _, revision := range []string{"1.0.5", "1.1"} {
		w.runs("dev", revision)
		h.settle(ctx)
		for _, env := range envs {
			h.delivers(ctx, env)
		}
	}
	for _, env := range envs {
		w.expectPhase(ctx, g, env, capstanv1.PhaseSucceeded)
	}
	return g, ctx, w, h
}

// A revision that the Pipeline knows is promoted on request, once, and stays until dev has another one.
func TestARequestIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "prod")
	w.ask(ctx, "hotfix", "prod", "1.0.5")
	h.settle(ctx)
	p := w.newest(ctx, "prod")
	g.Expect(p.Spec).To(And(HaveField("Revision", "1.0.5"), HaveField("Source", capstanv1.PromotionSource{Environment: "dev"}), HaveField("RollbackOf", BeNil()),
		HaveField("Request", And(HaveField("Name", "hotfix"), HaveField("By", "ann"), HaveField("Reason", "incident 4711"))), HaveField("Hold.UntilSequence", int64(3))))
	g.Expect(w.outcome(ctx, "hotfix")).To(And(HaveField("Phase", capstanv1.RequestPromoted), HaveField("Promotion", p.Name), HaveField("Revision", "1.0.5"), HaveField("FinishTime", Not(BeNil()))))
	h.delivers(ctx, "prod")
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)
	h.live(ctx, 24*time.Hour, 6*time.Hour)
	g.Expect(w.revisions(ctx, "prod")).To(Equal([]string{"1.0.5", "1.1", "1.0.5"}), "1.1 stays out")
	w.runs("dev", "1.2")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.2"))
}

// The hub is killed at any of its calls while it handles a request: the next one finds the request in the ledger, and the
// request is carried out once.
func TestARequestWhoseOutcomeWasLost(t *testing.T) {
	t.Parallel()
	g, ctx, w, _ := threeReleases(t, "prod")
	step := 5
	if soak() {
		step = 1
	}
	promoted, killed := 2, true
	for at := 1; killed; at += step {
		name, revision := fmt.Sprint("hotfix-", at), []string{"1.0.5", "1.1"}[promoted%2]
		w.ask(ctx, name, "prod", revision)
		k := &killer{at: at, after: at%2 == 0}
		doomed := w.hub("doomed", k.client(withoutWindows(w.c)), k)
		process := k.process(ctx)
		doomed.pass(process)
		killed = k.over()
		k.end()
		next := w.hub("next", w.c, nil)
		w.clock.Step(afterClaim)
		next.settle(ctx)
		promoted++
		g.Expect(w.into(ctx, "prod")).To(HaveLen(promoted), "killed at call %d", at)
		g.Expect(w.newest(ctx, "prod").Spec).To(And(HaveField("Revision", revision), HaveField("Request.Name", name)))
		g.Expect(w.outcome(ctx, name).Phase).To(Equal(capstanv1.RequestPromoted))
		g.Expect(w.receiver.ids).To(HaveLen(promoted), "each was sent under one identity")
		next.delivers(ctx, "prod")
		w.clock.SetTime(time.Now())
	}
}

// G34: a request for a revision that the Pipeline does not know is refused. Of two at once the newest is carried out.
func TestG34UnknownAndTwoAtOnce(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "prod")
	w.ask(ctx, "unknown", "prod", "7.7.7")
	w.ask(ctx, "nowhere", "qa", "1.0.5")
	w.ask(ctx, "first", "dev", "1.0.5")
	h.settle(ctx)
	g.Expect(w.outcome(ctx, "unknown")).To(And(HaveField("Phase", capstanv1.RequestRefused),
		HaveField("Message", "the Pipeline does not know 7.7.7: it runs in none of its environments, and none of its Promotions was for it")))
	g.Expect(w.outcome(ctx, "nowhere")).To(And(HaveField("Phase", capstanv1.RequestRefused), HaveField("Message", `Pipeline web has no environment "qa"`)))
	g.Expect(w.outcome(ctx, "first")).To(And(HaveField("Phase", capstanv1.RequestRefused), HaveField("Message", `environment "dev" is the first of Pipeline web, and nothing is promoted into it`)))
	g.Expect(w.into(ctx, "prod")).To(HaveLen(2))

	all := []*capstanv1.PromotionRequest{w.ask(ctx, "a", "prod", "1.0.5"), w.ask(ctx, "b", "prod", "1.1")}
	newest, other := all[1], all[0]
	if all[0].CreationTimestamp.Equal(&all[1].CreationTimestamp) && all[0].UID > all[1].UID {
		newest, other = other, newest
	}
	h.settle(ctx)
	g.Expect(w.outcome(ctx, newest.Name).Phase).To(Equal(capstanv1.RequestPromoted))
	g.Expect(w.outcome(ctx, other.Name).Phase).To(Equal(capstanv1.RequestSuperseded))
	g.Expect(w.into(ctx, "prod")).To(HaveLen(3))
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal(newest.Spec.Revision))
}

// What cannot be carried out now waits for an hour, and says for what.
func TestARequestWaitsAndExpires(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "prod")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Suspend = true })
	w.ask(ctx, "hotfix", "prod", "1.0.5")
	other := w.ask(ctx, "elsewhere", "prod", "1.0.5")
	other = &capstanv1.PromotionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "lost"}, Spec: other.Spec}
	other.Spec.Pipeline = "gone"
	g.Expect(w.c.Create(ctx, other)).To(Succeed())
	g.Expect(w.c.Delete(ctx, &capstanv1.PromotionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "elsewhere"}})).To(Succeed())
	gone := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: w.ns, Name: "gone"}}
	reconcile := func() {
		h.settle(ctx)
		_, err := h.pipelines.Reconcile(ctx, gone)
		g.Expect(err).NotTo(HaveOccurred())
	}
	reconcile()
	g.Expect(w.outcome(ctx, "hotfix")).To(And(HaveField("Phase", BeEmpty()), HaveField("Message", "waits: the Pipeline is suspended")))
	g.Expect(w.outcome(ctx, "lost")).To(And(HaveField("Phase", BeEmpty()), HaveField("Message", ContainSubstring("there is no Pipeline gone"))))
	result, err := h.pipelines.Reconcile(ctx, requestFor(w.pipeline(ctx, "web")))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Hour+time.Minute)))

	w.clock.Step(61 * time.Minute)
	reconcile()
	g.Expect(w.outcome(ctx, "hotfix").Phase).To(Equal(capstanv1.RequestExpired))
	g.Expect(w.outcome(ctx, "lost").Phase).To(Equal(capstanv1.RequestExpired))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Suspend = false })
	h.settle(ctx)
	g.Expect(w.into(ctx, "prod")).To(HaveLen(2), "it is not carried out late")
	g.Expect(h.promotions.RetainRequests(ctx)).To(Succeed())
	g.Expect(w.outcome(ctx, "lost").Phase).To(Equal(capstanv1.RequestExpired), "it is kept as long as Promotions")
	w.clock.Step(31 * 24 * time.Hour)
	g.Expect(h.promotions.RetainRequests(ctx)).To(Succeed())
	g.Expect(client.IgnoreNotFound(w.c.Get(ctx, client.ObjectKeyFromObject(other), other))).To(Succeed())
	g.Expect(w.c.Get(ctx, client.ObjectKeyFromObject(other), other)).NotTo(Succeed())
}

// A request for a revision in spec.reject is refused. One that waits is superseded when it is rejected.
func TestARejectedRevisionIsNotRequested(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "prod")
	w.edit(ctx, reject("1.0.5"))
	w.ask(ctx, "hotfix", "prod", "1.0.5")
	h.settle(ctx)
	g.Expect(w.outcome(ctx, "hotfix")).To(And(HaveField("Phase", capstanv1.RequestRefused), HaveField("Message", "1.0.5 is in spec.reject of the Pipeline")))
	w.ask(ctx, "back", "prod", "")
	h.settle(ctx)
	g.Expect(w.outcome(ctx, "back").Phase).To(Equal(capstanv1.RequestRefused), "1.0 was never promoted into prod")
}

// The gates and the approval of the environment apply to a request. An override opens a gate. A soak is not needed again
// for what succeeded there before.
func TestGatesOfARequest(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "prod")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = soaking("2h"); p.Spec.Gates.Windows = frozen().Windows })
	w.ask(ctx, "hotfix", "prod", "1.0.5")
	h.settle(ctx)
	p := w.newest(ctx, "prod")
	g.Expect(p.Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingGates), HaveField("Reason", gate.ReasonFrozen)))
	g.Expect(p.Status.Gates).To(ContainElement(And(HaveField("Name", capstanv1.GateSoak), HaveField("State", capstanv1.GateOpen))))
	before := p.DeepCopy()
	p.Spec.Overrides = []capstanv1.Override{{Gate: capstanv1.GateWindows, By: "ann", Reason: "incident 4711"}}
	g.Expect(w.c.Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)

	w.runs("dev", "1.2") // It soaks in dev, and not in prod.
	h.settle(ctx)
	h.delivers(ctx, "prod")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates.Windows = nil })
	w.ask(ctx, "now", "prod", "1.2")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "prod").Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingGates), HaveField("Reason", gate.ReasonSoaking)))
}

// A request whose gate cannot open keeps later releases out, until it is deleted. Nothing is left of it then.
func TestADeletedRequestIsWithdrawn(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "prod")
	w.runs("dev", "1.2")
	h.settle(ctx)
	h.delivers(ctx, "prod")
	w.runs("dev", "1.3")
	h.settle(ctx)
	w.runs("dev", "1.2") // 1.3 will never soak here.
	h.settle(ctx)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = soaking("2h") })
	r := w.ask(ctx, "hotfix", "prod", "1.3")
	h.settle(ctx)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseAwaitingGates, decision.PhaseReason(gate.ReasonSourceRunsAnother))
	requested := w.newest(ctx, "prod")
	w.runs("dev", "1.4")
	h.settle(ctx)
	h.live(ctx, 3*time.Hour, time.Hour)
	g.Expect(w.newest(ctx, "prod").Name).To(Equal(requested.Name), "1.4 has to wait")

	g.Expect(w.c.Delete(ctx, r)).To(Succeed())
	h.settle(ctx)
	all := w.into(ctx, "prod")
	g.Expect(all[len(all)-2]).To(And(HaveField("Name", requested.Name), HaveField("Status.Phase", capstanv1.PhaseSuperseded),
		HaveField("Status.Reason", string(decision.RequestDeleted)), HaveField("Status.Message", "PromotionRequest hotfix, which caused it, was deleted")))
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.4"))
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
}

// A request whose Promotion is carried out can be deleted, and one that was created again under its name is another one.
func TestARequestIsDeletedAfterItWasCarriedOut(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "prod")
	r := w.ask(ctx, "hotfix", "prod", "1.0.5")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.c.Delete(ctx, r)).To(Succeed())
	h.delivers(ctx, "prod")
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)

	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Promotion = notify(true) })
	r = w.ask(ctx, "hotfix", "prod", "1.1")
	h.settle(ctx)
	waits := w.newest(ctx, "prod")
	g.Expect(w.c.Delete(ctx, r)).To(Succeed())
	w.ask(ctx, "hotfix", "prod", "1.1")
	h.settle(ctx)
	all := w.into(ctx, "prod")
	g.Expect(all[len(all)-2]).To(And(HaveField("Name", waits.Name), HaveField("Status.Phase", capstanv1.PhaseSuperseded)))
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingApproval)
}

// A user deleted the Promotion of a request. The request is deleted when it is as old as Promotions may get.
func TestARequestWithoutItsPromotionIsDeleted(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "prod")
	r := w.ask(ctx, "hotfix", "prod", "1.0.5")
	h.settle(ctx)
	h.delivers(ctx, "prod")
	carried := w.newest(ctx, "prod")
	g.Expect(h.promotions.RetainRequests(ctx)).To(Succeed())
	w.clock.Step(31 * 24 * time.Hour)
	g.Expect(h.promotions.RetainRequests(ctx)).To(Succeed())
	g.Expect(w.c.Get(ctx, client.ObjectKeyFromObject(r), r)).To(Succeed(), "its Promotion exists")
	g.Expect(w.c.Delete(ctx, &carried)).To(Succeed())
	g.Expect(h.promotions.RetainRequests(ctx)).To(Succeed())
	g.Expect(apierrors.IsNotFound(w.c.Get(ctx, client.ObjectKeyFromObject(r), r))).To(BeTrue())
}

// The strategy of a request that waits is corrected: the request is carried out with it.
func TestTheStrategyOfARequestIsEdited(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "prod")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Promotion = notify(true) })
	w.ask(ctx, "hotfix", "prod", "1.0.5")
	h.settle(ctx)
	first := w.newest(ctx, "prod")
	g.Expect(first.Status.Phase).To(Equal(capstanv1.PhaseAwaitingApproval))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Promotion = notify(false) })
	h.settle(ctx)
	second := w.newest(ctx, "prod")
	g.Expect(second.Spec).To(And(HaveField("Number", first.Spec.Number+1), HaveField("Revision", "1.0.5"), HaveField("Manual", false),
		HaveField("Request", first.Spec.Request), HaveField("Hold", first.Spec.Hold)))
	g.Expect(second.Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
	g.Expect(w.outcome(ctx, "hotfix")).To(And(HaveField("Phase", capstanv1.RequestPromoted), HaveField("Promotion", second.Name)))
	h.delivers(ctx, "prod")
	h.live(ctx, 24*time.Hour, 6*time.Hour)
	g.Expect(w.revisions(ctx, "prod")).To(Equal([]string{"1.0.5", "1.1", "1.0.5", "1.0.5"}))
}

// A revision that is being taken out of staging does not go on to prod, whatever dev runs.
func TestARollbackInTheSourceEndsWhatFollows(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "staging", "prod")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[2].Promotion = notify(true) })
	w.runs("dev", "1.2")
	h.settle(ctx)
	h.delivers(ctx, "staging")
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingApproval)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Promotion = notify(true) })
	w.ask(ctx, "back", "staging", "")
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingApproval)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseSuperseded, decision.SourceFailed)

	g.Expect(w.c.Delete(ctx, &capstanv1.PromotionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "back"}})).To(Succeed())
	h.settle(ctx)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseSuperseded, decision.RequestDeleted)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingApproval, "the rollback was withdrawn")
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.2"))
}

// G32: staging is rolled back on demand. Prod is not touched, and the revision does not travel until dev runs it.
func TestG32RolledBackOnDemand(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "staging", "prod")
	w.ask(ctx, "back", "staging", "")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec).To(And(HaveField("Revision", "1.0.5"), HaveField("RollbackOf.Number", int64(2))))
	g.Expect(w.outcome(ctx, "back")).To(And(HaveField("Phase", capstanv1.RequestPromoted), HaveField("Revision", "1.0.5")))
	h.delivers(ctx, "staging")
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)
	h.live(ctx, 6*time.Hour, time.Hour)
	g.Expect(w.revisions(ctx, "prod")).To(Equal([]string{"1.0.5", "1.1"}))
	runs := func(revision string) quorum.Fleet {
		return quorum.Fleet{Targets: []quorum.Target{{Fresh: true, Ready: true, Revision: revision}}}
	}
	q := decision.QuestionOf(w.pipeline(ctx, "web"), []quorum.Fleet{runs("1.1"), runs("1.0.5"), runs("1.1")}, w.promotions(ctx), 2)
	g.Expect(decision.Decide(q).Reason).To(Equal(decision.SourceHeld))

	w.runs("dev", "1.0.5")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.0.5"), "the whole line goes back")
}

// G51: the Promotion of a request was deleted by the retention, and the request is restored as it was before. It is not
// carried out again. The retention deletes a request before its Promotion.
func TestG51ARestoredRequestIsNotCarriedOutAgain(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "prod")
	r := w.ask(ctx, "hotfix", "prod", "1.0.5")
	h.settle(ctx)
	h.delivers(ctx, "prod")
	sent := len(w.receiver.received())
	carried := w.newest(ctx, "prod")
	g.Expect(w.c.Delete(ctx, &carried)).To(Succeed())
	g.Expect(w.c.Get(ctx, client.ObjectKeyFromObject(r), r)).To(Succeed())
	r.Status = capstanv1.PromotionRequestStatus{}
	g.Expect(w.c.Status().Update(ctx, r)).To(Succeed())
	w.clock.Step(61 * time.Minute)
	h.settle(ctx)
	g.Expect(w.outcome(ctx, "hotfix").Phase).To(Equal(capstanv1.RequestExpired))
	g.Expect(w.receiver.received()).To(HaveLen(sent))

	w.ask(ctx, "again", "prod", "1.0.5")
	h.settle(ctx)
	g.Expect(w.outcome(ctx, "again").Phase).To(Equal(capstanv1.RequestPromoted))
	h.delivers(ctx, "prod")
	for _, revision := range []string{"1.2", "1.3", "1.4"} { // Others are the newest, the one that runs, and the one before.
		w.runs("dev", revision)
		h.settle(ctx)
		h.delivers(ctx, "prod")
	}
	w.clock.Step(40 * 24 * time.Hour)
	h.settle(ctx)
	g.Expect(w.revisions(ctx, "prod")).NotTo(ContainElement("1.0.5"))
	g.Expect(w.c.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "again"}, r)).NotTo(Succeed())
}

// G52: a request under the hold of a rollback. The revision that failed stays out.
func TestG52ARequestUnderAHold(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := failedInStaging(t)
	h.delivers(ctx, "staging")
	h.live(ctx, 31*time.Minute, 10*time.Minute)
	hold := w.newest(ctx, "staging").Spec.Hold.UntilSequence
	w.ask(ctx, "same", "staging", "1.0")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec).To(And(HaveField("Request.Name", "same"), HaveField("Hold.UntilSequence", hold)))
	h.live(ctx, 2*time.Hour, 10*time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)
	h.live(ctx, 24*time.Hour, 6*time.Hour)
	g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.0", "1.0"}))
}

// G64: a rollback on demand while a newer revision waits. The revision before the one that runs is promoted.
func TestG64ARollbackWhileANewerRevisionWaits(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := threeReleases(t, "prod")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Promotion = notify(true) })
	w.runs("dev", "1.2")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingApproval)
	w.ask(ctx, "back", "prod", "")
	h.settle(ctx)
	all := w.into(ctx, "prod")
	g.Expect(all[2].Status).To(And(HaveField("Phase", capstanv1.PhaseSuperseded), HaveField("Reason", string(decision.NewerPromotion))))
	g.Expect(all[3].Spec).To(And(HaveField("Revision", "1.0.5"), HaveField("RollbackOf.Number", int64(2)), HaveField("Manual", true)))
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingApproval)
	approve(ctx, g, w, all[3])
	h.settle(ctx)
	h.delivers(ctx, "prod")
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)
	g.Expect(w.revisions(ctx, "prod")).To(Equal([]string{"1.0.5", "1.1", "1.2", "1.0.5"}), "1.2 stays out")
}
