package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

const (
	// roleVariable of the environment makes the test binary a hub of the namespace that it names;
	// allNamespaces for a hub of all.
	roleVariable  = "CAPSTAN_BENCH_HUB"
	allNamespaces = "*"
	// awsVariable makes that hub follow instances and annotate node groups. The environment of the
	// SDK says where AWS is.
	awsVariable = "CAPSTAN_BENCH_AWS"
)

// cost is what a hub process holds. Sizes are bytes.
type cost struct {
	// Live is heap and stacks in use after a collection; Resident is what the
	// operating system counts, before it.
	Live, Resident int64
	Goroutines     int
	Relists        float64
}

// work of a controller: reconciles that ended without an error or another one to follow, and what
// its queue holds.
type work struct {
	Reconciled, Queued float64
}

// workOf a controller, from controller-runtime's own metrics.
func workOf(controller string) work {
	var w work
	families, _ := ctrlmetrics.Registry.Gather()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case family.GetName() == "controller_runtime_reconcile_total" && labels["controller"] == controller && labels["result"] == "success":
				w.Reconciled += m.GetCounter().GetValue()
			case family.GetName() == "workqueue_depth" && labels["name"] == controller:
				w.Queued += m.GetGauge().GetValue()
			}
		}
	}
	return w
}

// serveHub is the hub process: a hub, and answers on stdout to commands on stdin.
func serveHub(namespace, kubeconfig string) error {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	o := hub.Options{
		Config: config, Namespace: strings.TrimPrefix(namespace, allNamespaces), AllowLoopback: true, AllowLoopbackGit: true, Registerer: registry, Logger: logr.Discard(),
		Dashboard: hub.Dashboard{BindAddress: os.Getenv(dashboardVariable), Auth: dashboard.AuthNone},
	}
	if os.Getenv(awsVariable) != "" {
		loaded, err := awsconfig.Load(context.Background(), awsconfig.Options{})
		if err != nil {
			return err
		}
		defer loaded.Close()
		o.AWS, o.Annotator.AWS, o.Eventing.SQSSourceNamespaces = loaded, loaded, []string{schema.AllNamespaces}
	}
	h, err := hub.New(o)
	if err != nil {
		return err
	}
	stop, err := profile()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- h.Start(ctx) }()
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() { // The end of stdin is the end of the hub.
		var answer any
		switch commands.Text() {
		case "cost":
			answer = measure(registry)
		case "work":
			answer = workOf("pipeline")
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			return err
		}
	}
	stop() // While everything is there.
	cancel()
	return <-ended
}

// profile takes profiles of the whole life of a hub into the directory that
// CAPSTAN_BENCH_PROFILE names, if it does.
func profile() (stop func(), err error) {
	directory := os.Getenv("CAPSTAN_BENCH_PROFILE")
	if directory == "" {
		return func() {}, nil
	}
	name := filepath.Join(directory, fmt.Sprintf("hub-%d", os.Getpid()))
	processor, err := os.Create(name + ".cpu")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(processor); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = processor.Close()
		if heap, err := os.Create(name + ".heap"); err == nil {
			_ = pprof.Lookup("heap").WriteTo(heap, 0)
			_ = heap.Close()
		}
	}, nil
}

func measure(registry *prometheus.Registry) cost {
	c := cost{Resident: resident()}
	runtime.GC()
	runtime.GC() // What the first one found unused by finalizers.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.Live, c.Goroutines = int64(m.HeapAlloc+m.StackInuse), runtime.NumGoroutine()
	families, _ := registry.Gather()
	for _, family := range families {
		if family.GetName() == "capstan_relists_total" {
			for _, m := range family.GetMetric() {
				c.Relists += m.GetCounter().GetValue()
			}
		}
	}
	return c
}

// resident is VmRSS of this process, in bytes.
func resident() int64 {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		debug.FreeOSMemory() // Not Linux: the best that is known.
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.Sys - m.HeapReleased)
	}
	for line := range strings.Lines(string(raw)) {
		if value, is := strings.CutPrefix(line, "VmRSS:"); is {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// hubProcess is a running one.
type hubProcess struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	began   time.Time
}

// startHub starts a hub for a namespace of the management cluster.
func startHub(t testing.TB, namespace string) *hubProcess {
	t.Helper()
	return startHubOf(t, kubeconfigFile, roleVariable+"="+namespace)
}

// startHubOf starts a hub of the management cluster of a kubeconfig, with variables of the
// environment.
func startHubOf(t testing.TB, kubeconfig string, environment ...string) *hubProcess {
	t.Helper()
	g := NewWithT(t)
	h := &hubProcess{command: exec.Command(os.Args[0], kubeconfig)}
	h.command.Env = append(os.Environ(), environment...)
	h.command.Stderr = os.Stderr
	var err error
	h.in, err = h.command.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	out, err := h.command.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	h.out, h.began = bufio.NewReader(out), time.Now()
	g.Expect(h.command.Start()).To(Succeed())
	t.Cleanup(h.stop)
	return h
}

func (h *hubProcess) stop() {
	if h.in == nil {
		return
	}
	_ = h.in.Close()
	h.in = nil
	_ = h.command.Wait()
}

func (h *hubProcess) ask(t testing.TB, command string, answer any) {
	t.Helper()
	g := NewWithT(t)
	_, err := fmt.Fprintln(h.in, command)
	g.Expect(err).NotTo(HaveOccurred())
	line, err := h.out.ReadBytes('\n')
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(line, answer)).To(Succeed())
}

func (h *hubProcess) measure(t testing.TB) cost {
	t.Helper()
	var c cost
	h.ask(t, "cost", &c)
	return c
}

// cost of the hub, once what its start left behind is gone.
func (h *hubProcess) cost(t testing.TB) cost {
	t.Helper()
	least := h.measure(t)
	for range 4 {
		pause(settle / 4)
		c := h.measure(t)
		least.Live, least.Goroutines = min(least.Live, c.Live), min(least.Goroutines, c.Goroutines)
		least.Resident = c.Resident
		least.Relists = c.Relists
	}
	return least
}

// pause lets time pass that is measured, not waited for.
func pause(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}
