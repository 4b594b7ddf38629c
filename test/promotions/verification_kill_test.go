package promotions_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// G44: one hub after another is killed at any outside call while a revision soaks, is sent, is rolled
// out, is verified, and goes to prod. Each environment gets it once, and never before the soak and
// the verification are done: the time in which no hub ran, or what a hub had not stored, counts for
// neither. In half of the histories checks must pass, too, whose results no hub has from the one before it.
func TestG44KilledFromGatesToVerifying(t *testing.T) {
	t.Parallel()
	runs := 3 // of about eight kills each
	if soak() {
		runs = 140
	}
	const soaks, verifies, step = 20 * time.Minute, 30 * time.Minute, 6 * time.Minute
	atRandom(t, runs, func(t *testing.T, random *rand.Rand, _ uint64) {
		g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
		c := withoutWindows(w.c)
		p := w.newPipeline("web", notify(false), "dev", "staging", "prod")
		p.Spec.Environments[1].Gates = soaking(soaks.String())
		p.Spec.Environments[1].Verification = &pipelinesv1.Verification{For: verifies.String()}
		measured := random.IntN(2) == 0
		if measured {
			checks := []pipelinesv1.Check{errorRate(passes(2), func(c *pipelinesv1.Check) { c.Interval = step.String() })}
			p.Spec.Environments[1].Gates.Checks, p.Spec.Environments[1].Verification.Checks = checks, checks
		}
		h := w.began(ctx, p)
		m := w.measuring(t, h)
		h.live(ctx, soaks+verifies, 10*time.Minute) // What staging runs is verified, too.
		w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.Verified)

		carrier := &team{w: w}
		w.runs("dev", "1.1")
		ready := map[string]time.Time{"dev": w.clock.Now()}
		var sent []time.Time
		killed := 0
		doom := func() (*hubUnder, *killer) {
			k := &killer{at: random.IntN(100) + 1, after: random.IntN(2) == 0}
			doomed := w.hub("doomed", k.client(c), k)
			doomed.measuresAs(h)
			return doomed, k
		}
		h, k := doom()
		process := k.process(ctx)
		for range 400 {
			for range random.IntN(4) + 1 {
				h.pass(process)
			}
			if k.over() {
				killed++
				k.end()
				h, k = doom()
				process = k.process(ctx)
			}
			for n := len(w.receiver.received()); len(sent) < n; {
				sent = append(sent, w.clock.Now())
			}
			if len(sent) == 1 && ready["staging"].IsZero() && carrier.act() {
				ready["staging"] = w.clock.Now()
			}
			if len(sent) == 2 {
				break
			}
			w.clock.Step(step)
		}
		k.end()
		t.Logf("killed %d hubs", killed)
		g.Expect(killed).To(BeNumerically(">", 0))
		g.Expect(sent).To(HaveLen(2), "nothing is lost: %s", w.print(ctx))
		g.Expect(sent[0]).To(BeTemporally(">=", ready["dev"].Add(soaks)), "not early")
		g.Expect(sent[1]).To(BeTemporally(">=", ready["staging"].Add(verifies)), "not early")
		g.Expect(m.asked() > 0).To(Equal(measured))
		last := w.hub("last", c, nil)
		last.measuresAs(h)
		w.clock.Step(afterClaim)
		last.settle(ctx)
		for carrier.act() {
			last.settle(ctx)
		}
		w.clock.Step(afterClaim)
		last.settle(ctx)
		g.Expect(w.receiver.ids).To(HaveLen(2), "each has one identity")
		for _, env := range []string{"staging", "prod"} {
			newest := w.newest(ctx, env)
			g.Expect(newest.Spec.Revision).To(Equal("1.1"))
			g.Expect(newest.Status.Phase).To(Equal(capstanv1.PhaseSucceeded), newest.Status.Message)
		}
	})
}

// withoutWindows returns a client that finds no PromotionWindows, and does not ask: an API server lets a
// consistent list of them wait for 100 ms, and the hub reads them from its cache.
func withoutWindows(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, is := list.(*capstanv1.PromotionWindowList); is {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
}
