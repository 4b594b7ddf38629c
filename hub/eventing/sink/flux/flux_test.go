package flux

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

var start = time.Date(2026, 5, 6, 8, 35, 11, 0, time.UTC)

// events of a manual promotion in a phase, by kind.
func events(phase capstanv1.PromotionPhase) map[event.Kind]ce.Event {
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: start.Add(time.Duration(seconds) * time.Second)}
	}
	p := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-prod-1", UID: "uid", CreationTimestamp: *at(0)},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: "web"}, Environment: "prod", Number: 1, Revision: "1.2.0", Manual: true,
			Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}},
		},
		Status: capstanv1.PromotionStatus{Phase: phase, StartTime: at(1), GatesCloseTime: at(2)},
	}
	p.Status.Gates = []capstanv1.GateStatus{{Name: "soak", State: capstanv1.GateClosed, Reason: "Soaking", Message: "soaked 5m of 2h"}}
	if phase.Finished() {
		p.Status.FinishTime, p.Status.Reason, p.Status.Message = at(9), "BadCredentials", "the Git service refuses the token"
	}
	all := map[event.Kind]ce.Event{}
	for _, e := range (event.Hub{Name: "fleet", UID: "hub"}).Promotions(p) {
		all[event.KindOf(e)] = e
	}
	return all
}

func open(t *testing.T, url string) *Sink {
	t.Helper()
	entries, err := eventingv1.NewConfig(map[string]any{"url": url})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	c, invalid := schema.Flux("").Resolve(entries)
	NewWithT(t).Expect(invalid).To(BeEmpty())
	s, err := Open(Options{Config: c, DashboardURL: "https://capstan.example.org/", Clock: clock.RealClock{}, AllowLoopback: true})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(s.Close(t.Context())).To(Succeed()) })
	return s
}

// TestEvents: the Flux event names the Pipeline, and has the reason, the severity and the links.
func TestEvents(t *testing.T) {
	g := NewWithT(t)
	var got eventv1.Event
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = eventv1.Event{}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(server.Close)
	s := open(t, server.URL)
	g.Expect(s.Ping(t.Context())).To(Succeed())

	waiting := events(capstanv1.PhaseAwaitingApproval)[event.PromotionWaiting]
	g.Expect(s.Publish(t.Context(), event.Prefixed(waiting, "com.example"))).To(Succeed())
	g.Expect([]string{got.InvolvedObject.APIVersion, got.InvolvedObject.Kind, got.InvolvedObject.Namespace, got.InvolvedObject.Name}).To(Equal(
		[]string{"pipelines.weave.works/v1alpha1", "Pipeline", "shop", "web"}))
	g.Expect([]string{got.Reason, got.Severity, got.Message}).To(Equal([]string{"AwaitingApproval", "info", "Approval required: 1.2.0 of pipeline shop/web into prod"}))
	g.Expect(got.Timestamp.Time.Equal(waiting.Time())).To(BeTrue())
	const group = "pipelines.weave.works/"
	g.Expect(got.Metadata).To(Equal(map[string]string{
		group + "environment": "prod", group + "version": "1.2.0", group + "revision": "1.2.0", group + "promotion": "web-prod-1", group + "number": "1",
		group + "event-id": waiting.ID(), group + "token": waiting.ID(),
		group + "dashboardURL": "https://capstan.example.org/pipelines/shop/web", group + "approveURL": "https://capstan.example.org/promotions/shop/web-prod-1/approve",
	}))

	g.Expect(s.Publish(t.Context(), events(capstanv1.PhaseAwaitingGates)[event.PromotionBlocked])).To(Succeed())
	g.Expect([]string{got.Reason, got.Severity, got.Message}).To(Equal([]string{"GatesClosed", "info", "Promotion blocked by a gate: 1.2.0 of pipeline shop/web into prod\nsoaked 5m of 2h"}))
	g.Expect(s.Publish(t.Context(), events(capstanv1.PhaseFailed)[event.PromotionFailed])).To(Succeed())
	g.Expect([]string{got.Reason, got.Severity}).To(Equal([]string{"Failed", "error"}))
	g.Expect(got.Metadata).To(HaveKeyWithValue(group+"reason", "BadCredentials"))
	g.Expect(s.Publish(t.Context(), events(capstanv1.PhaseRejected)[event.PromotionRejected])).To(Succeed())
	g.Expect([]string{got.Reason, got.Severity}).To(Equal([]string{"Rejected", "error"}), "Flux has no warning")
}

// TestAnswers: notification-controller's answer to a repetition is an acknowledgement; a 429 of
// another server is not. No path of the URL is in an error.
func TestAnswers(t *testing.T) {
	g := NewWithT(t)
	var status int
	header := http.Header{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	s := open(t, server.URL+"/secret")
	e := events(capstanv1.PhaseSucceeded)[event.PromotionSucceeded]
	status = http.StatusTooManyRequests
	header.Set("Retry-After", "7")
	err := s.Publish(t.Context(), e)
	g.Expect(sink.Of(err)).To(HaveField("Class", sink.Transient))
	g.Expect(sink.Of(err).RetryAfter).To(Equal(7 * time.Second))
	g.Expect(strings.Contains(err.Error(), "secret")).To(BeFalse())
	header.Set("X-RateLimit-Limit", "1")
	g.Expect(s.Publish(t.Context(), e)).To(Succeed())
	status = http.StatusBadRequest
	g.Expect(sink.Of(s.Publish(t.Context(), e)).Class).To(Equal(sink.Refused))
	status = http.StatusServiceUnavailable
	g.Expect(sink.Of(s.Publish(t.Context(), e)).Class).To(Equal(sink.Transient))

	other := (event.Hub{Name: "fleet", UID: "hub"}).ClusterRegistered(&capstanv1.ClusterConnection{})
	err = s.Publish(t.Context(), other)
	g.Expect(sink.Of(err)).To(And(HaveField("Class", sink.Refused), HaveField("Code", "no-pipeline")))
	server.Close()
	g.Expect(sink.Of(s.Ping(t.Context())).Class).To(Equal(sink.Transient))
}

// TestReasons: each kind of event of promotions has a title and a reason of its own.
func TestReasons(t *testing.T) {
	g := NewWithT(t)
	seen := map[string]event.Kind{}
	for _, entry := range event.Catalogue() {
		if !strings.HasPrefix(string(entry.Kind), "promotion.") {
			continue
		}
		e := events(capstanv1.PhaseAwaitingApproval)[event.PromotionWaiting]
		e.SetType(event.DefaultPrefix + "." + string(entry.Kind))
		sent, err := fluxEvent(e, "")
		g.Expect(err).NotTo(HaveOccurred(), string(entry.Kind))
		g.Expect(seen).NotTo(HaveKey(sent.Reason), string(entry.Kind))
		seen[sent.Reason] = entry.Kind
	}
	g.Expect(seen).To(HaveKey("Stalled"))
}
