package promotions_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// N1 by pull request: the hub is killed at random outside calls (API server, Git, the
// service), before a call or after it took effect, many times while a revision is promoted
// to the last environment, and sometimes while another one appears. Each promotion has one
// pull request, and all environments run the last revision at the end.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	runs := 5 // one for each service
	if soak() {
		runs = 1000
	}
	atRandom(t, runs, func(t *testing.T, random *rand.Rand, seed uint64) {
		playKilled(t, random, anyCall(random), func(w *world, envs ...string) {
			newForge(t, w, kinds[seed%uint64(len(kinds))], envs...)
		})
	})
}

// atRandom plays runs with seeds in a row, from CAPSTAN_SEED if that is given, which
// asks for that run alone.
func atRandom(t *testing.T, runs int, play func(*testing.T, *rand.Rand, uint64)) {
	first := rand.Uint64()
	if given := os.Getenv("CAPSTAN_SEED"); given != "" {
		var err error
		if first, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
		runs = 1
	}
	for i := range runs {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("CAPSTAN_SEED=%d", seed), func(t *testing.T) {
			t.Parallel()
			play(t, rand.New(rand.NewPCG(seed, 0)), seed)
		})
	}
}

// anyCall kills at any of the outside calls.
func anyCall(random *rand.Rand) func() *killer {
	return func() *killer { return &killer{at: random.IntN(45) + 1, after: random.IntN(2) == 0} }
}

// playKilled plays one history in a world whose service is made by host, for the
// environments that are promoted into. Each hub is killed as next says.
func playKilled(t *testing.T, random *rand.Rand, next func() *killer, host func(w *world, envs ...string)) {
	g, ctx := NewWithT(t), t.Context()
	envs := []string{"dev", "staging"}
	if random.IntN(5) == 0 {
		envs = append(envs, "prod")
	}
	w := newWorld(t, t)
	host(w, envs[1:]...)
	w.began(ctx, w.newPipeline("web", w.pull(nil), envs...))
	killed := 0
	// kill one hub after another, then let one live until all is at rest.
	kill := func() {
		for range random.IntN(2) + 1 {
			k := next()
			w.doomed(ctx, k, 4)
			if k.over() {
				killed++
				if k.died != nil {
					k.died(k)
				}
				t.Logf("killed at call %d (%s), took effect %v", k.at, cmp.Or(k.where, "API server"), k.after)
			}
			if random.IntN(2) == 0 {
				w.clock.Step(claimStep)
			}
		}
	}
	live := func() { w.hub("living", w.c, nil).rest(ctx) }

	last := "1.1"
	w.runs("dev", last)
	kill()
	if random.IntN(2) == 0 { // Another revision comes while the first is on its way.
		last = "1.2"
		w.runs("dev", last)
		kill()
	}
	live()
	for _, env := range envs[1:] {
		open := w.hosted.opened(env)
		g.Expect(open).To(HaveLen(1), "%s waits for one pull request\n%s", env, w.print(ctx))
		w.hosted.merge(open[0])
		kill()
		w.runs(env, w.hosted.wants(env))
		live()
		newest := w.newest(ctx, env)
		g.Expect(newest.Spec.Revision).To(Equal(last))
		g.Expect(newest.Status.Phase).To(Equal(capstanv1.PhaseSucceeded), newest.Status.Message)
	}
	g.Expect(killed).To(BeNumerically(">", 0))
	onceEach(ctx, g, w)
}

// onceEach promotion has one pull request, at most, and each that succeeded was
// merged once; nothing is left open.
func onceEach(ctx context.Context, g Gomega, w *world) {
	g.Expect(w.hosted.doubled()).To(BeEmpty(), "no identity has two pull requests")
	merged := map[string]int{}
	for _, pr := range w.hosted.PullRequests() {
		g.Expect(pr.State).NotTo(Equal(providertest.Open), "%s is left open", pr.Title)
		if pr.State == providertest.Merged {
			merged[idLine.FindStringSubmatch(pr.Body)[1]]++
		}
	}
	promotions := w.promotions(ctx)
	var known []string
	for i := range promotions {
		known = append(known, strategy.Identity(&promotions[i]))
	}
	g.Expect(w.hosted.identities()).To(HaveLen(len(w.hosted.PullRequests())), "every pull request has an identity")
	g.Expect(known).To(ContainElements(w.hosted.identities()), "and it is a promotion's")
	for i := range promotions {
		if p := &promotions[i]; p.Status.Phase == capstanv1.PhaseSucceeded {
			g.Expect(merged[strategy.Identity(p)]).To(Equal(1), "%s was merged once", p.Name)
		}
	}
}

// N1, and reference/promotion.md 5.4: the hub is killed at every request to Git and
// to the service on a promotion's way from the observation to the merge and on to the
// withdrawal of the next one, before it and after it took effect.
func TestKilledAtEveryRequest(t *testing.T) {
	t.Parallel()
	play := func(t *testing.T, k *killer) {
		g, ctx := NewWithT(t), t.Context()
		w, _ := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
		living := func() *hubUnder { return w.hub("living", w.c, nil) }
		w.runs("dev", "1.1")
		w.doomed(ctx, k, 5)
		living().rest(ctx)
		open := w.forge.opened("staging")
		g.Expect(open).To(HaveLen(1))
		g.Expect(w.forge.PullRequests()).To(HaveLen(1), "killed at %s", k.where)
		w.forge.merge(open[0])
		if !k.over() {
			k.end = nil
			w.doomed(ctx, k, 3)
		}
		w.runs("staging", w.forge.wants("staging"))
		living().rest(ctx)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)

		// The next revision is taken back while its pull request is open.
		w.runs("dev", "1.2")
		living().settle(ctx)
		g.Expect(w.forge.PullRequests()).To(HaveLen(2))
		w.runs("dev", "1.1")
		if !k.over() {
			w.doomed(ctx, k, 3)
		}
		living().rest(ctx)
		g.Expect(w.newest(ctx, "staging").Status.Withdrawn).To(BeTrue())
		g.Expect(w.forge.PullRequests()).To(HaveLen(2))
		onceEach(ctx, g, w)
	}
	whole := &killer{only: true}
	play(t, whole)
	NewWithT(t).Expect(len(whole.calls)).To(BeNumerically(">", 12), "the way has this many requests")
	killAtEach(t, whole.calls, 2, func(t *testing.T, k *killer) {
		k.only = true
		play(t, k)
		NewWithT(t).Expect(k.over()).To(BeTrue())
	})
}
