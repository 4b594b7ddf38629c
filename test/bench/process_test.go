package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/ports"
	"github.com/capstan-hub/capstan/playground/process"
)

// programs is the folder of the programs that are measured.
var programs string

// build builds them, once, as `make build` builds capstan.
var build = sync.OnceValue(func() error {
	command := exec.Command("go", "build", "-o", programs, "./cmd/capstan", "./test/bench/floor")
	command.Dir, command.Env = controlplane.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building capstan: %w: %s", err, out)
	}
	return nil
})

// memoryLimit is that of the chart.
const memoryLimit = "900MiB"

// cost is what a hub process holds. Sizes are bytes.
type cost struct {
	// Live is heap and stacks in use after a collection; Resident is what the
	// operating system counts, before it.
	Live, Resident int64
	Goroutines     int
	Relists        float64
	// CPU seconds of the process until now.
	CPU float64
}

// work of a controller: reconciles that ended without an error or another one to follow, and what
// its queue holds.
type work struct {
	Reconciled, Queued float64
}

// hubProcess is a running hub: cmd/capstan, with the flags of the chart.
type hubProcess struct {
	testing.TB
	g       *WithT
	process *process.Process
	began   time.Time
	// before the hub is stopped, this is called, if it is set.
	before func()
	// metrics and diagnostics are URLs, health is an address.
	metrics, diagnostics, health string
}

// startHub starts a hub for a namespace of the management cluster, with more flags.
func startHub(t testing.TB, namespace string, flags ...string) *hubProcess {
	t.Helper()
	return startHubOf(t, kubeconfigFile, namespace, append(flags, "--namespace="+namespace)...)
}

// startHubOf starts a hub of the management cluster of a kubeconfig, with its lease in a
// namespace. It has the flags of the chart's Deployment (TestFlagsAreTheCharts), with ports on
// loopback, and what a fleet on one machine needs.
func startHubOf(t testing.TB, kubeconfig, namespace string, flags ...string) *hubProcess {
	t.Helper()
	return startHubWith(t, memoryLimit, kubeconfig, namespace, flags...)
}

// startHubWith starts one with another limit of memory than the chart's, for a fleet of another size.
func startHubWith(t testing.TB, limit, kubeconfig, namespace string, flags ...string) *hubProcess {
	t.Helper()
	h := &hubProcess{TB: t, g: NewWithT(t)}
	h.g.Expect(build()).To(Succeed())
	free := func() string {
		address, err := ports.Free()
		h.g.Expect(err).NotTo(HaveOccurred())
		return address
	}
	metrics, diagnostics, folder := free(), free(), t.TempDir()
	h.metrics, h.diagnostics = "http://"+metrics+"/metrics", "http://"+diagnostics
	args := append(chartFlags(metrics, free, namespace, folder),
		"--kubeconfig="+kubeconfig, "--diagnostics-address="+diagnostics, "--allow-loopback-clusters", "--allow-loopback-git")
	for _, arg := range args {
		if address, is := strings.CutPrefix(arg, "--health-addr="); is {
			h.health = address
		}
	}
	h.start("capstan", folder, append(append([]string{"hub"}, args...), flags...), "GOMEMLIMIT="+limit, "RUNTIME_NAMESPACE="+namespace, "AWS_EC2_METADATA_DISABLED=true")
	return h
}

// startFloor starts the program floor instead of a hub.
func startFloor(t testing.TB, namespace string) *hubProcess {
	t.Helper()
	h := &hubProcess{TB: t, g: NewWithT(t)}
	h.g.Expect(build()).To(Succeed())
	address, err := ports.Free()
	h.g.Expect(err).NotTo(HaveOccurred())
	h.metrics, h.diagnostics = "http://"+address+"/metrics", "http://"+address
	h.start("floor", t.TempDir(), []string{"--kubeconfig=" + kubeconfigFile, "--namespace=" + namespace, "--address=" + address}, "GOMEMLIMIT="+memoryLimit)
	return h
}

// start starts the program of a name, which logs to a file in the folder.
func (h *hubProcess) start(name, folder string, args []string, environment ...string) {
	h.Helper()
	h.began = time.Now()
	var err error
	h.process, err = process.Start(process.Options{
		Path: filepath.Join(programs, name), Args: args, Log: filepath.Join(folder, "log"), Env: environment,
	})
	h.g.Expect(err).NotTo(HaveOccurred())
	h.Cleanup(h.stop)
	h.profile()
}

// chartFlags are the flags that the chart's Deployment sets with its default values.
func chartFlags(metrics string, free func() string, namespace, folder string) []string {
	return []string{
		"--leader-elect",
		"--warm-standby",
		"--metrics-bind-address=" + metrics,
		"--health-addr=" + free(),
		"--promotion-hook-bind-address=" + free(),
		"--api-bind-address=" + free(),
		"--webhook-bind-address=" + free(),
		"--webhook-cert-secret=" + namespace + "/capstan-hub-webhook",
		"--dashboard-bind-address=" + free(),
		"--clone-dir=" + folder,
	}
}

// profile takes CPU profiles of the first seconds of the hub, and of the API server meanwhile, into
// the directory that CAPSTAN_BENCH_PROFILE names, if it does, and profiles of the hub's heap and
// goroutines at the end.
func (h *hubProcess) profile() {
	directory := os.Getenv("CAPSTAN_BENCH_PROFILE")
	if directory == "" {
		return
	}
	seconds, err := strconv.Atoi(os.Getenv("CAPSTAN_BENCH_PROFILE_SECONDS"))
	if err != nil {
		seconds = 10
	}
	var taken sync.WaitGroup
	ctx, stop := context.WithCancel(h.Context()) // The API server takes one profile at a time.
	taken.Go(func() {
		for range 1000 { // The server listens after the start of the process.
			raw, err := get(fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", h.diagnostics, seconds))
			if err == nil {
				_ = os.WriteFile(filepath.Join(directory, fmt.Sprintf("hub-%d.cpu", h.began.UnixMilli())), raw, 0o600)
				return
			}
			pause(5 * time.Millisecond)
		}
	})
	taken.Go(func() {
		if raw, err := profileOfAPIServer(ctx, seconds); err == nil {
			_ = os.WriteFile(filepath.Join(directory, fmt.Sprintf("hub-%d.apiserver-cpu", h.began.UnixMilli())), raw, 0o600)
		}
	})
	h.Cleanup(taken.Wait)
	h.before = func() {
		stop()
		for _, kind := range []string{"heap", "allocs", "goroutine"} {
			if raw, err := get(h.diagnostics + "/debug/pprof/" + kind); err == nil {
				_ = os.WriteFile(filepath.Join(directory, fmt.Sprintf("hub-%d.%s", h.began.UnixMilli(), kind)), raw, 0o600)
			}
		}
	}
}

// stop ends the hub. It shows the end of its log when the test has failed.
func (h *hubProcess) stop() {
	if h.process == nil {
		return
	}
	if h.before != nil {
		h.before()
	}
	if err := h.process.Stop(); err != nil {
		h.Errorf("the hub ended: %v", err)
	}
	h.process = nil
}

// get returns the body of an answer.
func get(url string) ([]byte, error) {
	answer, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, answer.Status, raw)
	}
	return raw, err
}

// scrape returns the metrics of the hub by name. A hub that does not listen yet has none.
func (h *hubProcess) scrape() map[string]*dto.MetricFamily {
	answer, err := http.Get(h.metrics)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	h.g.Expect(err).NotTo(HaveOccurred())
	return families
}

// sum of a metric over all series whose labels contain some pairs of name and value.
func sum(families map[string]*dto.MetricFamily, name string, labels map[string]string) (total float64) {
	for _, m := range families[name].GetMetric() {
		matches := 0
		for _, l := range m.GetLabel() {
			if labels[l.GetName()] == l.GetValue() {
				matches++
			}
		}
		if matches == len(labels) {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return total
}

// work of the controller of Pipelines.
func (h *hubProcess) work() work {
	families := h.scrape()
	return work{
		Reconciled: sum(families, "controller_runtime_reconcile_total", map[string]string{"controller": "pipeline", "result": "success"}),
		Queued:     sum(families, "workqueue_depth", map[string]string{"name": "pipeline"}),
	}
}

// cpu returns the CPU seconds of the process until now.
func (h *hubProcess) cpu() float64 { return sum(h.scrape(), "process_cpu_seconds_total", nil) }

// measure takes the cost of the hub.
func (h *hubProcess) measure() cost {
	h.Helper()
	before := h.scrape()
	for range 2 { // The second frees what the first one found unused by finalizers.
		_, err := get(h.diagnostics + "/debug/pprof/heap?gc=1")
		h.g.Expect(err).NotTo(HaveOccurred())
	}
	after := h.scrape()
	return cost{
		Live:       int64(sum(after, "go_memstats_heap_alloc_bytes", nil) + sum(after, "go_memstats_stack_inuse_bytes", nil)),
		Resident:   int64(sum(before, "process_resident_memory_bytes", nil)),
		Goroutines: int(sum(after, "go_goroutines", nil)),
		Relists:    sum(after, "capstan_relists_total", nil),
		CPU:        sum(before, "process_cpu_seconds_total", nil),
	}
}

// cost of the hub, once what its start left behind is gone.
func (h *hubProcess) cost() cost {
	h.Helper()
	least := h.measure()
	for range 4 {
		pause(settle / 4)
		c := h.measure()
		least.Live, least.Goroutines = min(least.Live, c.Live), min(least.Goroutines, c.Goroutines)
		least.Resident, least.Relists, least.CPU = c.Resident, c.Relists, c.CPU
	}
	return least
}

// pause lets time pass that is measured, not waited for.
func pause(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// flagOfChart matches a flag in the chart's Deployment.
var flagOfChart = regexp.MustCompile(`- --([a-z-]+)`)

// The hubs that are measured have the flags of the chart.
func TestFlagsAreTheCharts(t *testing.T) {
	g := NewWithT(t)
	raw, err := os.ReadFile(filepath.Join(controlplane.Root(), "config", "chart", "templates", "deployment.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	notDefault := []string{"dashboard-tls-cert-file", "dashboard-tls-key-file", "dashboard-session-key-file", "dashboard-oidc-client-secret-file", "dashboard-oidc-ca-file", "dry-run"}
	want := map[string]bool{}
	for _, m := range flagOfChart.FindAllStringSubmatch(string(raw), -1) {
		if !slices.Contains(notDefault, m[1]) {
			want[m[1]] = true
		}
	}
	have := map[string]bool{}
	for _, flag := range chartFlags("x", func() string { return "x" }, "x", "x") {
		name, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		have[name] = true
	}
	g.Expect(have).To(Equal(want))
	values, err := os.ReadFile(filepath.Join(controlplane.Root(), "config", "chart", "values.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(values)).To(ContainSubstring("goMemoryLimit: " + memoryLimit + "\n"))
}
