package watchers_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/index"
)

// TestCost of a connected cluster with one informer and 40 applications of 8 KiB:
// goroutines within the budget. Memory is only printed: the value is meaningful without the
// race detector, and in test/bench.
func TestCost(t *testing.T) {
	const fleet, applications, goroutines = 12, 40, 12
	w := newWorld(t, nil)
	var names []string
	for i := range applications {
		u := w.createRelease(w.hub, w.namespace, fmt.Sprintf("app-%d", i))
		patch := fmt.Sprintf(`{"spec":{"values":{"text":%q}}}`, strings.Repeat("v", 7000))
		w.g.Expect(w.hub.Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
		w.deploy(w.hub, u, "1.0.0")
		names = append(names, u.GetName())
	}
	all := make([][]index.Object, fleet)
	for c := range fleet {
		cluster := w.admin(fmt.Sprintf("c%d", c), home)
		for _, name := range names {
			all[c] = append(all[c], w.release(cluster, name))
		}
	}
	follow := func(from, to int) {
		for c := from; c < to; c++ {
			w.use(fmt.Sprintf("p%d", c), all[c]...)
		}
		for c := from; c < to; c++ {
			for _, o := range all[c] {
				w.g.Eventually(w.sight(o)).Should(Equal(ready("1.0.0")))
			}
		}
	}
	follow(0, 1) // What is made once for all is there.
	before, had := settled()
	follow(1, fleet)
	after, have := settled()
	each := float64(have-had) / (fleet - 1)
	fmt.Fprintf(os.Stderr, "a cluster of %d applications with one informer: %.1f goroutines, %d KiB of heap and stacks\n",
		applications, each, (after-before)/(fleet-1)/1024)
	w.g.Expect(each).To(BeNumerically("<=", goroutines))
}

// settled returns the heap and stacks in use, and the goroutines, after those of the start
// have ended.
func settled() (int64, int) {
	least := runtime.NumGoroutine()
	pause := time.NewTicker(50 * time.Millisecond) // Collections without a pause would take both cores.
	defer pause.Stop()
	for range 20 {
		<-pause.C
		least = min(least, runtime.NumGoroutine())
	}
	runtime.GC()
	runtime.GC() // The second run frees objects that the first one has finalized.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse), least
}
