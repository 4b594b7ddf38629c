package bench

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/simulated"
)

// metricServer is an endpoint of checks. While it hangs, it answers no query.
type metricServer struct {
	*httptest.Server
	hangs   atomic.Bool
	queries atomic.Int64
}

func newMetricServer(t testing.TB) *metricServer {
	t.Helper()
	m := &metricServer{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.queries.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // Else the server does not notice that the client has gone.
		if m.hangs.Load() {
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"scalar","result":[1700000000,"1"]}}`)
	}))
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

// TestHangingCheck: promotions wait for checks whose endpoint does not answer. The changes of other Pipelines are shown
// as fast as while the same promotions are stopped and send no query.
func TestHangingCheck(t *testing.T) {
	seconds := time.Duration(count(1, 20)) * time.Second
	waiting := count(10, 100)
	s, endpoint, receiver := newScene(t, simulated.Options{Clusters: count(4, 50), Applications: waiting + 1}), newMetricServer(t), newInbox(t)
	names := s.releases(0, 1, s.clusters, few)
	apps := make([]int, waiting)
	for i := range apps {
		apps[i] = i + 1
	}
	each(apps, func(app int) {
		p := &pipelinesv1.Pipeline{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("waits-%d", app)},
			Spec: pipelinesv1.PipelineSpec{
				AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: fmt.Sprintf("app-%d", app)},
				Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
				Gates: &pipelinesv1.Gates{Checks: []pipelinesv1.Check{{Name: "errors", Interval: "30s", Prometheus: &pipelinesv1.PrometheusCheck{
					Endpoint: "main", Query: fmt.Sprintf("errors_%d", app), Expression: "value < 1",
				}}}},
			},
		}
		for i, env := range []string{"dev", "prod"} {
			p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env, Targets: []pipelinesv1.Target{{
				Namespace: simulated.Namespace, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: s.clusters[i].Name()},
			}}})
		}
		s.g.Expect(admin.Create(t.Context(), p)).To(Succeed())
	})
	startHub(t, s.namespace, "--events-addr="+receiver.URL, "--check-endpoint=main="+endpoint.URL)
	s.shown(names, every)
	for _, app := range apps {
		s.clusters[0].Deploy(app, "8.0.0")
	}
	// waitFor returns when the gate that keeps all of them is this one.
	waitFor := func(gate string) {
		t.Helper()
		s.until("all wait for "+gate, func(all map[string]*pipelinesv1.Pipeline) bool {
			for _, app := range apps {
				p := all[fmt.Sprintf("waits-%d", app)]
				if p == nil || p.Status.Environments["prod"] == nil || p.Status.Environments["prod"].Promotion == nil ||
					p.Status.Environments["prod"].Promotion.Phase != string(capstanv1.PhaseAwaitingGates) ||
					!strings.Contains(p.Status.Environments["prod"].Promotion.Message, gate) {
					return false
				}
			}
			return true
		})
		pause(settle)
	}

	// While they are stopped, they send no queries: that is what a hanging endpoint is compared with.
	var ratios, differences []float64
	for pair := range count(1, 5) {
		endpoint.hangs.Store(false)
		stopped := s.stop("freeze", nil)
		endpoint.CloseClientConnections()
		waitFor("freeze")
		before := endpoint.queries.Load()
		without := quantile(latencies(s, s.clusters, 20, seconds/2+time.Second/2, fmt.Sprintf("3%d", pair)), 0.99)
		s.g.Expect(endpoint.queries.Load()).To(Equal(before), "stopped promotions measure nothing")
		endpoint.hangs.Store(true)
		s.g.Expect(admin.Delete(t.Context(), stopped)).To(Succeed())
		waitFor("check")
		with := quantile(latencies(s, s.clusters, 20, seconds/2+time.Second/2, fmt.Sprintf("4%d", pair)), 0.99)
		s.g.Expect(endpoint.queries.Load()).To(BeNumerically(">", before))
		ratios, differences = append(ratios, with/without), append(differences, with-without)
	}
	sent, _, _ := receiver.received()
	s.g.Expect(sent).To(BeZero(), "no check has passed")
	slices.Sort(ratios)
	slices.Sort(differences)
	middle := len(ratios) / 2
	if differences[middle] <= 2 {
		report(fmt.Sprintf("others' p99 with a hanging endpoint of %d checks, difference", waiting), differences[middle], 2, "ms")
	} else {
		report(fmt.Sprintf("others' p99 with a hanging endpoint of %d checks, ratio", waiting), ratios[middle], 1.1, "")
	}
}
