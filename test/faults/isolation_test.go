package faults

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/playground/simulated"
)

// sick puts the last three of a fleet into the three states that stall hubs.
func sick(w *world) (healthy, failing []*simulated.Cluster) {
	n := len(w.clusters) - 3
	healthy, failing = w.clusters[:n], w.clusters[n:]
	failing[0].Set(simulated.Tarpit)
	failing[1].Set(simulated.Refuse)
	failing[2].Set(simulated.Unauthorized)
	return healthy, failing
}

// TestTheOthersNoticeNothing: conformance row N5. Ten clusters, of which one hangs,
// one refuses and one answers 401: from some moment on, or from the start.
func TestTheOthersNoticeNothing(t *testing.T) {
	for _, atStart := range []bool{false, true} {
		t.Run(fmt.Sprintf("at start %v", atStart), func(t *testing.T) {
			w := newWorld(t, simulated.Options{Clusters: 10, Applications: 2})
			w.pipelines()
			healthy, failing := w.clusters[:7], w.clusters[7:]
			if !atStart {
				w.start()
				w.allRun("1.0.0", w.clusters...)
			}
			sick(w)
			if atStart {
				w.start()
			}
			w.allRun("1.0.0", healthy...)
			for n := range 5 {
				for _, c := range healthy {
					c.Deploy(0, revision(n))
				}
				w.allRun(revision(n), healthy...)
				w.g.Eventually(longestRunning).Should(BeNumerically("<", 1), "no worker waits for a cluster")
			}
			w.reaches(failing[0], capstanv1.ConnectionUnreachable)
			w.reaches(failing[1], capstanv1.ConnectionUnreachable)
			w.reaches(failing[2], capstanv1.ConnectionAuthFailed)
			w.g.Eventually(longestRunning).Should(BeNumerically("<", 1), "no worker waits for a cluster")
			for _, c := range healthy {
				w.reaches(c, capstanv1.ConnectionReady)
			}
			for _, c := range failing {
				if !atStart {
					w.staleAt(c, "1.0.0")
				}
				c.Set(simulated.Serve)
				c.Deploy(0, "3.0.0")
			}
			w.allRun("3.0.0", failing...)
		})
	}
}

// longestRunning returns for how many seconds the hub's workers have been at their present
// objects: the longest of these times. controller-runtime measures it every 500 ms, in a
// registry of its own.
func longestRunning() (float64, error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return 0, err
	}
	for _, family := range families {
		if family.GetName() != metrics.WorkQueueSubsystem+"_"+metrics.LongestRunningProcessorKey {
			continue
		}
		longest := 0.0
		for _, m := range family.GetMetric() {
			longest = max(longest, m.GetGauge().GetValue())
		}
		return longest, nil
	}
	return 0, errors.New("there is no such metric")
}

// TestFifthDead: 20 % of a fleet are unreachable when the hub starts, and recover later.
func TestFifthDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 20, Applications: 1})
	w.pipelines()
	dead, alive := w.clusters[:4], w.clusters[4:]
	for i, c := range dead {
		c.Set([]simulated.Mode{simulated.Tarpit, simulated.Refuse}[i%2])
	}
	w.start()
	w.allRun("1.0.0", alive...)
	for _, c := range dead {
		w.reaches(c, capstanv1.ConnectionUnreachable)
		c.Set(simulated.Serve)
	}
	w.allRun("1.0.0", dead...)
}

// TestHalfOpen: connections become silent without being closed, as behind a broken NAT. The
// cluster is Unreachable. Changes during the outage are observed after it.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 1, Applications: 1})
	w.pipelines()
	c := w.clusters[0]
	w.start()
	w.allRun("1.0.0", c)
	lists := w.lists()
	c.Set(simulated.HalfOpen)
	w.reaches(c, capstanv1.ConnectionUnreachable)
	w.staleAt(c, "1.0.0")
	c.Deploy(0, "1.1.0")
	c.Set(simulated.Serve)
	w.allRun("1.1.0", c)
	w.g.Expect(w.lists()).To(Equal(lists), "the watch resumed")
}

// TestSlowIsNotDead: a cluster whose responses are slow is watched like any other, and
// does not block the others.
func TestSlowIsNotDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 2, Applications: 1})
	w.pipelines()
	slow := w.clusters[0]
	slow.SetDelay(freshFor / 6)
	slow.Set(simulated.Slow)
	w.start()
	w.allRun("1.0.0", w.clusters...)
	slow.Deploy(0, "1.1.0")
	w.runs(slow.Name(), slow, "1.1.0")
}

// TestBlind: a watch becomes silent while the cluster responds. The hub closes the watch,
// and it resumes from its last event.
func TestBlind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 1, Applications: 1})
	w.blind = 6 * time.Second // On a slow machine the next watch must not be silent for as long.
	w.pipelines()
	c := w.clusters[0]
	w.start()
	w.allRun("1.0.0", c)
	lists := w.lists()
	c.Mute()
	c.Deploy(0, "1.1.0")
	w.allRun("1.1.0", c)
	w.g.Expect(w.meter("capstan_blind_watches_total")).To(BeEquivalentTo(1))
	w.g.Expect(w.lists()).To(Equal(lists), "the watch resumed")
}
