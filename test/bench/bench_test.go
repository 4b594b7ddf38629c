package bench

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/simulated"
)

var full = flag.Bool("full", false, "take the counts of the budgets, and print figures")

// count returns the full count, or the small one that checks the measurement.
func count(small, whole int) int {
	if *full {
		return whole
	}
	return small
}

// tolerance is how far a budget may be missed until the run fails: the speed of one machine differs
// by as much from hour to hour.
const tolerance = 1.2

// missed are the budgets that were missed by more than that, with -full.
var missed []string

// report prints a figure next to its budget.
func report(what string, measured, budget float64, unit string) {
	verdict := "ok"
	if measured > budget {
		verdict = "MISSED"
	}
	if *full && measured > tolerance*budget {
		missed = append(missed, what)
	}
	if math.IsInf(budget, 1) { // A figure without a budget.
		fmt.Fprintf(os.Stderr, "| %s | %s %s | – | |\n", what, figure(measured), unit)
		return
	}
	fmt.Fprintf(os.Stderr, "| %s | %s %s | ≤ %s %s | %s |\n", what, figure(measured), unit, figure(budget), unit, verdict)
}

func figure(f float64) string {
	switch {
	case f >= 100 || f == math.Trunc(f):
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
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

// TestCost: what a connected cluster costs, with 20 applications of 8 KiB and two Pipelines of one
// target each: their two applications are watched, by one informer. Then what another informer and
// another application cost.
func TestCost(t *testing.T) {
	thousand, h, _ := connect(t, count(6, 1000))
	h.stop()
	thousand.ends()
	s, h, two := connect(t, count(4, 200))
	for i := 0; i < len(s.clusters); i += targetsEach {
		s.pipeline(fmt.Sprintf("kustomization-%d", i), "kustomize.toolkit.fluxcd.io/v1", "Kustomization", "none", s.clusters[i:min(i+targetsEach, len(s.clusters))]...)
	}
	s.g.Eventually(func() int { return openWatches(s) }).Should(Equal(2 * len(s.clusters)))
	three := h.cost()
	of := float64(len(s.clusters))
	report("further informer, live heap and stacks", float64(three.Live-two.Live)/of/kib, 100, "KiB")
	report("further informer, goroutines", perCluster(three.Goroutines-two.Goroutines, of), 9, "")

	s.shown(s.releases(watchedFirst, applications, s.clusters, targetsEach), every)
	four := h.cost()
	report("watched application, with its place in Pipelines", float64(four.Live-three.Live)/(of*(applications-watchedFirst))/kib, 2.5, "KiB")
}

// Applications of each cluster, and how many of them are watched at first.
const applications, watchedFirst = 20, 2

// connect makes a fleet with a hub, and reports what n more connected clusters cost. What the hub
// itself holds is there with the first clusters.
func connect(t *testing.T, n int) (*scene, *hubProcess, cost) {
	t.Helper()
	const first = 20
	s := newScene(t, simulated.Options{Clusters: n + first, Applications: applications})
	h := startHub(t, s.namespace)
	s.shown(s.releases(0, watchedFirst, s.clusters[:first], 1), every)
	one := h.cost()
	s.shown(s.releases(0, watchedFirst, s.clusters[first:], 1), every)
	two := h.cost()
	perConnected(one, two, n)
	s.g.Expect(two.Goroutines).To(BeNumerically(">", one.Goroutines))
	return s, h, two
}

// perConnected reports what n more connected clusters cost.
func perConnected(before, after cost, n int) {
	of := fmt.Sprintf("connected cluster of %d, ", n)
	report(of+"resident", float64(after.Resident-before.Resident)/float64(n)/kib, 0.35*kib, "KiB")
	report(of+"live heap and stacks", float64(after.Live-before.Live)/float64(n)/kib, 280, "KiB")
	report(of+"goroutines", perCluster(after.Goroutines-before.Goroutines, float64(n)), 12, "")
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

// TestColdStart: from the start of the process to the last Pipeline that shows every target it
// can.
func TestColdStart(t *testing.T) {
	// A new API server's caches end the first streamed list of a kind after a second.
	first := newScene(t, simulated.Options{Clusters: 1, Applications: 1})
	warm := startHub(t, first.namespace)
	first.shown(first.releases(0, 1, first.clusters, 1), every)
	warm.stop()
	first.ends()
	for _, row := range []struct {
		what                    string
		clusters, applications  int // and applications of each cluster
		pipelines, targets      int // applications that are watched, and targets of each Pipeline
		dead                    int // one of so many clusters
		mode                    simulated.Mode
		seconds, cpu, megabytes float64 // budgets; none if 0
	}{
		// 6 × 67 Pipelines of three targets.
		{"cold start, 200 clusters, 400 Pipelines", count(4, 200), 40, 6, few, 0, simulated.Serve, 2.5, 0, 0},
		{"the same, a tenth hanging", count(4, 200), 40, 6, few, 10, simulated.Tarpit, 8, 0, 0},
		// Two Pipelines of one target in each cluster.
		{"cold start, 1000 clusters × 20 applications, 2000 Pipelines", count(6, 1000), 20, 2, 1, 0, simulated.Serve, 10, 6, 0},
		// 50 × 50 Pipelines of twenty targets: every application is watched.
		{"cold start, 1000 clusters × 50 applications, 2500 Pipelines of 20 targets", count(6, 1000), 50, 50, targetsEach, 0, simulated.Serve, 20, 0, 500},
		{"the same, a fifth dead", count(6, 1000), 50, 50, targetsEach, 5, simulated.Refuse, 20, 0, 0},
	} {
		t.Run(row.what, func(t *testing.T) {
			// Each has its own fleet and Pipelines: all statuses are written.
			measure := func(what string, start func(*scene) *hubProcess, seconds, cpu, megabytes float64) {
				s := newScene(t, simulated.Options{Clusters: row.clusters, Applications: row.applications})
				names := s.releases(0, row.pipelines, s.clusters, row.targets)
				s.g.Expect(names).NotTo(BeEmpty())
				dead := map[string]bool{}
				for i, c := range s.clusters {
					if row.dead > 0 && i%row.dead == 0 {
						c.Set(row.mode)
						dead[c.Name()] = true
					}
				}
				before, err := loadNow(t.Context())
				s.g.Expect(err).NotTo(HaveOccurred())
				h := start(s)
				done := s.shown(names, func(cluster string) bool { return !dead[cluster] })
				used := h.cpu()
				after, err := loadNow(t.Context())
				s.g.Expect(err).NotTo(HaveOccurred())
				report(what, done.Sub(h.began).Seconds(), seconds, "s")
				report("the same, its CPU", used, cpu, "s")
				after.since(before)
				if row.megabytes > 0 {
					report("the same, resident", float64(h.cost().Resident)/mib, megabytes, "MiB")
				}
				h.stop()
				s.ends()
			}
			none := math.Inf(1)
			if row.mode == simulated.Refuse || row.dead == 0 { // It waits for clusters that hang.
				measure("the floor, "+row.what, func(s *scene) *hubProcess { return startFloor(t, s.namespace) }, none, none, none)
			}
			measure(row.what, func(s *scene) *hubProcess { return startHub(t, s.namespace) }, row.seconds, cmp.Or(row.cpu, none), row.megabytes)
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

// echoes prepares a Pipeline of its own and returns a function that measures how long a bare PATCH of
// its status takes until a watch delivers it, at a rate for some time: what the API server and its
// disk need for a change, without a hub.
func echoes(s *scene) (measure func(perSecond int, d time.Duration) ([]time.Duration, error), err error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-bare-"}}
	if err := admin.Create(s.Context(), namespace); err != nil {
		return nil, err
	}
	p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "bare"}, Spec: pipelinesv1.PipelineSpec{
		AppRef:       pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "app-0"},
		Environments: []pipelinesv1.Environment{{Name: environment, Targets: []pipelinesv1.Target{{Namespace: simulated.Namespace}}}},
	}}
	if err := admin.Create(s.Context(), p); err != nil {
		return nil, err
	}
	w, err := admin.Watch(s.Context(), &pipelinesv1.PipelineList{}, client.InNamespace(namespace.Name))
	if err != nil {
		return nil, err
	}
	return func(perSecond int, d time.Duration) ([]time.Duration, error) {
		defer w.Stop()
		pause(time.Second / time.Duration(2*perSecond)) // Else each of them waits for the disk together with a change.
		return patches(s, p, w, perSecond, d)
	}, nil
}

func patches(s *scene, p *pipelinesv1.Pipeline, w watch.Interface, perSecond int, d time.Duration) (took []time.Duration, err error) {
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	for n := range perSecond * int(d/time.Second) {
		<-ticker.C
		revision, began := fmt.Sprintf("3.0.%d", n), time.Now()
		patch := fmt.Sprintf(`{"status":{"environments":{%q:{"targets":[{"clusterAppRef":{"apiVersion":"helm.toolkit.fluxcd.io/v2","kind":"HelmRelease","name":"app-0"},"ready":true,"revision":%q}]}}}}`, environment, revision)
		if err := admin.Status().Patch(s.Context(), p.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			return nil, err
		}
		for event := range w.ResultChan() {
			shown, is := event.Object.(*pipelinesv1.Pipeline)
			if is && shown.Status.Environments[environment] != nil && shown.Status.Environments[environment].Targets[0].Revision == revision {
				took = append(took, time.Since(began))
				break
			}
		}
	}
	if len(took) == 0 {
		return nil, errors.New("the watch ended before the first status")
	}
	slices.Sort(took)
	return took, nil
}

// rates of changes, each with the budget of its p99 in ms.
var rates = []struct {
	perSecond int
	p99       float64
}{{5, 13}, {50, 25}, {200, 150}}

// changes measures changes at the rates; the first in the same seconds as bare PATCHes, because the
// disk is not equally fast at all times.
func changes(s *scene, who string, seconds time.Duration, ratio float64, budget func(p99 float64) float64) {
	s.Helper()
	measure, err := echoes(s)
	s.g.Expect(err).NotTo(HaveOccurred())
	var bare []time.Duration
	var failed error
	var measuring sync.WaitGroup
	for i, row := range rates {
		if i == 0 {
			measuring.Go(func() { bare, failed = measure(row.perSecond, seconds) })
		}
		took := latencies(s, s.clusters, row.perSecond, seconds, fmt.Sprint(i))
		measuring.Wait()
		s.g.Expect(failed).NotTo(HaveOccurred())
		if i == 0 {
			report(who+"bare status PATCH → its watch event, 5/s, p50", quantile(bare, 0.5), math.Inf(1), "ms")
			report(who+"change → status, 5/s, p50", quantile(took, 0.5), math.Inf(1), "ms")
			report(who+"the same, of the bare PATCH's", quantile(took, 0.5)/quantile(bare, 0.5), ratio, "")
		}
		report(fmt.Sprintf("%schange → status, %d/s, p99", who, row.perSecond), quantile(took, 0.99), budget(row.p99), "ms")
	}
}

// TestLatency: from a change in a workload cluster to the status of its Pipeline; and the same
// while a tenth of the clusters hang.
func TestLatency(t *testing.T) {
	seconds := time.Duration(count(1, 20)) * time.Second
	observed := func(start func(testing.TB, string) *hubProcess) (*scene, *hubProcess) {
		s := newScene(t, simulated.Options{Clusters: count(10, 200), Applications: 2})
		names := s.releases(0, 1, s.clusters, few)
		h := start(t, s.namespace)
		s.shown(names, every)
		pause(settle)
		return s, h
	}
	floor, bare := observed(startFloor)
	changes(floor, "the floor, ", seconds, math.Inf(1), func(float64) float64 { return math.Inf(1) })
	bare.stop()
	floor.ends()
	s, _ := observed(func(t testing.TB, namespace string) *hubProcess { return startHub(t, namespace) })
	changes(s, "", seconds, 1.15, func(p99 float64) float64 { return p99 })

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

// TestReturn: clusters hang for a time, and have a new revision when they answer again.
func TestReturn(t *testing.T) {
	const rounds = 3
	hangs := time.Duration(count(2, 50)) * time.Second
	n, all := count(1, 5), count(4, 50)
	s := newScene(t, simulated.Options{Clusters: all, Applications: 2})
	startHub(t, s.namespace)
	s.shown(s.releases(0, 1, s.clusters, few), every)
	var fromAnswer, fromEnd []time.Duration
	for round := range rounds { // Others each time: a cluster that flaps is observed for longer.
		some := s.clusters[round*n : (round+1)*n]
		for _, c := range some {
			c.Set(simulated.Tarpit)
		}
		pause(hangs)
		end, revision := time.Now(), fmt.Sprintf("5.%d.0", round)
		for _, c := range some {
			c.Deploy(0, revision)
			c.Set(simulated.Serve)
		}
		shown := map[string]bool{}
		s.until("the revision is shown", func(all map[string]*pipelinesv1.Pipeline) bool {
			for _, c := range some {
				i := slices.Index(s.clusters, c)
				target := all[fmt.Sprintf("app-0-of-%s", s.clusters[i/few*few].Name())].Status.Environments[environment].Targets[i%few]
				if shown[c.Name()] || target.Revision != revision || target.Stale {
					continue
				}
				shown[c.Name()] = true
				now, answered := time.Now(), c.Answered()
				if answered.IsZero() || answered.After(now) {
					answered = end // A watch that stayed open delivered it.
				}
				fromAnswer, fromEnd = append(fromAnswer, now.Sub(answered)), append(fromEnd, now.Sub(end))
			}
			return len(shown) == n
		})
	}
	slices.Sort(fromAnswer)
	slices.Sort(fromEnd)
	what := fmt.Sprintf("%d of %d clusters hang for %s, change → status from the first answer, ", n, all, hangs)
	report(what+"p50", quantile(fromAnswer, 0.5)/1000, 0.5, "s")
	report(what+"worst", quantile(fromAnswer, 1)/1000, 2, "s")
	report("the same from the end, p50", quantile(fromEnd, 0.5)/1000, hangs.Seconds()/4, "s")
	report("the same from the end, worst", quantile(fromEnd, 1)/1000, hangs.Seconds()/2, "s")
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
	report("token rotation of all clusters, relists", float64(asked(s)-lists)+h.measure().Relists, 0, "")
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
