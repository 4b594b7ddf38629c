package bench

import (
	"fmt"
	"math"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/simulated"
)

// What docs/scaling.md says that a hub needs: resident for itself, for a cluster and for an application that a Pipeline uses; CPU seconds of a
// first start, of the hub and of the API server, for a cluster and for the status of a Pipeline of twenty targets.
const (
	residentItself, residentCluster, residentApplication = 60 * mib, 260 * kib, 3.8 * kib
	cpuCluster, cpuStatus                                = 0.004, 0.002
	serverCPUCluster, serverCPUStatus                    = 0.003, 0.009
	goroutinesCluster                                    = 8
)

// largest is how many clusters one process can simulate here, ten thousand at most: each needs two files, its listener and the
// connection of the hub, and a system limits how many a process may open.
func largest(t *testing.T) int {
	t.Helper()
	var files syscall.Rlimit
	NewWithT(t).Expect(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files)).To(Succeed())
	const others = 200
	return int(min(10000, (files.Cur-others)/2))
}

// TestLargestFleet: a hub over ten thousand clusters with five applications each, all of them in Pipelines of twenty
// targets, needs what docs/scaling.md predicts, within a fifth, with the limit of memory that it names.
func TestLargestFleet(t *testing.T) {
	const applicationsEach = 5
	s := newScene(t, simulated.Options{Clusters: count(60, largest(t)), Applications: applicationsEach})
	names := s.releases(0, applicationsEach, s.clusters, targetsEach)
	before, err := loadNow(t.Context())
	s.g.Expect(err).NotTo(HaveOccurred())
	h := startHubWith(t, "3600MiB", kubeconfigFile, s.namespace, "--namespace="+s.namespace, "--warm-standby=false")
	done := s.shown(names, every)
	cpu := h.cpu()
	after, err := loadNow(t.Context())
	s.g.Expect(err).NotTo(HaveOccurred())
	c := h.cost()

	clusters, statuses := float64(len(s.clusters)), float64(len(names))
	report(fmt.Sprintf("%.0f clusters × %d applications, %.0f Pipelines of %d targets: cold start", clusters, applicationsEach, statuses, targetsEach),
		done.Sub(h.began).Seconds(), math.Inf(1), "s")
	for _, of := range []struct {
		what                string
		measured, predicted float64
		unit                string
	}{
		{"CPU of the hub", cpu, cpuCluster*clusters + cpuStatus*statuses, "s"},
		{"CPU of the API server", after.CPU - before.CPU, serverCPUCluster*clusters + serverCPUStatus*statuses, "s"},
		{"resident", float64(c.Resident) / mib, (residentItself + clusters*(residentCluster+applicationsEach*residentApplication)) / mib, "MiB"},
		{"goroutines", float64(c.Goroutines), goroutinesCluster * clusters, ""},
	} {
		report(fmt.Sprintf("the same, %s; docs/scaling.md predicts %s %s", of.what, figure(of.predicted), of.unit), of.measured, math.Inf(1), of.unit)
		if *full {
			s.g.Expect(of.measured).To(BeNumerically("~", of.predicted, of.predicted/5), of.what)
		}
	}
	after.since(before)
}
