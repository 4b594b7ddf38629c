package flux

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	ce "github.com/cloudevents/sdk-go/v2/event"
	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/notice"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
)

// controller is the reporting controller of the Flux events, the same as of those that strategy
// notification posts.
const controller = "capstan"

// limitHeader is in each answer of notification-controller to an event. It limits equal events.
const limitHeader = "X-RateLimit-Limit"

// Options of a Sink.
type Options struct {
	// Config of a backend of type flux.
	Config schema.Config
	// DashboardURL is the external address of the dashboard, for links; empty for none.
	DashboardURL string
	Clock        clock.PassiveClock
	// AllowLoopback allows addresses of this machine: for tests and the playground.
	AllowLoopback bool
}

// Sink posts to one notification-controller.
type Sink struct {
	o        Options
	endpoint *wire.Endpoint
}

var _ sink.Sink = &Sink{}

// Open makes a Sink without a connection.
func Open(o Options) (*Sink, error) {
	endpoint, err := wire.NewEndpoint(wire.EndpointOptions{
		URL: o.Config.String("url"), Connections: int(o.Config.Int("maxInFlightMessages")), AllowLoopback: o.AllowLoopback,
	})
	if err != nil {
		return nil, err
	}
	return &Sink{o: o, endpoint: endpoint}, nil
}

// Ping connects to notification-controller: it has no request that has no effect.
func (s *Sink) Ping(ctx context.Context) error { return s.endpoint.Connect(ctx) }

// Publish implements sink.Sink.
func (s *Sink) Publish(ctx context.Context, e ce.Event) error {
	sent, err := fluxEvent(e, s.o.DashboardURL)
	if err != nil {
		return err
	}
	body, err := json.Marshal(sent)
	if err != nil {
		return sink.Errorf(sink.Refused, "malformed", "encoding event %s as a Flux event: %w", e.ID(), err)
	}
	request, err := wire.Post(ctx, s.endpoint.URL, "application/json", body)
	if err != nil {
		return err
	}
	answer, err := wire.Send(s.endpoint.Client, request) //nolint:bodyclose // It is closed.
	switch {
	case err != nil:
		return err
	case answer.StatusCode/100 == 2, answer.StatusCode == http.StatusTooManyRequests && answer.Header.Get(limitHeader) != "":
		return nil
	}
	return wire.StatusError(s.endpoint.URL.Host, answer, s.o.Clock)
}

// Close implements sink.Sink.
func (s *Sink) Close(context.Context) error {
	s.endpoint.Close()
	return nil
}

// fluxEvent returns the Flux event of an event of a promotion, equal for equal ids.
func fluxEvent(e ce.Event, dashboard string) (*eventv1.Event, error) {
	n, err := notice.Of(e, dashboard)
	if err != nil {
		return nil, sink.Errorf(sink.Refused, "malformed", "%w", err)
	}
	p := n.Promotion
	if p == nil {
		return nil, sink.Errorf(sink.Refused, "no-pipeline", "event %s of type %s is not about a promotion: Flux has no object for it; exclude it with eventTypes", e.ID(), e.Type())
	}
	sent := &eventv1.Event{
		InvolvedObject: corev1.ObjectReference{
			APIVersion: pipelinesv1.GroupVersion.String(), Kind: pipelinesv1.PipelineKind, Namespace: p.Namespace, Name: p.Pipeline,
		},
		Severity:            severity(n.Severity),
		Timestamp:           metav1.NewTime(n.Time),
		Message:             n.Title,
		Reason:              reason(n.Kind),
		ReportingController: controller,
		ReportingInstance:   controller,
		Metadata:            map[string]string{},
	}
	if n.Text != "" {
		sent.Message += "\n" + n.Text
	}
	for name, value := range map[string]string{
		"environment": p.ToEnvironment, "version": p.Revision, eventv1.MetaRevisionKey: p.Revision, "promotion": p.Promotion,
		"number": strconv.FormatInt(p.Number, 10), "reason": n.Reason, "pullRequestURL": n.PullRequestURL,
		"dashboardURL": n.URL, "approveURL": n.ApproveURL, "event-id": n.ID, eventv1.MetaTokenKey: n.ID,
	} {
		if value != "" {
			sent.Metadata[pipelinesv1.GroupVersion.Group+"/"+name] = value
		}
	}
	return sent, nil
}

// severity of Flux, which has no warning.
func severity(s event.Severity) string {
	if s == event.Info {
		return eventv1.EventSeverityInfo
	}
	return eventv1.EventSeverityError
}

// reasons of the Flux events whose kind is not the reason in CamelCase, and those that are the
// name of a phase or a term of docs/promotion-life.md.
var reasons = map[event.Kind]string{ //nolint:exhaustive // The others have the word of their kind.
	event.PromotionDetected:   "PromotionCreated",
	event.PromotionRolledBack: "RollbackCreated",
	event.PromotionBlocked:    "GatesClosed",
	event.PromotionUnblocked:  "GatesOpen",
	event.PromotionOverridden: "GateOverridden",
	event.PromotionWaiting:    "AwaitingApproval",
}

// reason returns the reason of a Flux event.
func reason(k event.Kind) string {
	if name, ok := reasons[k]; ok {
		return name
	}
	operation := strings.Split(string(k), ".")[1] // The catalogue has three parts in each kind.
	return strings.ToUpper(operation[:1]) + operation[1:]
}
