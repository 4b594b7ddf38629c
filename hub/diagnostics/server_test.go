package diagnostics_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/diagnostics"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/ports"
	"github.com/capstan-hub/capstan/watchers"
)

// level of a log, of which there are two.
type level struct{ name string }

func (l *level) Name() string { return l.name }

func (l *level) Set(name string) error {
	if name != "info" && name != "debug" {
		return errors.New("use info or debug")
	}
	l.name = name
	return nil
}

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// serve starts a server and returns its address.
func serve(t *testing.T, change func(*diagnostics.Options)) string {
	t.Helper()
	g := NewWithT(t)
	address, err := ports.Free()
	g.Expect(err).NotTo(HaveOccurred())
	queues := prometheus.NewRegistry()
	depth := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_depth", Help: "x"}, []string{"name", "priority"})
	g.Expect(queues.Register(depth)).To(Succeed())
	depth.WithLabelValues("pipeline", "0").Set(3)
	depth.WithLabelValues("pipeline", "-100").Set(4)
	o := diagnostics.Options{
		BindAddress: address, Version: "v9", Level: &level{"info"}, Leads: func() bool { return true }, Metrics: queues,
		Clock: testclock.NewFakePassiveClock(now), Logger: logr.Discard(),
		Connections: func() []clusters.Snapshot {
			return []clusters.Snapshot{
				{State: capstanv1.ConnectionReady, Since: now.Add(-time.Hour), LastContact: now.Add(-3 * time.Second)},
				{Name: "Cluster/team/prod", State: capstanv1.ConnectionUnreachable, Reason: "Timeout", Message: "no answer\nfor 3 s", Since: now.Add(-2 * time.Minute), Epoch: 7},
			}
		},
		Informers: func() []watchers.InformerState {
			return []watchers.InformerState{{
				Cluster: "Cluster/team/prod", Kind: schema.GroupKind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"},
				Since: now.Add(-time.Minute), Synced: true, Objects: 40, Bytes: 8192, Problem: "Unreachable: no answer",
			}}
		},
	}
	if change != nil {
		change(&o)
	}
	server, err := diagnostics.New(o)
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		g.Eventually(ended, time.Minute).Should(Receive(BeNil()))
	})
	g.Eventually(func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	}, time.Minute).Should(Succeed())
	return "http://" + address
}

// call returns the status and the body of an answer.
func call(t *testing.T, method, url, body string, change func(*http.Request)) (int, string) {
	t.Helper()
	g := NewWithT(t)
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	g.Expect(err).NotTo(HaveOccurred())
	if change != nil {
		change(r)
	}
	answer, err := http.DefaultClient.Do(r)
	g.Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return answer.StatusCode, string(raw)
}

func TestState(t *testing.T) {
	leaks.AtEnd(t)
	g := NewWithT(t)
	at := serve(t, nil)
	code, page := call(t, http.MethodGet, at+"/state", "", nil)
	g.Expect(code).To(Equal(http.StatusOK))
	var lines []string
	for line := range strings.Lines(page) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	g.Expect(lines[0]).To(HavePrefix("capstan v9, leader, started 0s ago; go"))
	g.Expect(lines).To(ContainElements(
		"2 connections",
		"CLUSTER STATE REASON SINCE CONTACT EPOCH VERSION MESSAGE",
		"(management) Ready - 60m 3s 0 - -",
		"Cluster/team/prod Unreachable Timeout 2m - 7 - no answer for 3 s",
		"1 informers",
		"Cluster/team/prod HelmRelease.helm.toolkit.fluxcd.io * 60s true 40 8192 Unreachable: no answer",
		"1 queues",
		"pipeline 7 0 0 0 0 0",
	))
	code, page = call(t, http.MethodGet, at+"/", "", nil)
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(page).To(ContainSubstring(at + "/debug/pprof/heap"))
	code, page = call(t, http.MethodGet, at+"/debug/pprof/goroutine?debug=1", "", nil)
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(page).To(ContainSubstring("TestState"))
	code, _ = call(t, http.MethodGet, at+"/debug/pprof/heap?gc=1", "", nil)
	g.Expect(code).To(Equal(http.StatusOK))
	code, _ = call(t, http.MethodGet, at+"/nothing", "", nil)
	g.Expect(code).To(Equal(http.StatusNotFound))
}

func TestLogLevel(t *testing.T) {
	leaks.AtEnd(t)
	g := NewWithT(t)
	log := &level{"info"}
	at := serve(t, func(o *diagnostics.Options) { o.Level = log }) + "/log-level"
	code, body := call(t, http.MethodGet, at, "", nil)
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(body).To(Equal("info\n"))
	code, body = call(t, http.MethodPut, at, "debug\n", nil)
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(body).To(Equal("debug\n"))
	for _, bad := range []string{"loud", "", strings.Repeat("x", 100_000)} {
		code, _ = call(t, http.MethodPut, at, bad, nil)
		g.Expect(code).To(Equal(http.StatusBadRequest))
	}
	g.Expect(log.name).To(Equal("debug"))

	none := serve(t, func(o *diagnostics.Options) { o.Level = nil }) + "/log-level"
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		code, _ = call(t, method, none, "debug", nil)
		g.Expect(code).To(Equal(http.StatusNotFound))
	}
}

// Another site cannot read or change anything through a browser on this machine.
func TestOtherSites(t *testing.T) {
	leaks.AtEnd(t)
	g := NewWithT(t)
	log := &level{"info"}
	at := serve(t, func(o *diagnostics.Options) { o.Level = log })
	code, body := call(t, http.MethodGet, at+"/state", "", func(r *http.Request) { r.Host = "rebound.example.com" })
	g.Expect(code).To(Equal(http.StatusMisdirectedRequest))
	g.Expect(body).NotTo(ContainSubstring("prod"))
	code, _ = call(t, http.MethodPut, at+"/log-level", "debug", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example.com") })
	g.Expect(code).To(Equal(http.StatusForbidden))
	g.Expect(log.name).To(Equal("info"))
	for site, want := range map[string]int{"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden, "none": http.StatusOK, "same-origin": http.StatusOK} {
		code, _ = call(t, http.MethodGet, at+"/debug/pprof/heap?gc=1", "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) })
		g.Expect(code).To(Equal(want), site)
	}
}

func TestExposure(t *testing.T) {
	g := NewWithT(t)
	for _, address := range []string{":6060", "0.0.0.0:6060", "[::]:6060", "10.0.0.1:6060", "capstan:6060", "6060"} {
		g.Expect(diagnostics.CheckExposure(address)).To(MatchError(diagnostics.ErrExposed), address)
		_, err := diagnostics.New(diagnostics.Options{BindAddress: address})
		g.Expect(err).To(MatchError(diagnostics.ErrExposed), address)
	}
	for _, address := range []string{"127.0.0.1:6060", "[::1]:6060", "localhost:6060"} {
		g.Expect(diagnostics.CheckExposure(address)).To(Succeed(), address)
	}
}
