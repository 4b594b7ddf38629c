package promotions_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// window creates a PromotionWindow that selects the namespace of the world. Windows are objects of the
// whole API server.
func (w *world) window(ctx context.Context, name string, spec pipelinesv1.WindowSpec) *capstanv1.PromotionWindow {
	w.Helper()
	o := &capstanv1.PromotionWindow{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-" + name}, Spec: capstanv1.PromotionWindowSpec{
		WindowSpec: spec, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.ns}},
	}}
	if err := w.c.Create(ctx, o); err != nil {
		w.Fatalf("%v", err)
	}
	return o
}

var stopButton = pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, Reason: "incident 4711"}

func TestPromotionWindows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan")})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	line := func(t *testing.T) (*WithT, *world, *hubUnder) {
		t.Helper()
		w := newWorldAt(t, t, plane.Config())
		return NewWithT(t), w, w.began(ctx, w.newPipeline("web", notify(false), "dev", "prod"))
	}
	pull := func(t *testing.T, autoMerge bool) (*WithT, *world, *hubUnder) {
		t.Helper()
		w := newWorldAt(t, t, plane.Config())
		newForge(t, w, pipelinesv1.GitHub, "staging")
		p := w.newPipeline("web", w.pull(func(s *pipelinesv1.PullRequestPromotion) { s.AutoMerge = autoMerge }), "dev", "staging")
		return NewWithT(t), w, w.began(ctx, p)
	}
	t.Run("G49: only the namespace binds", func(t *testing.T) {
		g, w, h := line(t)
		stop := w.window(ctx, "stop", stopButton)
		w.runs("dev", "1.1")
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
		g.Expect(w.newest(ctx, "prod").Status).To(And(HaveField("Reason", gate.ReasonFrozen), HaveField("Message",
			`PromotionWindow "`+stop.Name+`" (incident 4711) denies promotions; no time is known at which promotions are allowed again`)))
		g.Expect(w.newest(ctx, "prod").Status.Gates).To(ConsistOf(And(HaveField("Name", capstanv1.GatePromotionWindows), HaveField("Type", capstanv1.PromotionWindowGate))))
		w.edit(ctx, func(p *pipelinesv1.Pipeline) {
			p.Labels = map[string]string{"tier": "dev"}
			p.Spec.Gates = &pipelinesv1.Gates{Windows: []pipelinesv1.Window{{Name: "mine", WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.AllowWindow}}}}
			p.Spec.Environments[1].Name = "development"
		})
		h.settle(ctx)
		w.expectPhase(ctx, g, "development", capstanv1.PhaseAwaitingGates)
		g.Expect(w.receiver.received()).To(BeEmpty())
		g.Expect(w.c.Delete(ctx, stop)).To(Succeed())
		h.settle(ctx)
		w.expectPhase(ctx, g, "development", capstanv1.PhaseAwaitingRollout)
	})

	t.Run("windows select", func(t *testing.T) {
		g, w, h := line(t)
		for name, narrow := range map[string]func(*capstanv1.PromotionWindowSpec){
			"namespace": func(s *capstanv1.PromotionWindowSpec) {
				s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "prod"}}
			},
			"pipeline": func(s *capstanv1.PromotionWindowSpec) {
				s.PipelineSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "prod"}}
			},
			"environment": func(s *capstanv1.PromotionWindowSpec) { s.Environments = []string{"dev", "staging"} },
		} {
			o := &capstanv1.PromotionWindow{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-" + name}, Spec: capstanv1.PromotionWindowSpec{WindowSpec: stopButton,
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.ns}}}}
			narrow(&o.Spec)
			g.Expect(w.c.Create(ctx, o)).To(Succeed())
			defer func() { g.Expect(w.c.Delete(ctx, o)).To(Succeed()) }()
		}
		w.runs("dev", "1.1")
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	})

	t.Run("G48: an Allow of the Pipeline does not open those of administrators", func(t *testing.T) {
		g, w, h := line(t)
		w.window(ctx, "office", pipelinesv1.WindowSpec{Type: pipelinesv1.AllowWindow, From: w.clock.Now().Add(3 * time.Hour).UTC().Format(time.RFC3339)})
		w.edit(ctx, func(p *pipelinesv1.Pipeline) {
			p.Spec.Gates = &pipelinesv1.Gates{Windows: []pipelinesv1.Window{{Name: "all-day", WindowSpec: pipelinesv1.WindowSpec{
				Type: pipelinesv1.AllowWindow, Schedule: "0 0 * * *", Duration: "24h", TimeZone: "UTC",
			}}}}
		})
		opens := w.clock.Now().Add(3 * time.Hour)
		w.runs("dev", "1.1")
		h.settle(ctx)
		waiting := w.newest(ctx, "prod").Status
		g.Expect(waiting.Reason).To(Equal(gate.ReasonOutsideWindow))
		g.Expect(waiting.ExpectedTime.Time).To(BeTemporally("==", opens.Truncate(time.Second)))
		h.live(ctx, 3*time.Hour-time.Minute, time.Hour)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
		h.live(ctx, time.Minute, time.Minute)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	})

	t.Run("one that is not valid begins nothing", func(t *testing.T) {
		g, w, h := line(t)
		bad := w.window(ctx, "bad", pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, Schedule: "0 9 * * 1-5", Duration: "1m", TimeZone: "Europe/Rigo"})
		w.runs("dev", "1.1")
		h.settle(ctx)
		g.Expect(w.newest(ctx, "prod").Status).To(And(HaveField("Reason", gate.ReasonInvalidGate), HaveField("Message",
			ContainSubstring(`PromotionWindow "`+bad.Name+`" is not valid; its administrator has to correct it: spec.timeZone: `))))
		g.Expect(w.c.Delete(ctx, bad)).To(Succeed())
		closes := w.window(ctx, "closes", pipelinesv1.WindowSpec{Type: pipelinesv1.AllowWindow, Duration: "24h"})
		h.settle(ctx)
		g.Expect(w.newest(ctx, "prod").Status.Message).To(ContainSubstring("spec.duration: it needs a schedule"))
		before := closes.DeepCopy()
		closes.Spec.Duration = ""
		g.Expect(w.c.Patch(ctx, closes, client.MergeFrom(before))).To(Succeed())
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	})

	// The stop button is pressed after the hub has judged the gates, and before it opens the pull
	// request or merges it.
	t.Run("a window that is over gives pull requests the commit status", func(t *testing.T) {
		g, w, h := pull(t, false)
		w.window(ctx, "over", pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, Until: "2026-01-01T00:00:00Z"})
		w.runs("dev", "1.1")
		h.settle(ctx)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
		g.Expect(w.shown().State).To(Equal("success"))
	})
	t.Run("a stop between two steps", func(t *testing.T) {
		g, w, h := pull(t, true)
		var stop *capstanv1.PromotionWindow
		w.hosted.once(http.MethodPost, "git-receive-pack", func() { stop = w.window(ctx, "stop", stopButton) })
		w.runs("dev", "1.1")
		h.settle(ctx)
		g.Expect(stop).NotTo(BeNil())
		g.Expect(w.forge.PullRequests()).To(BeEmpty())
		w.expectPhase(ctx, g, "staging", capstanv1.PhasePromoting)
		g.Expect(w.newest(ctx, "staging").Status.Message).To(HavePrefix(`blocked: PromotionWindow "` + stop.Name + `" (incident 4711) denies promotions`))

		g.Expect(w.c.Delete(ctx, stop)).To(Succeed())
		w.hosted.once(http.MethodPost, "/pulls", func() { stop = w.window(ctx, "stop-again", stopButton) })
		h.rest(ctx)
		g.Expect(w.newest(ctx, "staging").Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingMerge), HaveField("Reason", "MergeHeld")))
		g.Expect(w.c.Delete(ctx, stop)).To(Succeed())
		h.live(ctx, openWithin, openWithin)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
	})

	// A team changes the line while an attempt is under way, and a stop is in force: no step follows.
	for name, change := range map[string]func(*pipelinesv1.Pipeline){
		"renamed":        func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Name = "other" },
		"made the first": func(p *pipelinesv1.Pipeline) { slices.Reverse(p.Spec.Environments) },
	} {
		t.Run("G49: an environment is "+name+" between two steps", func(t *testing.T) {
			g, w, h := pull(t, true)
			pushed := false
			w.hosted.once(http.MethodPost, "git-receive-pack", func() {
				pushed = true
				w.window(ctx, "stop", stopButton)
				w.edit(ctx, change)
			})
			w.runs("dev", "1.1")
			h.settle(ctx)
			g.Expect(pushed).To(BeTrue())
			g.Expect(w.forge.PullRequests()).To(BeEmpty())
			w.expectPhase(ctx, g, "staging", capstanv1.PhaseSuperseded)
		})
	}

	// A notification may have been sent when the hub was killed. It is repeated, so that its record is
	// right, also if its environment or its Pipeline is gone: but not during a stop.
	for name, remove := range map[string]func(*world){
		"environment": func(w *world) {
			w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments = p.Spec.Environments[:1] })
		},
		"Pipeline": func(w *world) {
			if err := w.c.Delete(ctx, w.pipeline(ctx, "web")); err != nil {
				w.Fatalf("%v", err)
			}
		},
	} {
		t.Run("G49: the "+name+" of a notification that is repeated is removed", func(t *testing.T) {
			g, w, h := line(t)
			stop := w.window(ctx, "stop", stopButton)
			w.runs("dev", "1.1")
			h.settle(ctx)
			p := w.newest(ctx, "prod")
			before := p.DeepCopy()
			past := metav1.NewMicroTime(w.clock.Now().Add(-time.Minute))
			p.Status.Phase, p.Status.Attempt = capstanv1.PhasePromoting, &capstanv1.Attempt{Number: 1, Holder: "killed", StartTime: past, NextAttemptTime: past}
			g.Expect(w.c.Status().Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
			remove(w)
			h.settle(ctx)
			g.Expect(w.receiver.received()).To(BeEmpty())
			w.expectPhase(ctx, g, "prod", capstanv1.PhasePromoting)
			g.Expect(w.c.Delete(ctx, stop)).To(Succeed())
			h.settle(ctx)
			g.Expect(w.receiver.received()).To(HaveLen(1))
			w.expectPhase(ctx, g, "prod", capstanv1.PhaseSuperseded)
		})
	}

	t.Run("G19: an override", func(t *testing.T) {
		g, w, h := line(t)
		w.window(ctx, "stop", stopButton)
		w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = soaking("2h") })
		w.runs("dev", "1.1")
		h.settle(ctx)
		override := func(name string, retry int64) {
			p := w.newest(ctx, "prod")
			before := p.DeepCopy()
			p.Spec.Overrides = append(p.Spec.Overrides, capstanv1.Override{Gate: name, By: "olga", Reason: "hotfix", Retry: retry})
			g.Expect(w.c.Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
			h.settle(ctx)
		}
		override(capstanv1.GatePromotionWindows, 1)
		g.Expect(w.newest(ctx, "prod").Status.Gates).To(HaveEach(HaveField("State", capstanv1.GateClosed)), "another run")
		override(capstanv1.GatePromotionWindows, 0)
		g.Expect(w.newest(ctx, "prod").Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingGates), HaveField("Reason", gate.ReasonSoaking)))
		g.Expect(w.newest(ctx, "prod").Status.ExpectedTime.Time).To(BeTemporally("~", w.clock.Now().Add(2*time.Hour), 5*time.Second))
		override(capstanv1.GateSoak, 0)
		done := w.newest(ctx, "prod").Status
		g.Expect(done.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
		g.Expect(done.Gates).To(ConsistOf(
			And(HaveField("Name", capstanv1.GateSoak), HaveField("Reason", gate.ReasonOverridden), HaveField("State", capstanv1.GateOpen)),
			And(HaveField("Name", capstanv1.GatePromotionWindows), HaveField("Reason", gate.ReasonOverridden), HaveField("Message", HavePrefix("olga overrides it (hotfix): PromotionWindow")))))
		g.Expect(w.receiver.received()).To(HaveLen(1))
		g.Expect(h.published()).To(ContainElements(ContainSubstring(`GateOverridden The gate "soak" is open: olga overrides it (hotfix)`),
			ContainSubstring(`GateOverridden The gate "promotion-windows" is open`)))
		w.runs("prod", "1.1")
		w.runs("dev", "1.2")
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
	})
}
