package promotions_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/notification"
)

// lineEdit is a user's edit of the environments of a Pipeline.
type lineEdit struct {
	// before has the environments before the edit; the last one is prod.
	before []string
	// gates is the environment that prod must not overtake after the edit; empty for none.
	gates string
	apply func(context.Context, *world)
}

// edited writes the environments of the Pipeline. An environment that is new has the
// cluster of its name.
func (w *world) edited(ctx context.Context, envs ...string) {
	w.Helper()
	p := w.pipeline(ctx, "web")
	known := map[string]pipelinesv1.Environment{}
	for _, e := range p.Spec.Environments {
		known[e.Name] = e
	}
	edited := w.newPipeline("web", p.Spec.Promotion, envs...)
	for i, e := range edited.Spec.Environments {
		if before, ok := known[e.Name]; ok {
			edited.Spec.Environments[i] = before
		}
	}
	p.Spec.Environments = edited.Spec.Environments
	if err := w.c.Update(ctx, p); err != nil {
		w.Fatalf("%v", err)
	}
}

// renamed gives an environment another name; its targets stay.
func (w *world) renamed(ctx context.Context, from, to string) {
	w.Helper()
	p := w.pipeline(ctx, "web")
	for i := range p.Spec.Environments {
		if p.Spec.Environments[i].Name == from {
			p.Spec.Environments[i].Name = to
		}
	}
	if err := w.c.Update(ctx, p); err != nil {
		w.Fatalf("%v", err)
	}
}

// recreated deletes the Pipeline and creates it again: its UID and its status are new.
func (w *world) recreated(ctx context.Context, between func()) {
	w.Helper()
	p := w.pipeline(ctx, "web")
	if err := w.c.Delete(ctx, p); err != nil {
		w.Fatalf("%v", err)
	}
	between()
	again := &pipelinesv1.Pipeline{}
	again.Namespace, again.Name, again.Spec = p.Namespace, p.Name, p.Spec
	if err := w.c.Create(ctx, again); err != nil {
		w.Fatalf("%v", err)
	}
}

var (
	two   = []string{"dev", "prod"}
	three = []string{"dev", "staging", "prod"}
)

var lineEdits = map[string]lineEdit{
	"an environment is inserted":   {two, "staging", func(ctx context.Context, w *world) { w.edited(ctx, three...) }},
	"one is inserted at the start": {two, "", func(ctx context.Context, w *world) { w.edited(ctx, "build", "dev", "prod") }},
	"an environment is removed":    {three, "", func(ctx context.Context, w *world) { w.edited(ctx, two...) }},
	"two change places":            {three, "dev", func(ctx context.Context, w *world) { w.edited(ctx, "staging", "dev", "prod") }},
	"the source is renamed":        {three, "", func(ctx context.Context, w *world) { w.renamed(ctx, "staging", "stage") }},
	"the first is renamed":         {two, "", func(ctx context.Context, w *world) { w.renamed(ctx, "dev", "develop") }},
	"the Pipeline is recreated":    {three, "", func(ctx context.Context, w *world) { w.recreated(ctx, func() {}) }},
	"the Pipeline is recreated after the hub observed the deletion": {three, "", func(ctx context.Context, w *world) {
		w.recreated(ctx, func() { w.hub("in between", w.c, nil).settle(ctx) })
	}},
	"prod is removed and added again": {three, "", func(ctx context.Context, w *world) {
		w.edited(ctx, "dev", "staging")
		w.hub("in between", w.c, nil).settle(ctx)
		w.edited(ctx, three...)
	}},
}

// phasesInShort are the phases that `make test` combines with the edits, in turn; `make soak`
// combines all phases with each edit.
var phasesInShort = []string{
	"while it waits for approval", "when the hub was killed after the notification", "during the roll-out",
}

// dying is the transport of a hub that is killed at its first call to the receiver, before
// the call or after the receiver has it.
type dying struct {
	*killer
	received bool
}

// RoundTrip implements http.RoundTripper.
func (d *dying) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.received {
		if response, err := http.DefaultTransport.RoundTrip(r); err == nil {
			_ = response.Body.Close()
		}
	}
	d.mu.Lock()
	d.dead = true
	d.mu.Unlock()
	d.end()
	return nil, errKilled
}

// phasesOfProd bring the promotion of 1.1 into prod to a point of its lifecycle. Dev, and
// staging if there is one, run 1.1 already.
var phasesOfProd = map[string]struct {
	manual bool
	// sent is whether the receiver has the notification for prod; begun, whether an attempt
	// was begun.
	sent, begun bool
	reach       func(context.Context, Gomega, *world, *hubUnder)
}{
	"before it is created": {reach: func(context.Context, Gomega, *world, *hubUnder) {}},
	"while it waits for approval": {manual: true, reach: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingApproval)
	}},
	"when it is approved": {manual: true, reach: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
		h.settle(ctx)
		approve(ctx, g, w, w.newest(ctx, "prod"))
	}},
	"when the hub was killed before the notification": {begun: true, reach: func(ctx context.Context, g Gomega, w *world, _ *hubUnder) {
		w.killedAtReceiver(ctx, g, false)
	}},
	"when the hub was killed after the notification": {sent: true, reach: func(ctx context.Context, g Gomega, w *world, _ *hubUnder) {
		w.killedAtReceiver(ctx, g, true)
	}},
	"during the roll-out": {sent: true, reach: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	}},
	"when it has succeeded": {sent: true, reach: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
		h.settle(ctx)
	}},
}

// killedAtReceiver kills a hub at its call to the receiver for prod.
func (w *world) killedAtReceiver(ctx context.Context, g Gomega, received bool) {
	w.killedAt(ctx, g, "prod", received)
}

// killedAt kills a hub at its call to the receiver for an environment, before the call or
// after the receiver has it.
func (w *world) killedAt(ctx context.Context, g Gomega, env string, received bool) {
	had := len(w.receiver.received())
	k := &dying{killer: &killer{}, received: received}
	process := k.process(ctx)
	doomed := w.hub("doomed", k.client(w.c), k)
	for i := 0; i < 8 && !k.over(); i++ {
		doomed.pass(process)
	}
	k.end()
	g.Expect(w.newest(ctx, env).Status.Attempt).NotTo(BeNil())
	w.expectPhase(ctx, g, env, capstanv1.PhasePromoting)
	sent := 0
	if received {
		sent = 1
	}
	g.Expect(w.receiver.received()).To(HaveLen(had + sent))
}

// Whatever edit a user makes to the environments of a Pipeline, at any point of a promotion:
// no environment gets a revision twice, none is overtaken, and no revision is lost.
func TestEditsOfTheLine(t *testing.T) {
	t.Parallel()
	for i, what := range slices.Sorted(maps.Keys(lineEdits)) {
		edit := lineEdits[what]
		for when, phase := range phasesOfProd {
			if !soak() && when != phasesInShort[i%len(phasesInShort)] {
				continue // hub/promotion searches all interleavings, over a fake API server.
			}
			t.Run(what+" "+when, func(t *testing.T) {
				t.Parallel()
				g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
				h := w.began(ctx, w.newPipeline("web", notify(false), edit.before...))
				carrier := &fleet{w: w, runs: map[string]string{"build": "1.1", "dev": "1.0", "staging": "1.0", "prod": "1.0"}}
				carrier.release(ctx, "dev", "1.1")
				if slices.Contains(edit.before, "staging") {
					h.settle(ctx)
					g.Expect(carrier.act(ctx)).To(BeTrue())
					h.settlePipelines(ctx)
					before := w.newest(ctx, "staging")
					_, err := h.promotions.Reconcile(ctx, requestFor(&before))
					g.Expect(err).NotTo(HaveOccurred())
				}
				if phase.manual {
					p := w.pipeline(ctx, "web")
					last := &p.Spec.Environments[len(p.Spec.Environments)-1]
					last.Promotion = notify(true)
					g.Expect(w.c.Update(ctx, p)).To(Succeed())
				}
				phase.reach(ctx, g, w, h)
				if phase.sent {
					g.Expect(w.sent("prod", "1.1")).To(HaveLen(1))
				}
				if when == "when it has succeeded" {
					g.Expect(carrier.act(ctx)).To(BeTrue())
					h.settle(ctx)
					w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)
				}

				edit.apply(ctx, w)
				next := w.hub("next", w.c, nil)
				next.settle(ctx)
				carrier.observe(ctx)
				w.finish(ctx, next, carrier)
				w.checkOnce(ctx, g, edit, phase.sent || phase.begun, "1.1")

				carrier.release(ctx, w.pipeline(ctx, "web").Spec.Environments[0].Targets[0].ClusterRef.Name, "1.2")
				w.finish(ctx, next, carrier)
				w.checkOnce(ctx, g, edit, false, "1.2")
				first := w.pipeline(ctx, "web").Spec.Environments[0].Name
				g.Expect(w.sent(first, "1.2")).To(BeEmpty(), "nothing is promoted into the first environment")
			})
		}
	}
}

// fleet is the clusters of the environments: it carries out notifications in the order in
// which they arrive.
type fleet struct {
	w *world
	// runs has the revision of each cluster, also while no environment has it as target.
	runs map[string]string
	done int
}

// release makes a cluster run a revision that did not come from the pipeline.
func (f *fleet) release(ctx context.Context, cluster, revision string) {
	f.runs[cluster] = revision
	f.observe(ctx)
}

// act carries out one notification; false if there is none.
func (f *fleet) act(ctx context.Context) bool {
	received := f.w.receiver.received()
	if f.done >= len(received) {
		return false
	}
	e := received[f.done]
	f.done++
	for _, env := range f.w.pipeline(ctx, "web").Spec.Environments {
		if env.Name == e.Metadata[notification.KeyEnvironment] {
			f.runs[env.Targets[0].ClusterRef.Name] = e.Metadata[notification.KeyVersion]
		}
	}
	f.observe(ctx)
	return true
}

// observe makes the hub observe every cluster of an environment.
func (f *fleet) observe(ctx context.Context) {
	for _, env := range f.w.pipeline(ctx, "web").Spec.Environments {
		cluster := env.Targets[0].ClusterRef.Name
		f.w.runs(cluster, f.runs[cluster])
	}
}

// finish lets time pass, approves what waits for it, and carries out what was sent, until
// nothing happens any more.
func (w *world) finish(ctx context.Context, h *hubUnder, carrier *fleet) {
	w.Helper()
	g := NewWithT(w.TB.(*testing.T))
	for range 30 {
		w.clock.Step(afterClaim)
		h.settle(ctx)
		waits := false
		for _, p := range w.promotions(ctx) {
			if p.Status.Phase == capstanv1.PhaseAwaitingApproval && p.Spec.Approval == nil {
				approve(ctx, g, w, p)
				waits = true
			}
		}
		if waits {
			h.settle(ctx)
		}
		if !carrier.act(ctx) && !waits {
			return
		}
	}
	w.Fatalf("notifications do not end")
}

// sent returns the identities under which a revision was sent into an environment, in order.
func (w *world) sent(env, revision string) []string {
	var ids []string
	for _, e := range w.receiver.received() {
		if e.Metadata[notification.KeyEnvironment] == env && e.Metadata[notification.KeyVersion] == revision && !slices.Contains(ids, e.Metadata[notification.KeyPromotionID]) {
			ids = append(ids, e.Metadata[notification.KeyPromotionID])
		}
	}
	return ids
}

// checkOnce checks that every environment runs a revision, that it was sent to each at most
// under one identity, and not into prod before the environment that gates it.
func (w *world) checkOnce(ctx context.Context, g Gomega, edit lineEdit, begunBefore bool, revision string) {
	w.Helper()
	state := w.describe(ctx)
	first := map[string]int{}
	for i, e := range w.receiver.received() {
		env := e.Metadata[notification.KeyEnvironment]
		if _, seen := first[env]; !seen && e.Metadata[notification.KeyVersion] == revision {
			first[env] = i
		}
	}
	for _, e := range w.pipeline(ctx, "web").Spec.Environments {
		g.Expect(len(w.sent(e.Name, revision))).To(BeNumerically("<=", 1), "%s was sent to %s again\n%s", revision, e.Name, state)
		obs, _, _ := w.x.Last(w.object(e.Targets[0].ClusterRef.Name))
		g.Expect(obs.Revision).To(Equal(revision), "in %s\n%s", e.Name, state)
	}
	gate, gated := first[edit.gates]
	prod, sent := first["prod"]
	if sent && !begunBefore && gated {
		g.Expect(gate).To(BeNumerically("<", prod), "prod overtook %s\n%s", edit.gates, state)
	}
	for _, p := range w.promotions(ctx) {
		g.Expect(p.Status.Phase.Finished()).To(BeTrue(), "%s\n%s", p.Name, state)
		g.Expect(p.Status.Reason).NotTo(BeEmpty())
		g.Expect(p.Status.Message).NotTo(BeEmpty())
	}
}

// describe prints the promotions, for a failure.
func (w *world) describe(ctx context.Context) string {
	text := ""
	uid := types.UID("")
	if p := w.pipeline(ctx, "web"); p != nil {
		uid = p.UID
	}
	for _, p := range w.promotions(ctx) {
		whose := "own"
		if p.Spec.Pipeline.UID != uid {
			whose = "former"
		}
		text += fmt.Sprintf("%s %s %d: %s from %s (%d), %s %s: %s\n", whose, p.Spec.Environment, p.Spec.Number, p.Spec.Revision,
			p.Spec.Source.Environment, p.Spec.Source.Sequence, p.Status.Phase, p.Status.Reason, p.Status.Message)
	}
	return text
}

// twoThatRun is a world in which a new Pipeline has two environments that run a revision. Its hub has not observed them yet.
func twoThatRun(t *testing.T, revision string) (*WithT, context.Context, *world, *hubUnder) {
	t.Helper()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	g.Expect(w.c.Create(ctx, w.newPipeline("web", notify(false), "dev", "prod"))).To(Succeed())
	h := w.hub("hub", w.c, nil)
	h.settle(ctx)
	w.runs("dev", revision)
	w.runs("prod", revision)
	return g, ctx, w, h
}

// A Pipeline is declared over environments that run the revision already, while a controller is at work in the second one, as Flux is
// at each interval: nothing is promoted, unless it ends without being ready.
func TestAnEnvironmentAtWork(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := twoThatRun(t, "1.0")
	w.unready("prod", "1.0", true)
	h.settle(ctx)
	g.Expect(w.pipeline(ctx, "web").Status.Environments["prod"].Targets[0].Fresh()).To(BeTrue())
	h.live(ctx, time.Minute, 10*time.Second)
	g.Expect(w.into(ctx, "prod")).To(BeEmpty())
	w.runs("prod", "1.0")
	h.settle(ctx)
	g.Expect(w.into(ctx, "prod")).To(BeEmpty())
	w.unready("prod", "1.0", false)
	h.settle(ctx)
	g.Expect(w.into(ctx, "prod")).To(HaveLen(1), "it has 1.0, and it does not run")
}

// prod is upgraded to what was promoted, and shows the revision that it leaves. The source goes back to that one: it is promoted at
// once, because prod would run the other one else.
func TestTheSourceGoesBackDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := twoThatRun(t, "1.0")
	h.settle(ctx)
	w.runs("dev", "1.1")
	h.settle(ctx)
	g.Expect(w.sentTo("prod")).To(Equal([]string{"1.1"}))
	w.unready("prod", "1.0", true)
	h.settle(ctx)
	w.runs("dev", "1.0")
	h.settle(ctx)
	g.Expect(w.sentTo("prod")).To(Equal([]string{"1.1", "1.0"}))
}
