package promotions_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// waveHistory is a random history of the clusters of an environment in waves. Each cluster has a manifest of its own: it gets
// what was sent to it last.
type waveHistory struct {
	*WithT
	w      *world
	random *rand.Rand
	// runs has the revision of each cluster that is selected, and dead those that cannot be observed.
	runs map[string]string
	dead map[string]bool
	next int
	// seen are the promotions that were checked, and agreed the agreements of the stages.
	seen   map[types.UID]bool
	agreed map[string]pipelinesv1.AgreedRevision
}

// step lets one thing happen.
func (f *waveHistory) step() {
	all := slices.Sorted(maps.Keys(f.runs))
	one := all[f.random.IntN(len(all))]
	switch f.random.IntN(8) {
	case 0:
		if len(all) < 10 {
			f.join()
		}
	case 1:
		if len(all) > 5 {
			delete(f.runs, one)
			delete(f.dead, one)
			f.w.label(one, nil)
		}
	case 2:
		f.w.label(one, f.ring())
	case 3:
		f.dead[one] = true
		f.w.stale(one)
	case 4, 5, 6:
		delete(f.dead, one)
		f.follow(one)
	case 7:
		if !f.dead[one] {
			f.w.unready(one, f.runs[one], f.random.IntN(2) == 0)
		}
	}
}

// follow makes a cluster run what was sent to it.
func (f *waveHistory) follow(cluster string) {
	if wanted := f.w.lastSentTo(cluster); wanted != "" {
		f.runs[cluster] = wanted
	}
	f.w.runs(cluster, f.runs[cluster])
}

func (f *waveHistory) ring() labels.Set {
	if f.random.IntN(3) == 0 {
		return ring(0)
	}
	return ofProd
}

func (f *waveHistory) join() {
	name := eu(f.next)
	f.next++
	f.runs[name] = "0.9"
	f.w.label(name, f.ring())
}

// show makes the hub observe what the clusters run.
func (f *waveHistory) show() {
	for name, revision := range f.runs {
		if last, known, _ := f.w.x.Last(f.w.object(name)); !f.dead[name] && (!known || last.Revision == "") {
			f.w.runs(name, revision)
		}
	}
}

// check checks what is new since the last pass.
func (f *waveHistory) check(ctx context.Context) {
	f.w.Helper()
	p := f.w.pipeline(ctx, "web")
	for name, env := range p.Status.Environments {
		if !strings.HasPrefix(name, "prod/") || env.Agreed == nil {
			continue
		}
		if was := f.agreed[name]; env.Agreed.Sequence != was.Sequence || env.Agreed.Revision != was.Revision {
			n := 0
			for _, t := range env.Targets {
				last, known, fresh := f.w.x.Last(f.w.object(t.ClusterAppRef.ClusterRef.Name))
				if known && fresh.Fresh && last.Ready && last.Revision == env.Agreed.Revision {
					n++
				}
			}
			f.Expect(2*n).To(BeNumerically(">", len(env.Targets)), "%s agreed on %s", name, env.Agreed.Revision)
			f.agreed[name] = *env.Agreed
		}
	}
	all := f.w.promotions(ctx)
	for i := range all {
		one := &all[i]
		if f.seen[one.UID] {
			continue
		}
		f.seen[one.UID] = true
		source := p.Status.Environments[one.Spec.Source.Environment]
		f.Expect(source).NotTo(BeNil(), one.Name)
		f.Expect(*source.Agreed).To(And(HaveField("Revision", one.Spec.Revision), HaveField("Sequence", one.Spec.Source.Sequence)),
			"%s begins when the stage before runs the revision", one.Name)
		f.Expect(one.Spec.Wave).NotTo(BeNil())
		f.Expect(one.Spec.Wave.Clusters).NotTo(BeEmpty(), one.Name)
	}
}

// Clusters join, leave, die, return and change their waves while revisions are promoted, and hubs are killed at any call. No wave
// gets a revision before the wave before it runs it, each promotion is made once, and in the end all clusters run the same.
func TestHistoriesOfWaves(t *testing.T) {
	t.Parallel()
	runs := 1
	if soak() {
		runs = 200
	}
	atRandom(t, runs, func(t *testing.T, random *rand.Rand, _ uint64) {
		g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
		c := withoutWindows(w.c)
		p := w.newPipeline("web", notify(false), "dev", "prod")
		env := &p.Spec.Environments[1]
		env.Targets, env.Quorum = prodTargets(), &pipelinesv1.Quorum{JoinWithin: "20m", Ready: []string{"67%", "100%"}[random.IntN(2)]}
		env.Waves = []pipelinesv1.Wave{inRing("canary", 0), {Name: "rest", Batches: 2}}
		g.Expect(c.Create(ctx, p)).To(Succeed())
		f := &waveHistory{WithT: g, w: w, random: random, runs: map[string]string{}, dead: map[string]bool{}, seen: map[types.UID]bool{}, agreed: map[string]pipelinesv1.AgreedRevision{}}
		for range 6 {
			f.join()
		}
		first := w.hub("first", c, nil)
		first.settle(ctx)
		w.runs("dev", "1.0")
		f.show()
		first.settle(ctx)
		f.check(ctx)

		doom := func() (*hubUnder, *killer) {
			k := &killer{at: random.IntN(120) + 1, after: random.IntN(2) == 0}
			return w.hub("doomed", k.client(c), k), k
		}
		h, k := doom()
		process := k.process(ctx)
		killed, minor := 0, 0
		for range 120 {
			if random.IntN(15) == 0 {
				minor++
				w.runs("dev", fmt.Sprintf("1.%d", minor))
			}
			f.step()
			for range random.IntN(3) + 1 {
				h.pass(process)
				f.check(ctx)
				f.show()
			}
			if k.over() {
				killed++
				k.end()
				h, k = doom()
				process = k.process(ctx)
			}
			w.clock.Step(time.Duration(random.IntN(8)+1) * time.Minute)
		}
		k.end()
		t.Logf("killed %d hubs, %d revisions, %d promotions", killed, minor, len(w.promotions(ctx)))

		// Everybody returns and runs what was sent to it.
		minor++
		latest := fmt.Sprintf("1.%d", minor)
		w.runs("dev", latest)
		last := w.hub("last", c, nil)
		f.dead = map[string]bool{}
		for range 30 {
			w.clock.Step(3 * time.Minute)
			last.settle(ctx)
			for name := range f.runs {
				f.follow(name)
			}
			last.settle(ctx)
			f.check(ctx)
		}
		now := w.pipeline(ctx, "web")
		g.Expect(now.Status.Environments["prod"].Fleet).To(And(HaveField("Ready", int32(len(f.runs))), HaveField("Targets", int32(len(f.runs))), HaveField("Revision", latest)),
			"nothing is lost: %+v", now.Status)
		type key struct {
			stage, source, revision string
			sequence                int64
		}
		before := map[key]capstanv1.Promotion{}
		for name := range now.Status.Environments {
			for _, one := range w.into(ctx, name) {
				of := key{name, one.Spec.Source.Environment, one.Spec.Revision, one.Spec.Source.Sequence}
				// One of which a cluster moved before it was sent is made again for those that are left. One whose wave had no
				// clusters for a time, and that was never attempted, is made again when it has.
				was, twice := before[of]
				again := was.Status.Reason == string(decision.WaveChanged) || was.Status.Reason == string(decision.EnvironmentRemoved) && was.Status.Attempt == nil
				if twice && !again {
					g.Expect(slices.ContainsFunc(one.Spec.Wave.Clusters, func(c string) bool { return !slices.Contains(was.Spec.Wave.Clusters, c) })).To(BeTrue(),
						"%s and %s are for one agreement and the same clusters", was.Name, one.Name)
				}
				before[of] = one
			}
		}
	})
}
