package bench

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/simulated"
)

// sizeOf is what a hub over a fleet of a size needs.
type sizeOf struct {
	clusters float64
	// start until every status shows every target, and CPU until then of the hub and of the API server, in seconds.
	start, cpu, server float64
	// resident in MiB.
	resident, goroutines float64
}

// line returns what a fleet of n clusters needs if that grows as from one fleet to a larger one.
func line(n float64, small, large sizeOf) sizeOf {
	on := func(of func(sizeOf) float64) float64 {
		return of(small) + (of(large)-of(small))/(large.clusters-small.clusters)*(n-small.clusters)
	}
	return sizeOf{
		clusters: n,
		start:    on(func(s sizeOf) float64 { return s.start }), cpu: on(func(s sizeOf) float64 { return s.cpu }), server: on(func(s sizeOf) float64 { return s.server }),
		resident: on(func(s sizeOf) float64 { return s.resident }), goroutines: on(func(s sizeOf) float64 { return s.goroutines }),
	}
}

// TestLargestFleet: a hub over ten thousand clusters with five applications each, all of them in Pipelines of twenty
// targets, needs what fleets of one and two thousand let expect (docs/scaling.md).
func TestLargestFleet(t *testing.T) {
	const applicationsEach = 5
	var sizes []sizeOf
	for _, n := range []int{count(20, 1000), count(40, 2000), count(60, 10000)} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newScene(t, simulated.Options{Clusters: n, Applications: applicationsEach})
			names := s.releases(0, applicationsEach, s.clusters, targetsEach)
			before, err := loadNow(t.Context())
			s.g.Expect(err).NotTo(HaveOccurred())
			// The limit is that of docs/scaling.md for ten thousand clusters.
			h := startHubWith(t, "5GiB", kubeconfigFile, s.namespace, "--namespace="+s.namespace, "--warm-standby=false")
			done := s.shown(names, every)
			cpu := h.cpu()
			after, err := loadNow(t.Context())
			s.g.Expect(err).NotTo(HaveOccurred())
			c := h.cost()
			sizes = append(sizes, sizeOf{
				clusters: float64(n), start: done.Sub(h.began).Seconds(), cpu: cpu, server: after.CPU - before.CPU,
				resident: float64(c.Resident) / mib, goroutines: float64(c.Goroutines),
			})
			after.since(before)
			h.stop()
			s.ends()
		})
	}
	is := sizes[2]
	paper := line(is.clusters, sizes[0], sizes[1])
	what := fmt.Sprintf("%.0f clusters × %d applications, against the line through %.0f and %.0f: ", is.clusters, applicationsEach, sizes[0].clusters, sizes[1].clusters)
	report(what+"cold start", is.start, paper.start, "s")
	report("the same, CPU of the hub", is.cpu, paper.cpu, "s")
	report("the same, CPU of the API server", is.server, paper.server, "s")
	report("the same, resident", is.resident, paper.resident, "MiB")
	report("the same, goroutines", is.goroutines, paper.goroutines, "")
}
