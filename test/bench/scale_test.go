package bench

import (
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

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

// firstStart is what a first start of a hub needed over clusters with applicationsOfScale applications each, all of them in Pipelines of
// twenty targets.
type firstStart struct {
	clusters, statuses float64
	seconds            float64
	// CPU seconds of the hub, of the API server and of the simulated clusters.
	cpu, serverCPU, simulatedCPU float64
	// work is what the API server did, lists how many lists of clusters the hub has made.
	work  load
	lists float64
	cost  cost
}

const applicationsOfScale = 5

// predictedCPU returns what docs/scaling.md predicts, in CPU seconds of its machine.
func (f firstStart) predictedCPU() (hub, server float64) {
	return cpuCluster*f.clusters + cpuStatus*f.statuses, serverCPUCluster*f.clusters + serverCPUStatus*f.statuses
}

// simulatedPerCluster returns the CPU seconds of a simulated cluster, which does the same work in a fleet of any size.
func (f firstStart) simulatedPerCluster() float64 { return f.simulatedCPU / f.clusters }

// cpuNow returns the CPU seconds of this process, which simulates the clusters.
func cpuNow(t *testing.T) float64 {
	t.Helper()
	var usage syscall.Rusage
	NewWithT(t).Expect(syscall.Getrusage(syscall.RUSAGE_SELF, &usage)).To(Succeed())
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// startOf measures a first start with the limit of memory that docs/scaling.md names for the largest fleet.
func startOf(t *testing.T, clusters int) (f firstStart) {
	t.Run(fmt.Sprintf("%d clusters", clusters), func(t *testing.T) {
		s := newScene(t, simulated.Options{Clusters: clusters, Applications: applicationsOfScale})
		names := s.releases(0, applicationsOfScale, s.clusters, targetsEach)
		before, err := loadNow(t.Context())
		s.g.Expect(err).NotTo(HaveOccurred())
		simulatedBefore := cpuNow(t)
		h := startHubWith(t, "3600MiB", kubeconfigFile, s.namespace, "--namespace="+s.namespace, "--warm-standby=false")
		done := s.shown(names, every)
		f = firstStart{clusters: float64(len(s.clusters)), statuses: float64(len(names)), seconds: done.Sub(h.began).Seconds(), cpu: h.cpu()}
		f.simulatedCPU = cpuNow(t) - simulatedBefore
		after, err := loadNow(t.Context())
		s.g.Expect(err).NotTo(HaveOccurred())
		f.work, f.lists = after.since(before), sum(h.scrape(), "capstan_lists_total", map[string]string{"kind": "HelmRelease.helm.toolkit.fluxcd.io"})
		f.serverCPU, f.cost = f.work.CPU, h.cost()
	})
	return f
}

// TestLargestFleet: a hub over ten thousand clusters with five applications each needs what docs/scaling.md predicts, within a fifth,
// lists each cluster once and writes each status once.
//
// CPU seconds are not the same on every machine, nor from minute to minute on one that others share, nor with twice the memory and
// connections in use. Starts over half of the fleet, before and after the whole, say how many this machine needs for one of
// docs/scaling.md. The simulated clusters, which are the other end of all connections, use the same CPUs in the same seconds and do the
// same work for a cluster in each start, but for a probe more in a longer one: they say how much slower the hub was during the whole. The
// API server has few connections, so that for it they only bound how much slower it was.
func TestLargestFleet(t *testing.T) {
	many := largest(t)
	part := count(20, min(5000, many/2))
	before, all, after := startOf(t, part), startOf(t, count(60, many)), startOf(t, part)
	if t.Failed() {
		return
	}
	report(fmt.Sprintf("%.0f clusters × %d applications, %.0f Pipelines of %d targets: cold start", all.clusters, applicationsOfScale, all.statuses, targetsEach),
		all.seconds, math.Inf(1), "s")
	connections := max(1, all.work.Writes["clusterconnections"]) // Few of them are written before the start is over.
	for _, of := range []struct {
		what  string
		times float64
	}{
		{"lists of a cluster", all.lists / all.clusters},
		{"writes of the status of a Pipeline", all.work.Writes["pipelines/status"] / all.statuses},
		{"writes of the status of a ClusterConnection, of those that were written", all.work.Writes["clusterconnections/status"] / connections},
	} {
		report("the same: "+of.what, of.times, 1.02, "")
		if *full && math.Abs(of.times-1) > 0.02 {
			t.Errorf("%s: %.2f in place of 1", of.what, of.times)
		}
	}
	report("the same: Events", all.work.Writes["events"], max(1, all.clusters/1000), "") // One says who leads.
	slower := all.simulatedPerCluster() / ((before.simulatedPerCluster() + after.simulatedPerCluster()) / 2)
	report("the same: CPU of a simulated cluster, of that in a part of the fleet", slower, math.Inf(1), "")
	cpu, serverCPU := all.predictedCPU()
	report("the same: CPU of the hub, of that in docs/scaling.md", all.cpu/cpu, math.Inf(1), "")
	report("the same: CPU of the API server, of that in docs/scaling.md", all.serverCPU/serverCPU, math.Inf(1), "")
	slow, slowServer := before.predictedCPU() // Of each of the two.
	slow, slowServer = (before.cpu+after.cpu)/(2*slow), (before.serverCPU+after.serverCPU)/(2*slowServer)
	report("CPU seconds of this machine for one of docs/scaling.md, of the hub", slow, math.Inf(1), "")
	report("the same, of the API server", slowServer, math.Inf(1), "")
	resident := (residentItself + all.clusters*(residentCluster+applicationsOfScale*residentApplication)) / mib
	for _, of := range []struct {
		what                  string
		measured, least, most float64
		unit                  string
	}{
		{"CPU of the hub", all.cpu, slower * slow * cpu, slower * slow * cpu, "s"},
		{"CPU of the API server", all.serverCPU, min(1, slower) * slowServer * serverCPU, max(1, slower) * slowServer * serverCPU, "s"},
		{"resident", float64(all.cost.Resident) / mib, resident, resident, "MiB"},
		{"goroutines", float64(all.cost.Goroutines), goroutinesCluster * all.clusters, goroutinesCluster * all.clusters, ""},
	} {
		predicted := figure(of.least)
		if of.most > of.least {
			predicted += " to " + figure(of.most)
		}
		report(fmt.Sprintf("the same, %s; predicted are %s %s", of.what, predicted, of.unit), of.measured, math.Inf(1), of.unit)
		if *full && (of.measured < of.least*4/5 || of.measured > of.most*6/5) {
			t.Errorf("%s: %s %s, and not within a fifth of %s", of.what, figure(of.measured), of.unit, predicted)
		}
	}
}
