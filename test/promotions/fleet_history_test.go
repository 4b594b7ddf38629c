package promotions_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// fleetHistory is a random history of the clusters of a fleet. It knows what they run.
type fleetHistory struct {
	*WithT
	w      *world
	random *rand.Rand
	// runs has the revision of each cluster that is selected, and dead those that cannot be observed.
	runs map[string]string
	dead map[string]bool
	// wanted is what was sent to prod last.
	wanted string
	next   int
}

// step lets one thing happen to the fleet.
func (f *fleetHistory) step() {
	var all []string
	for i := range f.next {
		if f.runs[eu(i)] != "" {
			all = append(all, eu(i))
		}
	}
	one := all[f.random.IntN(len(all))]
	switch f.random.IntN(6) {
	case 0:
		if len(all) < 9 {
			f.join("0.9")
		}
	case 1:
		if len(all) > 4 {
			delete(f.runs, one)
			delete(f.dead, one)
			f.w.label(one, nil)
		}
	case 2:
		f.dead[one] = true
		f.w.stale(one)
	case 3, 4:
		delete(f.dead, one)
		f.runs[one] = f.wanted
		f.w.runs(one, f.wanted)
	case 5:
		if !f.dead[one] {
			f.w.unready(one, f.runs[one], f.random.IntN(2) == 0)
		}
	}
}

// join adds a cluster.
func (f *fleetHistory) join(revision string) {
	name := eu(f.next)
	f.next++
	f.runs[name] = revision
	f.w.label(name, ofProd)
}

// show makes the hub observe what the clusters run. An observation is kept only for clusters that a Pipeline uses.
func (f *fleetHistory) show() {
	for name, revision := range f.runs {
		if f.dead[name] {
			continue
		}
		if last, known, _ := f.w.x.Last(f.w.object(name)); !known || last.Revision == "" {
			f.w.runs(name, revision)
		}
	}
}

// majority returns whether more than half of the selected clusters run a revision.
func (f *fleetHistory) majority(revision string) bool {
	n := 0
	for name := range f.runs {
		last, known, fresh := f.w.x.Last(f.w.object(name))
		if known && fresh.Fresh && last.Ready && last.Revision == revision {
			n++
		}
	}
	return 2*n > len(f.runs)
}

// Clusters join, leave, die and return while revisions are promoted, and hubs are killed at any call. Each revision is
// promoted into the fleet once for each agreement of its source, is sent once, and the fleet agrees on a revision only
// while more than half of its clusters run it.
func TestHistoriesOfAFleet(t *testing.T) {
	t.Parallel()
	runs := 1
	if soak() {
		runs = 200
	}
	atRandom(t, runs, func(t *testing.T, random *rand.Rand, _ uint64) {
		g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
		c := withoutWindows(w.c)
		p := w.newPipeline("web", notify(false), "dev", "prod", "last")
		p.Spec.Environments[1].Targets = prodTargets()
		p.Spec.Environments[1].Quorum = &pipelinesv1.Quorum{Ready: "67%", JoinWithin: "20m", Lost: &pipelinesv1.LostTargets{After: "30m", Max: intstr.FromInt32(2)}}
		g.Expect(c.Create(ctx, p)).To(Succeed())
		f := &fleetHistory{WithT: g, w: w, random: random, runs: map[string]string{}, dead: map[string]bool{}, wanted: "1.0"}
		for range 5 {
			f.join("1.0")
		}
		first := w.hub("first", c, nil)
		first.settle(ctx)
		w.runs("dev", "1.0")
		w.runs("last", "1.0")
		f.show()
		first.settle(ctx)

		doom := func() (*hubUnder, *killer) {
			k := &killer{at: random.IntN(120) + 1, after: random.IntN(2) == 0}
			return w.hub("doomed", k.client(c), k), k
		}
		h, k := doom()
		process := k.process(ctx)
		killed, minor, agreed := 0, 0, *w.pipeline(ctx, "web").Status.Environments["prod"].Agreed
		check := func() {
			now := *w.pipeline(ctx, "web").Status.Environments["prod"].Agreed
			if now.Sequence != agreed.Sequence {
				g.Expect(now.Sequence).To(Equal(agreed.Sequence+1), "no sequence is passed over")
				g.Expect(f.majority(now.Revision)).To(BeTrue(), "it agreed on %s: %v, dead %v", now.Revision, f.runs, f.dead)
			}
			agreed = now
		}
		for range 120 {
			if random.IntN(15) == 0 {
				minor++
				w.runs("dev", fmt.Sprintf("1.%d", minor))
			}
			f.step()
			for range random.IntN(3) + 1 {
				h.pass(process)
				f.show()
			}
			if k.over() {
				killed++
				k.end()
				h, k = doom()
				process = k.process(ctx)
			}
			check()
			if into := w.into(ctx, "prod"); len(into) > 0 && into[len(into)-1].Status.CarriedOutTime != nil {
				f.wanted = into[len(into)-1].Spec.Revision
			}
			w.clock.Step(time.Duration(random.IntN(8)+1) * time.Minute)
		}
		k.end()
		t.Logf("killed %d hubs, %d revisions, %d promotions", killed, minor, len(w.into(ctx, "prod")))

		// Everybody returns and runs what was sent: the fleet gets what dev runs, and so does the next environment.
		minor++
		latest := fmt.Sprintf("1.%d", minor)
		w.runs("dev", latest)
		last := w.hub("last", c, nil)
		for range 20 {
			w.clock.Step(afterClaim)
			last.settle(ctx)
			for name := range f.runs {
				into := w.into(ctx, "prod")
				w.runs(name, into[len(into)-1].Spec.Revision)
			}
			if into := w.into(ctx, "last"); len(into) > 0 && into[len(into)-1].Status.CarriedOutTime != nil {
				w.runs("last", into[len(into)-1].Spec.Revision)
			}
			last.settle(ctx)
		}
		for _, env := range []string{"prod", "last"} {
			newest := w.newest(ctx, env)
			g.Expect(newest.Spec.Revision).To(Equal(latest), "nothing is lost")
			g.Expect(newest.Status.Phase).To(Equal(capstanv1.PhaseSucceeded), newest.Status.Message)
			once := map[string]int{}
			for _, one := range w.into(ctx, env) {
				once[fmt.Sprintf("%s of agreement %d", one.Spec.Revision, one.Spec.Source.Sequence)]++
			}
			g.Expect(once).To(HaveEach(1), "each is promoted into %s once", env)
		}
		g.Expect(w.pipeline(ctx, "web").Status.Environments["prod"].Fleet.Ready).To(Equal(int32(len(f.runs))))
	})
}
