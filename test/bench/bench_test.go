package bench

import (
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/test/bench/simulated"
)

var full = flag.Bool("full", false, "take the counts of the budgets, and print figures")

// count returns the full count, or the small one that checks the measurement.
func count(small, whole int) int {
	if *full {
		return whole
	}
	return small
}

// report prints a figure next to its budget.
func report(what string, measured, budget float64, unit string) {
	verdict := "ok"
	if measured > budget {
		verdict = "MISSED"
	}
	fmt.Fprintf(os.Stderr, "| %s | %s %s | ≤ %s %s | %s |\n", what, figure(measured), unit, figure(budget), unit, verdict)
}

func figure(f float64) string {
	if f >= 100 || f == math.Trunc(f) {
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.1f", f)
}

const kib, mib = 1 << 10, 1 << 20

// TestMachine prints the machine of the figures.
func TestMachine(*testing.T) {
	model := "unknown"
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	fmt.Fprintf(os.Stderr, "%s, %d CPUs, %s, %s\n", model, runtime.NumCPU(), runtime.Version(), time.Now().Format(time.DateOnly))
}

// TestCost: rows 1 and 2, what a connected cluster costs, and an application in it.
// Each cluster has 40 applications. At first Pipelines name one of them, so that the
// figure is of the connection and its informer.
func TestCost(t *testing.T) {
	clusters, apps := count(4, 60), 40
	s := newScene(t, simulated.Options{Clusters: 2 * clusters, Applications: apps})
	h := startHub(t, s.namespace)
	first, second := s.clusters[:clusters], s.clusters[clusters:]
	s.shown(s.releases(0, 1, first, targetsEach), every)
	one := h.cost(t)
	s.shown(s.releases(0, 1, second, targetsEach), every)
	two := h.cost(t)
	n := float64(clusters)
	report("connected cluster, live heap and stacks", float64(two.Live-one.Live)/n/kib, 280, "KiB")
	report("connected cluster, resident", float64(two.Resident-one.Resident)/n/kib, 450, "KiB")
	report("connected cluster, goroutines", perCluster(two.Goroutines-one.Goroutines, n), 12, "")

	for i := 0; i < len(s.clusters); i += targetsEach {
		s.pipeline(fmt.Sprintf("kustomization-%d", i), "kustomize.toolkit.fluxcd.io/v1", "Kustomization", "none", s.clusters[i:min(i+targetsEach, len(s.clusters))]...)
	}
	s.g.Eventually(func() int { return openWatches(s) }).Should(Equal(2 * len(s.clusters)))
	three := h.cost(t)
	report("further informer, live heap and stacks", float64(three.Live-two.Live)/(2*n)/kib, 100, "KiB")
	report("further informer, goroutines", perCluster(three.Goroutines-two.Goroutines, 2*n), 9, "")

	s.shown(s.releases(1, apps, s.clusters, targetsEach), every)
	four := h.cost(t)
	report("watched application, with its place in Pipelines", float64(four.Live-three.Live)/(2*n*float64(apps-1))/kib, 2.5, "KiB")
	NewWithT(t).Expect(two.Goroutines).To(BeNumerically(">", one.Goroutines))
}

// perCluster is a number of goroutines for each of n: a single one of the whole hub, which
// ends between two measurements, is none of a cluster's.
func perCluster(goroutines int, n float64) float64 {
	return math.Round(float64(goroutines)/n*10) / 10
}

func openWatches(s *scene) int {
	sum := 0
	for _, c := range s.clusters {
		sum += int(c.Counts().OpenWatches)
	}
	return sum
}

// TestColdStart: rows 3 and 4, from the start of the process to the last Pipeline
// that shows every target it can.
func TestColdStart(t *testing.T) {
	for _, row := range []struct {
		what                 string
		clusters, apps, each int // and targets of each Pipeline
		dead                 int // one of so many clusters
		mode                 simulated.Mode
		seconds              float64
	}{
		// 6 × 67 Pipelines of three targets.
		{"cold start, 200 clusters, 400 Pipelines", count(4, 200), 6, few, 0, simulated.Serve, 5},
		{"the same, a tenth hanging", count(4, 200), 6, few, 10, simulated.Tarpit, 8},
		// 50 × 50 Pipelines of twenty targets: every application is watched.
		{"cold start, 1000 clusters × 50 applications", count(6, 1000), 50, targetsEach, 0, simulated.Serve, 15},
		{"the same, a fifth dead", count(6, 1000), 50, targetsEach, 5, simulated.Refuse, 20},
	} {
		t.Run(row.what, func(t *testing.T) {
			s := newScene(t, simulated.Options{Clusters: row.clusters, Applications: max(row.apps, 40)})
			names := s.releases(0, row.apps, s.clusters, row.each)
			dead := map[string]bool{}
			for i, c := range s.clusters {
				if row.dead > 0 && i%row.dead == 0 {
					c.Set(row.mode)
					dead[c.Name()] = true
				}
			}
			h := startHub(t, s.namespace)
			done := s.shown(names, func(cluster string) bool { return !dead[cluster] })
			report(row.what, done.Sub(h.began).Seconds(), row.seconds, "s")
			if row.apps == 50 && row.dead == 0 {
				report("1000 clusters × 50 applications, resident", float64(h.cost(t).Resident)/mib, 600, "MiB")
			}
			h.stop()
			// The statuses are written: what a restart takes is the reading alone.
			for _, c := range s.clusters {
				c.Set(simulated.Serve)
			}
			NewWithT(t).Expect(len(names)).To(BeNumerically(">", 0))
		})
	}
}

// few targets, as most Pipelines have.
const few = 3

// latencies of changes at a rate for some time: from the moment a cluster has it to
// the moment a watch shows it in the Pipeline's status.
func latencies(s *scene, over []*simulated.Cluster, perSecond int, d time.Duration, tag string) []time.Duration {
	s.Helper()
	type change struct {
		pipeline, revision string
		target, number     int
		at                 time.Time
	}
	total := perSecond * int(d/time.Second)
	pending := map[string]change{}
	began := make(chan change, total)
	go func() {
		ticker := time.NewTicker(time.Second / time.Duration(perSecond))
		defer ticker.Stop()
		for n := range total {
			<-ticker.C
			c := over[n%len(over)]
			i := slices.Index(s.clusters, c)
			ch := change{
				pipeline: fmt.Sprintf("app-0-of-%s", s.clusters[i/few*few].Name()), target: i % few,
				revision: fmt.Sprintf("3.%s.%d", tag, n), number: n, at: time.Now(),
			}
			began <- ch
			c.Deploy(0, ch.revision)
		}
	}()
	var took []time.Duration
	received := 0
	s.until("all changes are shown", func(all map[string]*pipelinesv1.Pipeline) bool {
		for ; len(began) > 0; received++ {
			ch := <-began
			pending[ch.pipeline+"/"+fmt.Sprint(ch.target)+"/"+ch.revision] = ch
		}
		now := time.Now()
		for key, ch := range pending {
			p := all[ch.pipeline]
			if p == nil || p.Status.Environments[environment] == nil {
				continue
			}
			// A later one of the same cluster may have overtaken it.
			number, is := strings.CutPrefix(p.Status.Environments[environment].Targets[ch.target].Revision, "3."+tag+".")
			if shown, err := strconv.Atoi(number); is && err == nil && shown >= ch.number {
				took = append(took, now.Sub(ch.at))
				delete(pending, key)
			}
		}
		return received == total && len(pending) == 0
	})
	slices.Sort(took)
	return took
}

// quantile of sorted times, in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	return float64(sorted[min(int(float64(len(sorted))*q), len(sorted)-1)].Microseconds()) / 1000
}

// TestLatency: rows 5 and 6, from a change in a workload cluster to the status of its
// Pipeline; and the same while a tenth of the clusters hang.
func TestLatency(t *testing.T) {
	s := newScene(t, simulated.Options{Clusters: count(10, 200), Applications: 2})
	names := s.releases(0, 1, s.clusters, few)
	startHub(t, s.namespace)
	s.shown(names, every)
	pause(settle)
	seconds := time.Duration(count(1, 10)) * time.Second
	for i, row := range []struct {
		perSecond int
		p50, p99  float64
	}{{5, 7, 20}, {50, 0, 100}, {200, 0, 300}} {
		took := latencies(s, s.clusters, row.perSecond, seconds, fmt.Sprint(i))
		if row.p50 > 0 {
			report(fmt.Sprintf("change → status, %d/s, p50", row.perSecond), quantile(took, 0.5), row.p50, "ms")
		}
		report(fmt.Sprintf("change → status, %d/s, p99", row.perSecond), quantile(took, 0.99), row.p99, "ms")
	}

	// Every tenth hangs in each second run of a pair.
	var healthy, hanging []*simulated.Cluster
	for i, c := range s.clusters {
		if i%10 == 9 {
			hanging = append(hanging, c)
		} else {
			healthy = append(healthy, c)
		}
	}
	var ratios, differences []float64
	for pair := range count(1, 5) {
		without := quantile(latencies(s, healthy, 20, seconds/2+time.Second/2, fmt.Sprintf("1%d", pair)), 0.99)
		for _, c := range hanging {
			c.Set(simulated.Tarpit)
		}
		pause(settle)
		with := quantile(latencies(s, healthy, 20, seconds/2+time.Second/2, fmt.Sprintf("2%d", pair)), 0.99)
		for _, c := range hanging {
			c.Set(simulated.Serve)
		}
		pause(settle)
		ratios, differences = append(ratios, with/without), append(differences, with-without)
	}
	slices.Sort(ratios)
	slices.Sort(differences)
	middle := len(ratios) / 2
	if differences[middle] <= 2 {
		report("others' p99 with a tenth hanging, difference", differences[middle], 2, "ms")
	} else {
		report("others' p99 with a tenth hanging, ratio", ratios[middle], 1.1, "")
	}
}

// TestRotation: row 7, the tokens of all clusters, three times over, while each
// deploys a revision.
func TestRotation(t *testing.T) {
	s := newScene(t, simulated.Options{Clusters: count(5, 200), Applications: 2})
	names := s.releases(0, 1, s.clusters, targetsEach)
	h := startHub(t, s.namespace)
	s.shown(names, every)
	pause(settle) // A watch that ends in its first second is listed anew, whatever ends it.
	lists, missed := asked(s), 0
	for n := range 3 {
		each(s.clusters, func(c *simulated.Cluster) {
			c.RotateToken()
			s.renew(c)
		})
		revision := fmt.Sprintf("4.%d.0", n)
		for _, c := range s.clusters {
			c.Deploy(0, revision)
		}
		s.until("the revision is shown", func(all map[string]*pipelinesv1.Pipeline) bool {
			missed = 0
			for _, name := range names {
				for _, target := range all[name].Status.Environments[environment].Targets {
					if target.Revision != revision || target.Stale {
						missed++
					}
				}
			}
			return missed == 0
		})
		for _, c := range s.clusters {
			c.EndWatches() // They resume with the new token.
		}
		s.g.Eventually(func() int { return openWatches(s) }).Should(Equal(len(s.clusters)))
	}
	report("token rotation of all clusters, relists", float64(asked(s)-lists)+h.measure(t).Relists, 0, "")
	report("token rotation of all clusters, revisions missed", float64(missed), 0, "")
	s.g.Expect(asked(s)).To(Equal(lists))
}

// asked are the lists that the servers gave.
func asked(s *scene) int {
	sum := 0
	for _, c := range s.clusters {
		n := c.Counts()
		sum += int(n.Lists + n.WatchLists)
	}
	return sum
}
