package promotions_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
)

// afterClaim is longer than an attempt blocks others.
const afterClaim = 30 * time.Second

// N1: the hub is killed at every outside call during a promotion, before the call and after
// it took effect. The next hub finishes the promotion: there is one promotion for each
// environment, one identity at the receiver for each, and none is lost.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	play := func(ctx context.Context, g Gomega, w *world, k *killer) {
		w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
		w.runs("dev", "1.1")
		doomed := w.hub("doomed", k.client(w.c), k)
		process := k.process(ctx)
		for i := 0; i < 8 && !k.over(); i++ {
			doomed.pass(process)
		}
		k.end()
		next := w.hub("next", w.c, nil)
		next.settle(ctx)
		w.clock.Step(afterClaim)
		next.settle(ctx)
		all := w.into(ctx, "staging")
		g.Expect(all).To(HaveLen(1))
		g.Expect(all[0].Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
		g.Expect(w.receiver.ids).To(HaveLen(1), "one identity")
		g.Expect(w.receiver.ids).To(HaveKey(strategy.Identity(&all[0])))
		g.Expect(w.receiver.ids[strategy.Identity(&all[0])]).To(BeNumerically("<=", 2), "notified again at most once, where the answer was lost")
		w.runs("staging", "1.1")
		next.settle(ctx)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)
	}

	whole := &killer{}
	play(t.Context(), NewWithT(t), newWorld(t, t), whole)
	NewWithT(t).Expect(len(whole.calls)).To(BeNumerically(">", 10), "the way has this many outside calls")
	killAtEach(t, whole.calls, 2, func(t *testing.T, k *killer) {
		play(t.Context(), NewWithT(t), newWorld(t, t), k)
	})
}

// A hub that ends in an orderly way during an attempt, as in an upgrade, records the attempt.
// The next hub repeats it after the first wait, and not only after the deadline of the attempt.
func TestAHubThatEndsDuringAnAttemptLeavesNoClaim(t *testing.T) {
	t.Parallel()
	g, w := NewWithT(t), newWorld(t, t)
	w.began(t.Context(), w.newPipeline("web", notify(false), "dev", "staging"))
	w.runs("dev", "1.1")
	process, end := context.WithCancel(t.Context())
	ending := w.hub("ending", w.c, calls(func(r *http.Request) (*http.Response, error) {
		end()
		<-r.Context().Done()
		return nil, r.Context().Err()
	}))
	for range 8 {
		ending.pass(process)
	}
	g.Expect(process.Err()).To(HaveOccurred(), "it ended during the attempt")
	g.Expect(w.receiver.received()).To(BeEmpty())
	w.clock.Step(afterEnd)
	w.hub("next", w.c, nil).settle(t.Context())
	g.Expect(w.receiver.received()).To(HaveLen(1))
}

// afterEnd is longer than the first wait after a failed attempt, and shorter than a claim.
const afterEnd = 7 * time.Second

type calls func(*http.Request) (*http.Response, error)

func (c calls) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

// killAtEach runs play with a killer for each distinct call, or one of so many, before it or after it
// took effect in turn; for both sides of each call at all in `make soak`.
func killAtEach(t *testing.T, calls []call, oneOf int, play func(*testing.T, *killer)) {
	all := distinct(calls)
	numbers := make([]int, 0, len(all))
	for i := 0; i < len(all); i += oneOf {
		numbers = append(numbers, all[i])
	}
	if soak() {
		numbers = numbers[:0]
		for i := range calls {
			numbers = append(numbers, i+1)
		}
	}
	t.Logf("%d calls, killed at %d of them", len(calls), len(numbers))
	for i, at := range numbers {
		for _, after := range []bool{false, true} {
			if !soak() && after != (i%2 == 0) {
				continue
			}
			t.Run(fmt.Sprintf("call %d, took effect %v", at, after), func(t *testing.T) {
				t.Parallel()
				t.Logf("killed at %s", calls[at-1].what)
				play(t, &killer{at: at, after: after})
			})
		}
	}
}

// soak returns whether tests run with their full counts.
func soak() bool { return os.Getenv("CAPSTAN_SOAK") != "" }

// team applies notifications in the order in which they arrive, after any delay.
type team struct {
	w    *world
	done int
}

// act applies one notification; false if there is none.
func (a *team) act() bool {
	received := a.w.receiver.received()
	if a.done >= len(received) {
		return false
	}
	e := received[a.done]
	a.done++
	var env, version string
	for k, v := range e.Metadata {
		switch k {
		case "pipelines.weave.works/environment":
			env = v
		case "pipelines.weave.works/version":
			version = v
		}
	}
	a.w.runs(env, version)
	return true
}

// Random histories of observations, crashes and two hubs at once never result in two
// promotions for one state of the source, or in an attempt with another identity than the
// promotion's, and never lose the last revision.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	envs := []string{"dev", "staging", "prod"}
	rapid.Check(t, func(rt *rapid.T) {
		ctx, w := t.Context(), newWorld(t, rt)
		first := w.began(ctx, w.newPipeline("web", notify(false), envs...))
		hubs := []*hubUnder{first, w.hub("second", w.c, nil)}
		carrier := &team{w: w}
		dev := "1.0"
		rt.Repeat(map[string]func(*rapid.T){
			"dev moves": func(rt *rapid.T) {
				dev = rapid.SampledFrom([]string{"1.0", "1.1", "1.2"}).Draw(rt, "revision")
				w.runs("dev", dev)
			},
			"a hub reconciles":         func(rt *rapid.T) { rapid.SampledFrom(hubs).Draw(rt, "hub").pass(ctx) },
			"the team deploys":         func(*rapid.T) { carrier.act() },
			"the clock advances":       func(*rapid.T) { w.clock.Step(afterClaim) },
			"a cluster is unreachable": func(rt *rapid.T) { w.stale(rapid.SampledFrom(envs).Draw(rt, "environment")) },
			"a hub is killed": func(rt *rapid.T) {
				k := &killer{at: rapid.IntRange(1, 30).Draw(rt, "call"), after: rapid.Bool().Draw(rt, "took effect")}
				doomed := w.hub("doomed", k.client(w.c), k)
				process := k.process(ctx)
				doomed.pass(process)
				doomed.pass(process)
				k.end()
			},
		})
		// Everything heals, and what was begun comes to its end.
		w.fresh(envs...)
		for range 40 {
			w.clock.Step(afterClaim)
			first.settle(ctx)
			if !carrier.act() {
				break
			}
		}
		first.settle(ctx)
		w.checkHistory(ctx, rt, envs, dev)
	})
}

// fresh makes clusters reachable again, with the revision that was last observed.
func (w *world) fresh(envs ...string) {
	for _, env := range envs {
		obs, _, _ := w.x.Last(w.object(env))
		w.runs(env, obs.Revision)
	}
}

func (w *world) checkHistory(ctx context.Context, rt *rapid.T, envs []string, last string) {
	type state struct {
		env, source, revision string
		sequence              int64
	}
	decided, known := map[state]string{}, map[string]capstanv1.Promotion{}
	for _, p := range w.promotions(ctx) {
		s := state{p.Spec.Environment, p.Spec.Source.Environment, p.Spec.Revision, p.Spec.Source.Sequence}
		if other, twice := decided[s]; twice {
			rt.Fatalf("%s and %s are both for %+v", other, p.Name, s)
		}
		decided[s] = p.Name
		known[strategy.Identity(&p)] = p
		if !p.Status.Phase.Finished() {
			rt.Fatalf("%s is still %s: %s", p.Name, p.Status.Phase, p.Status.Message)
		}
	}
	var order []int64
	for id := range w.receiver.ids {
		if _, ok := known[id]; !ok {
			rt.Fatalf("an act under %s, which is no promotion", id)
		}
	}
	for _, e := range w.receiver.received() {
		p := known[e.Metadata["pipelines.weave.works/promotion-id"]]
		if p.Spec.Environment == "staging" && !slices.Contains(order, p.Spec.Number) {
			order = append(order, p.Spec.Number)
		}
	}
	if !slices.IsSorted(order) {
		rt.Fatalf("acts out of the order of their numbers: %v", order)
	}
	for _, env := range envs {
		if obs, _, _ := w.x.Last(w.object(env)); obs.Revision != last {
			rt.Fatalf("%s runs %s, and dev's last revision is %s\n%s", env, obs.Revision, last, w.print(ctx))
		}
	}
}
