package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/simulated"
	"github.com/capstan-hub/capstan/strategy/notification"
)

// inbox receives notifications, and records when each promotion was sent.
type inbox struct {
	*httptest.Server

	// mu guards lockedAt.
	mu       sync.Mutex
	lockedAt map[string][]time.Time
}

func newInbox(t testing.TB) *inbox {
	t.Helper()
	b := &inbox{lockedAt: map[string][]time.Time{}}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := time.Now()
		var e eventv1.Event
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		id := e.Metadata[notification.KeyPromotionID]
		b.mu.Lock()
		b.lockedAt[id] = append(b.lockedAt[id], now)
		b.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(b.Close)
	return b
}

// received returns how many promotions were sent, when the last one was, and those that were sent
// more than once.
func (b *inbox) received() (n int, last time.Time, doubled []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, at := range b.lockedAt {
		if latest := slices.MaxFunc(at, time.Time.Compare); latest.After(last) {
			last = latest
		}
		if len(at) > 1 {
			doubled = append(doubled, id)
		}
	}
	return len(b.lockedAt), last, doubled
}

var (
	writesOfPromotions = regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*resource="promotions"[^}]*verb="(?:PUT|PATCH|DELETE|POST)"[^}]*\} (\S+)$`)
	writesOfPipelines  = regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*resource="pipelines"[^}]*verb="(?:PUT|PATCH|DELETE|POST)"[^}]*\} (\S+)$`)
)

// TestStop (G16): 1,000 promotions are due at once. A PromotionWindow stops them while they are sent,
// and they continue by themselves when it is deleted. Then all wait for five gates each: that costs
// next to nothing.
func TestStop(t *testing.T) {
	n, trials, waits := count(40, 1000), count(1, 5), 10*time.Second
	if *full {
		waits = 6 * time.Minute // More than the five minutes after which a soak's sum is written.
	}
	s, receiver := newScene(t, simulated.Options{Clusters: 2, Applications: n}), newInbox(t)
	var names []string
	for app := range n {
		names = append(names, fmt.Sprintf("app-%d", app))
	}
	each(names, func(name string) {
		p := &pipelinesv1.Pipeline{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
			Spec: pipelinesv1.PipelineSpec{
				AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: name},
				Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
			},
		}
		for i, env := range []string{"dev", "staging", "prod"} {
			p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env, Targets: []pipelinesv1.Target{{
				Namespace: simulated.Namespace, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: s.clusters[min(i, 1)].Name()},
			}}})
		}
		s.g.Expect(admin.Create(t.Context(), p)).To(Succeed())
	})
	h := startHub(t, s.namespace, "--events-addr="+receiver.URL)
	agreed := func(env, revision string) func(map[string]*pipelinesv1.Pipeline) bool {
		return func(all map[string]*pipelinesv1.Pipeline) bool {
			for _, name := range names {
				p := all[name]
				if p == nil || p.Status.Environments[env] == nil || p.Status.Environments[env].Agreed == nil ||
					revision != "" && p.Status.Environments[env].Agreed.Revision != revision {
					return false
				}
			}
			return true
		}
	}
	s.until("all run what they ran", agreed("prod", ""))

	sent, _, _ := receiver.received()
	s.g.Expect(sent).To(BeZero())
	var late []time.Duration
	for trial := range trials {
		revision, before := fmt.Sprintf("7.%d.0", trial), trial*n
		for app := range n {
			s.clusters[0].Deploy(app, revision)
		}
		s.g.Eventually(func() int { sent, _, _ := receiver.received(); return sent }).WithPolling(time.Millisecond).Should(BeNumerically(">=", before+n/20+1))
		w := s.stop("stop", nil)
		stopped := time.Now()
		s.until("the rest waits", func(all map[string]*pipelinesv1.Pipeline) bool {
			waiting := 0
			for _, name := range names {
				if e := all[name].Status.Environments["staging"]; e != nil && e.Promotion != nil && e.Promotion.Revision == revision {
					waiting++
				}
			}
			return waiting == n
		})
		pause(settle)
		sent, last, _ := receiver.received()
		s.g.Expect(sent).To(BeNumerically("<", before+n), "the stop came too late to show anything")
		late = append(late, max(last.Sub(stopped), 0))
		s.g.Expect(admin.Delete(t.Context(), w)).To(Succeed())
		released := time.Now()
		s.g.Eventually(func() int { sent, _, _ := receiver.received(); return sent }).WithTimeout(patience).WithPolling(10 * time.Millisecond).Should(Equal(before + n))
		fmt.Fprintf(os.Stderr, "| stop %d: %d of %d were sent before it; the rest within, after it was deleted | %.1f s | – | |\n", trial+1, sent-before, n, time.Since(released).Seconds())
		_, _, doubled := receiver.received()
		s.g.Expect(doubled).To(BeEmpty())
	}
	slices.Sort(late)
	report(fmt.Sprintf("stop button over %d Pipelines, %d times: the last step begins after it at most", n, trials), float64(late[len(late)-1].Milliseconds()), 1000, "ms")

	s.stoppedByLabel(receiver, names[0])

	// All wait for gates: a soak that counts, and four windows.
	window := func(name string, kind pipelinesv1.WindowType) pipelinesv1.Window {
		return pipelinesv1.Window{Name: name, WindowSpec: pipelinesv1.WindowSpec{Type: kind, Schedule: "0 0 * * *", Duration: "24h", TimeZone: "Europe/Riga"}}
	}
	never := pipelinesv1.Window{Name: "never", WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, Reason: "test"}}
	gates := &pipelinesv1.Gates{Soak: &pipelinesv1.Soak{For: "40m"}, Windows: []pipelinesv1.Window{
		window("all-day", pipelinesv1.AllowWindow), window("as-well", pipelinesv1.AllowWindow), never,
		{Name: "later", WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, From: "2100-01-01T00:00:00Z"}},
	}}
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"gates": gates}})
	s.g.Expect(err).NotTo(HaveOccurred())
	each(names, func(name string) {
		p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
		s.g.Expect(admin.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", raw))).To(Succeed())
	})
	for app := range n {
		s.clusters[0].Deploy(app, "8.0.0")
	}
	s.until("all wait for gates", func(all map[string]*pipelinesv1.Pipeline) bool {
		for _, name := range names {
			if e := all[name].Status.Environments["staging"]; e.Promotion == nil || e.Promotion.Revision != "8.0.0" || e.Promotion.Phase != string(capstanv1.PhaseAwaitingGates) {
				return false
			}
		}
		return true
	})
	pause(2 * settle)
	cpu, promotionWrites, pipelineWrites := h.cpu(), s.answered(writesOfPromotions), s.answered(writesOfPipelines)
	pause(waits)
	report(fmt.Sprintf("%d promotions wait for 5 gates each, idle", n), 100*(h.cpu()-cpu)/waits.Seconds(), 1, "% of a CPU")
	report("the same, writes of Promotions", float64(s.answered(writesOfPromotions)-promotionWrites), 0, "")
	budget := math.Inf(1)
	if *full {
		budget = 3.4
	}
	report("the same, writes of soak sums", float64(s.answered(writesOfPipelines)-pipelineWrites)/waits.Seconds(), budget, "/s")
	s.g.Expect(s.answered(writesOfPromotions)).To(Equal(promotionWrites))
	sent, _, _ = receiver.received()
	s.g.Expect(sent).To(Equal(trials*n+1), "nothing is sent while a gate is closed")
}

// stop creates a PromotionWindow that stops all promotions in the namespaces. The end of the test deletes it, if the
// test did not.
func (s *scene) stop(name string, namespaces *metav1.LabelSelector) *capstanv1.PromotionWindow {
	s.Helper()
	w := &capstanv1.PromotionWindow{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: capstanv1.PromotionWindowSpec{
		WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, Reason: "incident 4711"}, NamespaceSelector: namespaces,
	}}
	s.g.Expect(admin.Create(s.Context(), w)).To(Succeed())
	s.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(s.Context()), w) })
	return w
}

// stoppedByLabel stops a promotion by a label of its namespace, and continues it by removing the label.
// No object of the hub changes.
func (s *scene) stoppedByLabel(receiver *inbox, name string) {
	s.Helper()
	label := func(value string) {
		raw := fmt.Appendf(nil, `{"metadata":{"labels":{"stopped":%s}}}`, value)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
		s.g.Expect(admin.Patch(s.Context(), namespace, client.RawPatch("application/merge-patch+json", raw))).To(Succeed())
	}
	w := s.stop("stop-labelled", &metav1.LabelSelector{MatchLabels: map[string]string{"stopped": "yes"}})
	label(`"yes"`)
	before, _, _ := receiver.received()
	s.clusters[0].Deploy(0, "7.99.0")
	s.until("it waits", func(all map[string]*pipelinesv1.Pipeline) bool {
		p := all[name].Status.Environments["staging"].Promotion
		return p != nil && p.Revision == "7.99.0" && p.Phase == string(capstanv1.PhaseAwaitingGates)
	})
	label("null")
	s.g.Eventually(func() int { sent, _, _ := receiver.received(); return sent }).WithTimeout(patience).Should(Equal(before + 1))
	s.g.Expect(admin.Delete(s.Context(), w)).To(Succeed())
}
