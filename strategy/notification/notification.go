package notification

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/backoff"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/strategy"
)

const (
	// Reason of the event.
	Reason = "Promote"

	// Component that reports the event.
	Component = "capstan"

	// deadline of one delivery. A receiver on the same network answers in milliseconds; after
	// the deadline it counts as unreachable.
	deadline = 15 * time.Second

	// dialTimeout and keepAlive of a connection: those of http.DefaultTransport.
	dialTimeout = 30 * time.Second
	keepAlive   = 30 * time.Second

	// maxAnswer is how many bytes of an error answer are shown.
	maxAnswer = 256
)

// Metadata keys of the Flux event, with the prefix that notification-controller requires.
var (
	KeyEnvironment = key("environment")
	KeyVersion     = key("version")
	KeyRevision    = key("revision")
	// KeyClusters has the clusters of a wave, as namespace/name, separated by commas; only of environments with waves.
	KeyClusters = key("clusters")
	// KeyPromotionID has the identity by which a receiver detects a repetition.
	KeyPromotionID = key("promotion-id")
	// keyToken makes notification-controller distinguish two promotions of one revision when
	// it drops duplicates (internal/server, eventKeyFunc).
	keyToken = key(eventv1.MetaTokenKey)
)

func key(name string) string { return pipelinesv1.GroupVersion.Group + "/" + name }

// Options of the strategy.
type Options struct {
	// Client writes the Kubernetes Event.
	Client client.Client
	// Address to which Flux events are posted, like --events-addr of Flux; empty for none.
	Address string
	// HTTPClient for Address. If nil, a client that refuses the addresses that
	// internal/netguard forbids, except loopback. Deadlines come from the context.
	HTTPClient *http.Client
}

// Strategy publishes promotions.
type Strategy struct{ o Options }

var _ strategy.Strategy = &Strategy{}

// New makes the strategy.
func New(o Options) *Strategy {
	if o.HTTPClient == nil {
		o.HTTPClient = newHTTPClient()
	}
	return &Strategy{o: o}
}

// newHTTPClient returns a client with net/http's settings that dials no forbidden
// address. The administrator sets --events-addr, but the receiver may redirect a call.
// Loopback is allowed: the receiver may run next to the hub.
func newHTTPClient() *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive, Control: netguard.Policy{AllowLoopback: true}.Control}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = dialer.DialContext
	return &http.Client{Transport: t}
}

// Name implements strategy.Strategy.
func (*Strategy) Name() string { return "notification" }

// Handles implements strategy.Strategy.
func (*Strategy) Handles(s pipelinesv1.Strategy) bool { return s.Notification != nil }

// Deadline implements strategy.Strategy.
func (*Strategy) Deadline() time.Duration { return deadline }

// Promote posts the Flux event first and creates the Kubernetes Event last, so that the
// Kubernetes Event is evidence that the receiver accepted the Flux event.
func (s *Strategy) Promote(ctx context.Context, p *capstanv1.Promotion, permit strategy.Permit) (strategy.Result, error) {
	if err := permit(ctx, strategy.StepNotify); err != nil {
		return strategy.Result{}, err
	}
	if s.o.Address != "" {
		if err := s.post(ctx, p); err != nil {
			return strategy.Result{}, err
		}
	}
	if err := s.record(ctx, p); err != nil {
		return strategy.Result{}, err
	}
	message := "Notification sent"
	if s.o.Address == "" {
		message += " as a Kubernetes Event only, because --events-addr is not set"
	}
	return strategy.Result{State: strategy.Done, Message: message}, nil
}

// Message returns the message of the event, with exactly weave's text.
func Message(p *capstanv1.Promotion) string {
	return fmt.Sprintf("Promote pipeline %s/%s to %s with version %s", p.Namespace, p.Spec.Pipeline.Name, p.Spec.Environment, p.Spec.Revision)
}

func (s *Strategy) post(ctx context.Context, p *capstanv1.Promotion) error {
	body, err := json.Marshal(fluxEvent(p))
	if err != nil {
		return fmt.Errorf("encoding the event of promotion %s/%s: %w", p.Namespace, p.Name, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.o.Address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("--events-addr: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.o.HTTPClient.Do(request)
	if err != nil {
		return fmt.Errorf("posting to --events-addr: %w", err)
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return accepted(response, string(answer), p)
}

// accepted returns nil if the receiver has accepted the event.
func accepted(response *http.Response, answer string, p *capstanv1.Promotion) error {
	switch {
	case response.StatusCode >= 200 && response.StatusCode < 300:
		return nil
	case response.StatusCode == http.StatusTooManyRequests && p.Status.Attempt != nil && p.Status.Attempt.Number > 1:
		// notification-controller answers a repetition of an accepted event with this status.
		// The token in the metadata ensures that it was the same promotion.
		return nil
	}
	err := fmt.Errorf("--events-addr answered %s: %q", response.Status, strings.ToValidUTF8(answer, ""))
	// A date is relative to the Date of the answer, or to the hub's clock if it has none.
	if after, _ := backoff.RetryAfter(response.Header, time.Now()); after > 0 {
		return &strategy.RetryAfterError{After: after, Err: err}
	}
	return err
}

// fluxEvent returns the Flux event, equal to the byte for one identity.
func fluxEvent(p *capstanv1.Promotion) *eventv1.Event {
	id := strategy.Identity(p)
	sent := &eventv1.Event{
		InvolvedObject:      involved(p),
		Severity:            eventv1.EventSeverityInfo,
		Timestamp:           startTime(p),
		Message:             Message(p),
		Reason:              Reason,
		ReportingController: Component,
		ReportingInstance:   Component,
		Metadata: map[string]string{
			KeyEnvironment: p.Spec.Environment,
			KeyVersion:     p.Spec.Revision,
			KeyRevision:    p.Spec.Revision,
			KeyPromotionID: id,
			keyToken:       id,
		},
	}
	if p.Spec.Wave != nil {
		sent.Metadata[KeyClusters] = strings.Join(p.Spec.Wave.Clusters, ",")
	}
	return sent
}

// startTime returns the time of both events: the start of the promotion, not of the attempt, so
// that a repetition is the same event.
func startTime(p *capstanv1.Promotion) metav1.Time {
	if p.Status.StartTime != nil {
		return *p.Status.StartTime
	}
	return p.CreationTimestamp
}

func involved(p *capstanv1.Promotion) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: pipelinesv1.GroupVersion.String(),
		Kind:       pipelinesv1.PipelineKind,
		Namespace:  p.Namespace,
		Name:       p.Spec.Pipeline.Name,
		UID:        p.Spec.Pipeline.UID,
	}
}

func (s *Strategy) record(ctx context.Context, p *capstanv1.Promotion) error {
	now := startTime(p)
	sum := sha256.Sum256([]byte(strategy.Identity(p)))
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   p.Namespace,
			Name:        "promote-" + hex.EncodeToString(sum[:8]),
			Annotations: map[string]string{KeyEnvironment: p.Spec.Environment, KeyRevision: p.Spec.Revision, KeyPromotionID: strategy.Identity(p)},
		},
		InvolvedObject:      involved(p),
		Type:                corev1.EventTypeNormal,
		Reason:              Reason,
		Message:             Message(p),
		Source:              corev1.EventSource{Component: Component},
		ReportingController: Component,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
	if err := s.o.Client.Create(ctx, event); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("recording Event %s/%s: %w", event.Namespace, event.Name, err)
	}
	return nil
}
