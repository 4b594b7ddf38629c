package faults

import (
	"os"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/simulated"
)

// soaks reports whether the test runs with full counts.
func soaks() bool { return os.Getenv("CAPSTAN_SOAK") != "" }

// churn is how many clusters are added and removed, and how often: few in CI, all that the
// promise names in `make soak`.
func churn() (clusters, rounds int) {
	if soaks() {
		return 100, 10
	}
	return 20, 3
}

// stays is what may stay of a cluster that went, in bytes; far less than the 200 KiB
// that it had, and enough for what the process, test and all, collects meanwhile.
const stays = 16 << 10

// TestChurn: clusters are added, watched and removed repeatedly. All goroutines end, and
// their memory is freed.
func TestChurn(t *testing.T) {
	leaks.AtEnd(t) // The test is not parallel: no other hub runs.
	clusters, rounds := churn()
	w := newWorld(t, simulated.Options{Clusters: clusters, Applications: 2})
	stop := w.start()
	// The hub with nothing to watch, once everything has run: the first Event starts the goroutines that send Events, and
	// clusters that are older than the hub have none.
	var first footprint
	const begun = 1
	for round := range rounds {
		if round > 0 {
			for _, c := range w.clusters {
				w.declare(c)
			}
		}
		w.pipelines()
		w.allRun("1.0.0", w.clusters...)
		for _, c := range w.clusters {
			w.g.Expect(admin.Delete(t.Context(), &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: c.Name()}})).To(Succeed())
			w.withdraw(c)
		}
		for _, c := range w.clusters {
			w.g.Eventually(func() int { return int(c.Counts().Connections) }).Should(BeZero(), c.Name())
		}
		w.g.Eventually(func() []pipelinesv1.Pipeline {
			all := &pipelinesv1.PipelineList{}
			w.g.Expect(admin.List(t.Context(), all, client.InNamespace(w.namespace))).To(Succeed())
			return all.Items
		}).Should(BeEmpty())
		now := measure()
		t.Logf("round %d: %d goroutines, %d KiB of heap", round, now.goroutines, now.heap/1024)
		if round == begun {
			first = now
		}
	}
	w.g.Eventually(func() int { return measure().goroutines }).Should(BeNumerically("<=", first.goroutines+clusters/4), "of which each cluster had ten")
	if soaks() {
		// A closed HTTP/2 connection is held by the timer of its next ping, for up to 30 s
		// and the 15 s that this may take: too long to wait for in each run.
		w.g.Eventually(func() uint64 { return measure().heap }).WithTimeout(3*time.Minute).
			Should(BeNumerically("<=", first.heap+uint64(clusters*(rounds-1-begun))*stays), "of which each cluster had hundreds of KiB")
	}
	stop()
}

// footprint is what the process holds.
type footprint struct {
	goroutines int
	heap       uint64
}

// measure waits for what is ending to end.
func measure() footprint {
	least := footprint{goroutines: runtime.NumGoroutine()}
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for range 20 {
		<-pause.C
		least.goroutines = min(least.goroutines, runtime.NumGoroutine())
	}
	runtime.GC()
	runtime.GC() // The second run frees objects that the first one has finalized.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	least.heap = m.HeapAlloc
	return least
}
