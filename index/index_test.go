package index

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

var helm = Kind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}

func app(cluster, name string) Object {
	return Object{Cluster: cluster, Kind: helm, Namespace: "shop", Name: name}
}

func pipeline(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "team", Name: name}
}

func names(keys []types.NamespacedName) []string {
	all := []string{}
	for _, k := range keys {
		all = append(all, k.Name)
	}
	return all
}

func TestObserveWakesUsersOnChangeOnly(t *testing.T) {
	g := NewWithT(t)
	x := New()
	o := app("dev", "web")
	first := Observation{Found: true, Ready: true, Revision: "1.0", At: time.Unix(1, 0)}
	g.Expect(x.Observe(o, first)).To(BeEmpty(), "no Pipeline uses it")
	_, known, _ := x.Last(o)
	g.Expect(known).To(BeFalse(), "and it is not kept")

	x.SetPipeline(pipeline("b"), Use{Objects: []Object{o}})
	x.SetPipeline(pipeline("a"), Use{Objects: []Object{o, app("dev", "other")}})
	g.Expect(names(x.Observe(o, first))).To(Equal([]string{"a", "b"}))

	later := first
	later.At = time.Unix(2, 0)
	g.Expect(x.Observe(o, later)).To(BeEmpty(), "a heartbeat changes nothing")
	seen, _, _ := x.Last(o)
	g.Expect(seen.At).To(Equal(first.At), "the time of the first stays")

	later.Revision = "1.1"
	g.Expect(names(x.Observe(o, later))).To(Equal([]string{"a", "b"}))
}

func TestLastUserTakesTheObservationAway(t *testing.T) {
	g := NewWithT(t)
	x := New()
	o := app("dev", "web")
	x.SetPipeline(pipeline("a"), Use{Objects: []Object{o}})
	x.SetPipeline(pipeline("b"), Use{Objects: []Object{o}})
	x.Observe(o, Observation{Found: true, Revision: "1.0"})
	x.RemovePipeline(pipeline("a"))
	_, known, _ := x.Last(o)
	g.Expect(known).To(BeTrue())
	x.SetPipeline(pipeline("b"), Use{})
	_, known, _ = x.Last(o)
	g.Expect(known).To(BeFalse())
	g.Expect(x.Stats()).To(Equal(Stats{Pipelines: 1}))
}

func TestAnEditKeepsWhatStaysInUse(t *testing.T) {
	g := NewWithT(t)
	x := New()
	x.SetPipeline(pipeline("a"), Use{Objects: []Object{app("dev", "web")}})
	x.Observe(app("dev", "web"), Observation{Found: true, Revision: "1.0"})
	x.SetPipeline(pipeline("a"), Use{Objects: []Object{app("dev", "web"), app("prod", "web")}})
	seen, known, _ := x.Last(app("dev", "web"))
	g.Expect(known).To(BeTrue())
	g.Expect(seen.Revision).To(Equal("1.0"))
}

func TestFreshness(t *testing.T) {
	g := NewWithT(t)
	x := New()
	x.SetPipeline(pipeline("a"), Use{Objects: []Object{app("dev", "web")}})
	_, _, f := x.Last(app("dev", "web"))
	g.Expect(f.Reason).To(Equal(NotWatched))
	g.Expect(names(x.SetFreshness("dev", helm, Freshness{Fresh: true}))).To(Equal([]string{"a"}))
	g.Expect(x.SetFreshness("dev", helm, Freshness{Fresh: true})).To(BeEmpty())
	g.Expect(x.SetFreshness("prod", helm, Freshness{Fresh: true})).To(BeEmpty(), "no Pipeline uses prod")
	x.Observe(app("dev", "web"), Observation{Found: true, Revision: "1.0"})
	x.Forget("dev", helm)
	_, known, f := x.Last(app("dev", "web"))
	g.Expect(known).To(BeFalse())
	g.Expect(f.Fresh).To(BeFalse())
}

func TestFreshnessOfANamespace(t *testing.T) {
	g := NewWithT(t)
	x := New()
	other := app("dev", "web")
	other.Namespace = "bank"
	x.SetPipeline(pipeline("shop"), Use{Objects: []Object{app("dev", "web")}})
	x.SetPipeline(pipeline("bank"), Use{Objects: []Object{other}})
	forbidden := Freshness{Reason: "Forbidden", Message: "not allowed"}
	fresh := func(o Object) Freshness { _, _, f := x.Last(o); return f }

	g.Expect(names(x.SetNamespaceFreshness("dev", helm, "bank", Freshness{Fresh: true}))).To(BeEmpty(), "nothing was said")
	g.Expect(names(x.SetNamespaceFreshness("dev", helm, "bank", forbidden))).To(Equal([]string{"bank"}))
	g.Expect(x.SetNamespaceFreshness("dev", helm, "bank", forbidden)).To(BeEmpty())
	g.Expect(fresh(other).Reason).To(Equal(NotWatched), "nothing is fresh in a kind that is not")
	x.SetFreshness("dev", helm, Freshness{Fresh: true})
	g.Expect(fresh(app("dev", "web")).Fresh).To(BeTrue(), "another namespace's trouble is its own")
	g.Expect(fresh(other)).To(Equal(forbidden))
	x.SetFreshness("dev", helm, Freshness{Reason: "Unreachable"})
	g.Expect(fresh(other).Reason).To(Equal("Unreachable"), "the kind's trouble goes before")
	x.SetFreshness("dev", helm, Freshness{Fresh: true})
	g.Expect(names(x.SetNamespaceFreshness("dev", helm, "bank", Freshness{Fresh: true}))).To(Equal([]string{"bank"}))
	g.Expect(fresh(other).Fresh).To(BeTrue())

	x.SetNamespaceFreshness("dev", helm, "bank", forbidden)
	x.Forget("dev", helm)
	x.SetFreshness("dev", helm, Freshness{Fresh: true})
	g.Expect(fresh(other).Fresh).To(BeTrue(), "forgotten with the kind")
}

func TestPipelinesOfRef(t *testing.T) {
	g := NewWithT(t)
	x := New()
	x.SetPipeline(pipeline("declares"), Use{Refs: []string{"GitopsCluster/team/prod"}})
	x.SetPipeline(pipeline("resolved"), Use{Refs: []string{"GitopsCluster/team/prod"}, Objects: []Object{app("Cluster/team/prod", "web")}})
	g.Expect(names(x.PipelinesOfRef("GitopsCluster/team/prod"))).To(Equal([]string{"declares", "resolved"}))
	g.Expect(names(x.PipelinesOfRef("Cluster/team/prod"))).To(Equal([]string{"resolved"}))
	g.Expect(x.PipelinesOfRef("Cluster/team/dev")).To(BeEmpty())
}

// The index answers as a naive model does that keeps a list of all uses.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, uses, last := New(), map[string][]Object{}, map[Object]Observation{}
		users := func(o Object) []string {
			found := []string{}
			for p, objects := range uses {
				if slices.Contains(objects, o) {
					found = append(found, p)
				}
			}
			slices.Sort(found)
			return found
		}
		object := rapid.Custom(func(t *rapid.T) Object {
			return app(rapid.SampledFrom([]string{"", "dev", "prod"}).Draw(t, "cluster"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"))
		})
		sweep := func() {
			for o := range last {
				if len(users(o)) == 0 {
					delete(last, o)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				p := rapid.SampledFrom([]string{"p", "q", "r"}).Draw(t, "pipeline")
				uses[p] = rapid.SliceOfNDistinct(object, 0, 4, rapid.ID[Object]).Draw(t, "objects")
				x.SetPipeline(pipeline(p), Use{Objects: uses[p]})
				sweep()
			},
			"remove": func(t *rapid.T) {
				p := rapid.SampledFrom([]string{"p", "q", "r"}).Draw(t, "pipeline")
				delete(uses, p)
				x.RemovePipeline(pipeline(p))
				sweep()
			},
			"observe": func(t *rapid.T) {
				o, seen := object.Draw(t, "object"), Observation{Found: true, Revision: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "revision")}
				want := []string{}
				if u := users(o); len(u) > 0 && last[o] != seen {
					want, last[o] = u, seen
				}
				if got := names(x.Observe(o, seen)); !slices.Equal(got, want) {
					t.Fatalf("Observe(%v) woke %v, want %v", o, got, want)
				}
			},
			"": func(t *rapid.T) {
				if got := x.Stats().Observations; got != len(last) {
					t.Fatalf("%d observations, want %d", got, len(last))
				}
				for o, want := range last {
					if got, _, _ := x.Last(o); got != want {
						t.Fatalf("Last(%v) = %v, want %v", o, got, want)
					}
				}
			},
		})
	})
}

func TestConcurrentUse(t *testing.T) {
	x := New()
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 500 {
				o := app("dev", fmt.Sprint(i%7))
				switch (i + worker) % 5 {
				case 0:
					x.SetPipeline(pipeline(fmt.Sprint(i%5)), Use{Refs: []string{"dev"}, Objects: []Object{o}})
				case 1:
					x.RemovePipeline(pipeline(fmt.Sprint(i % 5)))
				case 2:
					x.Observe(o, Observation{Found: true, Revision: fmt.Sprint(i)})
				case 3:
					x.SetFreshness("dev", helm, Freshness{Fresh: i%2 == 0})
					x.SetNamespaceFreshness("dev", helm, "shop", Freshness{Fresh: i%3 == 0})
				default:
					x.Last(o)
					x.PipelinesOfRef("dev")
				}
			}
		})
	}
	all.Wait()
	for i := range 5 {
		x.RemovePipeline(pipeline(fmt.Sprint(i)))
	}
	NewWithT(t).Expect(x.Stats()).To(Equal(Stats{}), "nothing is left behind")
}

func BenchmarkObserve(b *testing.B) {
	x := New()
	for i := range 1000 {
		x.SetPipeline(pipeline(fmt.Sprint(i)), Use{Objects: []Object{app(fmt.Sprint(i%200), fmt.Sprint(i))}})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x.Observe(app(fmt.Sprint(i%200), fmt.Sprint(i%1000)), Observation{Found: true, Revision: fmt.Sprint(i)})
	}
}
