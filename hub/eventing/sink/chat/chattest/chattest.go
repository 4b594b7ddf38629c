// Package chattest has what the tests of chat sinks share: events of a promotion, and a webhook as a
// real HTTPS server.
//
// Locking: a Webhook has a mutex for what it received; no I/O happens under it.
package chattest

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink/chat"
)

// Canary is a part of the address of each Webhook.
const Canary = "S3CR3T-CANARY"

// Dashboard is the address of the dashboard.
const Dashboard = "https://capstan.example.org"

var start = time.Date(2026, 5, 6, 8, 35, 11, 0, time.UTC)

// Promotion returns a manual promotion in a phase.
func Promotion(phase capstanv1.PromotionPhase) *capstanv1.Promotion {
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: start.Add(time.Duration(seconds) * time.Second)}
	}
	p := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-prod-1", UID: "uid", CreationTimestamp: *at(0)},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: "web"}, Environment: "prod", Number: 1, Revision: "1.2.0", Manual: true,
			Strategy: pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{}},
		},
		Status: capstanv1.PromotionStatus{Phase: phase, StartTime: at(1)},
	}
	if phase.Finished() {
		p.Status.FinishTime, p.Status.Reason, p.Status.Message = at(9), "InvalidCredentials", "the Git service refuses the token"
		p.Status.URL = "https://git.example.org/shop/fleet/pulls/7"
	}
	return p
}

// Event returns the event of a kind of a promotion; it fails the test if there is none.
func Event(t testing.TB, p *capstanv1.Promotion, kind event.Kind) ce.Event {
	t.Helper()
	for _, e := range (event.Hub{Name: "fleet", UID: "hub"}).Promotions(p) {
		if event.KindOf(e) == kind {
			return e
		}
	}
	t.Fatalf("the promotion has no event %s", kind)
	return ce.Event{}
}

// Webhook is an HTTPS server that keeps the bodies it received.
type Webhook struct {
	*httptest.Server
	answer http.HandlerFunc
	// mu guards bodies.
	mu     sync.Mutex
	bodies []string
}

// Serve starts a Webhook that ends with the test.
func Serve(t testing.TB, answer http.HandlerFunc) *Webhook {
	t.Helper()
	w := &Webhook{answer: answer}
	w.Server = httptest.NewTLSServer(w)
	t.Cleanup(w.Close)
	return w
}

// ServeHTTP implements http.Handler.
func (w *Webhook) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.bodies = append(w.bodies, string(body))
	answer := w.answer
	w.mu.Unlock()
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.URL.Path != "/"+Canary {
		to.WriteHeader(http.StatusTeapot)
		return
	}
	answer(to, r)
}

// Answer sets the handler of later requests.
func (w *Webhook) Answer(answer http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// Status answers with a status and a body.
func Status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// Bodies returns the bodies received so far.
func (w *Webhook) Bodies() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.bodies...)
}

// Last returns the last body; it fails the test if there is none.
func (w *Webhook) Last(t testing.TB) string {
	t.Helper()
	all := w.Bodies()
	if len(all) == 0 {
		t.Fatal("the webhook received nothing")
	}
	return all[len(all)-1]
}

// Secret returns the data of a Secret for the webhook.
func (w *Webhook) Secret() map[string][]byte {
	return map[string][]byte{
		"url":    []byte(w.URL + "/" + Canary + "\n"),
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw}),
	}
}

// Config returns the configuration of a backend of a schema.
func Config(t testing.TB, s schema.Schema, keys map[string]any) schema.Config {
	t.Helper()
	all := map[string]any{"secretRef": "chat"}
	for name, value := range keys {
		all[name] = value
	}
	entries, err := eventingv1.NewConfig(all)
	if err != nil {
		t.Fatal(err)
	}
	c, invalid := s.Resolve(entries)
	if len(invalid) > 0 {
		t.Fatal(invalid)
	}
	return c
}

// Open opens a sink of a service that ends with the test.
func Open(t testing.TB, service chat.Service, c schema.Config, secret map[string][]byte) *chat.Sink {
	t.Helper()
	s, err := chat.Open(chat.Options{Service: service, Config: c, Secret: secret, DashboardURL: Dashboard, Clock: clocktesting.NewFakePassiveClock(start), AllowLoopback: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
	return s
}
