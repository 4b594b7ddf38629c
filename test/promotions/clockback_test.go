package promotions_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
)

// The clock is put back by a day while a promotion waits: for the next attempt after a failed
// one, for the deadline of an attempt whose hub was killed, or for that of an earlier
// promotion. The wait is as long as without that, and not a day longer, and what was sent is
// not sent under another identity.
func TestAClockThatWasPutBackDelaysNoAttempt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// begin leaves a promotion that waits, and returns which revision is due.
		begin func(context.Context, *WithT, *world) string
		// wait is how long the promotion waits.
		wait time.Duration
	}{
		"after a failed attempt": {func(ctx context.Context, _ *WithT, w *world) string {
			w.receiver.fail = 1
			w.runs("dev", "1.1")
			w.hub("before", w.c, nil).settle(ctx)
			return "1.1"
		}, afterEnd},
		"after a claim without an outcome": {func(ctx context.Context, g *WithT, w *world) string {
			w.runs("dev", "1.1")
			w.killedAt(ctx, g, "staging", false)
			return "1.1"
		}, afterClaim},
		"for the claim of an earlier promotion": {func(ctx context.Context, g *WithT, w *world) string {
			w.runs("dev", "1.1")
			w.killedAt(ctx, g, "staging", true)
			w.runs("dev", "1.2")
			return "1.2"
		}, afterClaim},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
			w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
			due := tc.begin(ctx, g, w)
			before := w.newest(ctx, "staging")
			g.Expect(before.Status.Attempt.NextAttemptTime.After(w.clock.Now())).To(BeTrue(), "it waits")

			w.clock.Step(-24 * time.Hour)
			next := w.hub("next", w.c, nil)
			next.settle(ctx)
			sent := len(w.sent("staging", due))
			g.Expect(sent).To(BeZero(), "a claim still counts")
			w.clock.Step(tc.wait)
			next.settle(ctx)
			p := w.newest(ctx, "staging")
			g.Expect(p.Spec.Revision).To(Equal(due))
			g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout), w.describe(ctx))
			g.Expect(w.sent("staging", due)).To(Equal([]string{strategy.Identity(&p)}))
		})
	}
}
