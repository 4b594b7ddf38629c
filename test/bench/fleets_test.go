package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/simulated"
)

// fleet declares a Pipeline whose environment prod is all clusters of the scene, in so many batches; 0 for no waves.
func (s *scene) fleet(name string, app, batches int) {
	prod := pipelinesv1.Environment{
		Name:    "prod",
		Targets: []pipelinesv1.Target{{Namespace: simulated.Namespace, Clusters: &pipelinesv1.ClusterSelector{Selector: metav1.LabelSelector{MatchLabels: selected}}}},
		Quorum:  &pipelinesv1.Quorum{Ready: "95%"},
	}
	if batches > 0 {
		prod.Waves = []pipelinesv1.Wave{{Name: "rest", Batches: int32(batches), Soak: &pipelinesv1.Soak{For: "1h"}}}
	}
	s.g.Expect(admin.Create(s.Context(), &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: fmt.Sprintf("app-%d", app)},
			Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
			Environments: []pipelinesv1.Environment{{Name: "dev", Targets: []pipelinesv1.Target{{
				Namespace: simulated.Namespace, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: s.clusters[0].Name()},
			}}}, prod},
		},
	})).To(Succeed())
}

// ready waits until all clusters of fleets run their revision.
func (s *scene) ready(names []string) {
	s.Helper()
	s.until("all targets of the fleets are ready", func(all map[string]*pipelinesv1.Pipeline) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			p := all[name]
			return p == nil || p.Status.Environments["prod"] == nil || p.Status.Environments["prod"].Fleet == nil || int(p.Status.Environments["prod"].Fleet.Ready) < len(s.clusters)
		})
	})
}

// size returns the size of the largest status, in KiB.
func (s *scene) size() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	largest := 0
	for _, p := range s.lockedState.pipelines {
		text, err := json.Marshal(p.Status)
		s.g.Expect(err).NotTo(HaveOccurred())
		largest = max(largest, len(text))
	}
	return float64(largest) / 1024
}

// turns changes one cluster after the other, and back, each when the status shows the change before. It returns how long
// each took until it was shown.
func (s *scene) turns(names []string, times int) []time.Duration {
	s.Helper()
	var took []time.Duration
	for n := range times {
		name, c := names[n%len(names)], s.clusters[1+n%(len(s.clusters)-1)]
		app := n % len(names)
		for _, revision := range []string{"2.0.0", "1.0.0"} {
			began := time.Now()
			c.Deploy(app, revision)
			took = append(took, s.until("a change is shown", func(all map[string]*pipelinesv1.Pipeline) bool {
				// How many are ready depends on the wave: in one of two clusters, both revisions are run by as many.
				every := int(all[name].Status.Environments["prod"].Fleet.Ready) == len(s.clusters)
				return every == (revision == "1.0.0")
			}).Sub(began))
		}
	}
	slices.Sort(took)
	return took
}

// reconciles returns the q-quantile of the reconciles of Pipelines between two scrapes, in milliseconds, within its bucket.
func reconciles(before, after map[string]*dto.MetricFamily, q float64) float64 {
	type bucket struct{ bound, count float64 }
	of := func(families map[string]*dto.MetricFamily) (all []bucket, total float64) {
		for _, m := range families["controller_runtime_reconcile_time_seconds"].GetMetric() {
			if label(m, "controller") != "pipeline" {
				continue
			}
			for _, b := range m.GetHistogram().GetBucket() {
				all = append(all, bucket{b.GetUpperBound(), float64(b.GetCumulativeCount())})
			}
			total = float64(m.GetHistogram().GetSampleCount())
		}
		return all, total
	}
	first, begun := of(before)
	last, ended := of(after)
	bound, count := 0.0, 0.0
	for i, b := range last {
		n := b.count
		if i < len(first) {
			n -= first[i].count
		}
		if wanted := q * (ended - begun); n >= wanted {
			return 1000 * (bound + (b.bound-bound)*(wanted-count)/max(n-count, 1))
		}
		bound, count = b.bound, n
	}
	return 1000 * bound
}

// TestFleets: one Pipeline whose environment is a large fleet in many waves, and many Pipelines over a smaller one.
func TestFleets(t *testing.T) {
	for _, of := range []struct {
		name                         string
		clusters, pipelines, batches int
		turns                        int
	}{
		{"one Pipeline, 500 clusters in 20 waves", count(20, 500), 1, count(4, 20), count(3, 200)},
		{"200 Pipelines, each with the same 100 clusters", count(10, 100), count(4, 200), 0, count(3, 200)},
	} {
		s := newScene(t, simulated.Options{Clusters: of.clusters, Applications: of.pipelines, ApplicationBytes: 2 << 10})
		var names []string
		for i := range of.pipelines {
			names = append(names, fmt.Sprintf("fleet-%d", i))
		}
		numbers := make([]int, of.pipelines)
		for i := range numbers {
			numbers[i] = i
		}
		each(numbers, func(i int) { s.fleet(names[i], i, of.batches) })
		began := time.Now()
		h := startHub(t, s.namespace)
		s.ready(names)
		report(of.name+", cold start", time.Since(began).Seconds(), 30, "s")
		pause(settle)
		before := h.scrape()
		took := s.turns(names, of.turns)
		after := h.scrape()
		report(of.name+", change → status, p50", quantile(took, 0.5), math.Inf(1), "ms")
		report(of.name+", change → status, p99", quantile(took, 0.99), math.Inf(1), "ms")
		report(of.name+", reconcile p99, with the PATCH", reconciles(before, after, 0.99), math.Inf(1), "ms")
		cpu := sum(after, "process_cpu_seconds_total", nil) - sum(before, "process_cpu_seconds_total", nil)
		report(of.name+", CPU of the hub for a change", 1000*cpu/float64(len(took)), 20, "ms")
		report(of.name+", largest status", s.size(), 100, "KiB")
		h.stop()
		bare := s.bare(names[0], of.turns)
		report(of.name+", a bare PATCH of such a status until a watch shows it, p50", quantile(bare, 0.5), math.Inf(1), "ms")
		report(of.name+", the same, p99", quantile(bare, 0.99), math.Inf(1), "ms")
		report(of.name+", change → status, p50, ratio to the bare PATCH", quantile(took, 0.5)/quantile(bare, 0.5), 2, "")
		report(of.name+", change → status, p99, ratio to the bare PATCH", quantile(took, 0.99)/quantile(bare, 0.99), 2, "")
		s.ends()
	}
}

// bare returns how long PATCHes of one value in the status of a Pipeline take until a watch shows them, without a hub: what the API
// server needs for a status of this size.
func (s *scene) bare(name string, times int) []time.Duration {
	s.Helper()
	s.mu.Lock()
	p := s.lockedState.pipelines[name].DeepCopy()
	s.mu.Unlock()
	var took []time.Duration
	for n := range times {
		wanted, began := int32(n%2), time.Now()
		patch := fmt.Sprintf(`[{"op":"replace","path":"/status/environments/prod/fleet/ready","value":%d}]`, wanted)
		s.g.Expect(admin.Status().Patch(s.Context(), p.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
		took = append(took, s.until("a bare PATCH is shown", func(all map[string]*pipelinesv1.Pipeline) bool {
			return all[name].Status.Environments["prod"].Fleet.Ready == wanted
		}).Sub(began))
	}
	slices.Sort(took)
	return took
}
