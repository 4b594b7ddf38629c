package beb

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
)

const (
	// eventsPath and subscriptionsPath are below the service key's uri.
	eventsPath        = "/sap/ems/v1/events"
	subscriptionsPath = "/sap/ems/v1/events/subscriptions"
	qosHeader         = "qos"
	// maxBody is the largest body that Event Mesh accepts, in bytes.
	maxBody = 1 << 20
)

// Options of a Sink.
type Options struct {
	// Config of a backend of type beb.
	Config schema.Config
	// Secret is the data of the Secret: a service key.
	Secret map[string][]byte
	Clock  clock.PassiveClock
	// AllowLoopback allows addresses of this machine: for tests.
	AllowLoopback bool
}

// Sink posts to one messaging client of Event Mesh.
type Sink struct {
	key        serviceKey
	qos        string
	structured bool
	client     *http.Client
	tokens     *tokens
	clock      clock.PassiveClock
}

var _ sink.Sink = &Sink{}

// Open makes a Sink without a connection. The error is of class wire.ErrSecret.
func Open(o Options) (*Sink, error) {
	key, err := parse(o.Secret, o.Config.String("namespace"))
	if err != nil {
		return nil, err
	}
	secure, _, err := wire.TLS(o.Secret)
	if err != nil {
		return nil, err
	}
	client := wire.HTTPClient(wire.HTTPOptions{TLS: secure, AllowLoopback: o.AllowLoopback, Connections: int(o.Config.Int("maxInFlightMessages"))})
	return &Sink{
		key: key, qos: strings.ReplaceAll(o.Config.String("qos"), "-", "_"), structured: o.Config.String("contentMode") == "STRUCTURED",
		client: client, tokens: newTokens(key, client, o.Clock), clock: o.Clock,
	}, nil
}

// Ping gets a token and lists the subscriptions with it.
func (s *Sink) Ping(ctx context.Context) error {
	return s.call(ctx, func() (*http.Request, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.at(subscriptionsPath).String(), nil)
		if err != nil {
			return nil, wire.CallError(s.key.uri.Host, err)
		}
		return request, nil
	})
}

// Publish implements sink.Sink.
func (s *Sink) Publish(ctx context.Context, e ce.Event) error {
	e = e.Clone()
	e.SetSource("/" + strings.TrimPrefix(s.key.namespace, "/"))
	return s.call(ctx, func() (*http.Request, error) {
		request, body, err := wire.Request(ctx, s.at(eventsPath), e, s.structured)
		if err != nil {
			return nil, err
		}
		if len(body) > maxBody {
			return nil, sink.Errorf(sink.TooLarge, sink.CodeTooLarge, "the event has %d bytes; Event Mesh accepts at most %d", len(body), maxBody)
		}
		request.Header.Set(qosHeader, s.qos)
		return request, nil
	})
}

func (s *Sink) at(path string) *url.URL {
	u := *s.key.uri
	u.Path, u.RawPath, u.RawQuery = strings.TrimSuffix(u.Path, "/")+path, "", ""
	return &u
}

// call sends a request with a token, and once more with a new token if Event Mesh rejects it.
func (s *Sink) call(ctx context.Context, prepare func() (*http.Request, error)) error {
	rejected := ""
	for {
		token, err := s.tokens.get(ctx, rejected)
		if err != nil {
			return err
		}
		request, err := prepare()
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		_, err = wire.Do(s.client, request, s.clock)
		if err != nil && sink.Of(err).Code == sink.CodeUnauthorized && rejected == "" {
			rejected = token
			continue
		}
		return err
	}
}

// Close implements sink.Sink.
func (s *Sink) Close(context.Context) error {
	s.client.CloseIdleConnections()
	return nil
}
