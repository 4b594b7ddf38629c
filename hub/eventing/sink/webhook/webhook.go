package webhook

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
	"github.com/capstan-hub/capstan/internal/allowedhosts"
)

// Keys of the Secret.
const (
	keyToken    = "token"
	keyUsername = "username"
	keyPassword = "password"
	keyHMAC     = "hmac-key"
	keyPrevious = "hmac-key-previous"
)

// Headers of the abuse protection of CloudEvents webhooks.
const (
	requestOrigin = "WebHook-Request-Origin"
	allowedOrigin = "WebHook-Allowed-Origin"
)

// Options of a Sink.
type Options struct {
	// Config of a backend of type http.
	Config schema.Config
	// Secret is the data of the Secret; nil if secretRef is not set.
	Secret map[string][]byte
	// Hosts to which the credentials of the Secret may be sent.
	Hosts allowedhosts.Rule
	// Origin that the receiver must allow: the name of the hub.
	Origin string
	Clock  clock.PassiveClock
	// AllowLoopback allows addresses of this machine: for tests and the playground.
	AllowLoopback bool
}

// Sink posts to one URL.
type Sink struct {
	o         Options
	endpoint  *wire.Endpoint
	authorize func(*http.Request)
	sign      signer
	// allowed is set when the receiver has given its permission.
	allowed atomic.Bool
}

var _ sink.Sink = &Sink{}

// Open makes a Sink without a connection. The error is of class wire.ErrSecret.
func Open(o Options) (*Sink, error) {
	if err := wire.CheckHosts(o.Hosts, o.Config.String("url"), o.Config.String("proxyUrl")); err != nil {
		return nil, err
	}
	endpoint, err := wire.NewEndpoint(wire.EndpointOptions{
		URL: o.Config.String("url"), Proxy: o.Config.String("proxyUrl"), Secret: o.Secret,
		Connections: int(o.Config.Int("maxInFlightMessages")), AllowLoopback: o.AllowLoopback,
	})
	if err != nil {
		return nil, err
	}
	s := &Sink{o: o, endpoint: endpoint}
	if s.sign, err = signature(o.Config.String("signature"), o.Secret); err != nil {
		return nil, err
	}
	if s.authorize, err = authorization(o.Secret); err != nil {
		return nil, err
	}
	return s, nil
}

// authorization returns a function that adds the credentials of the Secret to a call.
func authorization(secret map[string][]byte) (func(*http.Request), error) {
	token, user := strings.TrimSpace(string(secret[keyToken])), strings.TrimSpace(string(secret[keyUsername]))
	switch {
	case token != "" && user != "":
		return nil, wire.Secretf(keyToken, "and key %s are both set; remove one of them", keyUsername)
	case token != "":
		if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, wire.Secretf(keyToken, "contains characters that are not allowed in a token; only printable ASCII without spaces is")
		}
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }, nil
	case user != "":
		password := string(secret[keyPassword])
		if password == "" {
			return nil, wire.Secretf(keyPassword, "is missing: %s needs it", keyUsername)
		}
		return func(r *http.Request) { r.SetBasicAuth(user, password) }, nil
	}
	return func(*http.Request) {}, nil
}

// Ping requests the permission of the receiver with abuseProtection, and otherwise connects to
// it.
func (s *Sink) Ping(ctx context.Context) error {
	if s.o.Config.Bool("abuseProtection") {
		return s.handshake(ctx)
	}
	return s.endpoint.Connect(ctx)
}

// handshake requests the permission of the receiver and keeps the result.
func (s *Sink) handshake(ctx context.Context) error {
	err := s.permission(ctx)
	s.allowed.Store(err == nil) // A receiver may withdraw its permission.
	return err
}

// permission returns nil if the receiver allows events of this origin.
func (s *Sink) permission(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodOptions, s.endpoint.URL.String(), nil)
	if err != nil {
		return wire.CallError(s.endpoint.URL.Host, err)
	}
	request.Header.Set(requestOrigin, s.o.Origin)
	s.authorize(request)
	answer, err := wire.Do(s.endpoint.Client, request, s.o.Clock)
	if err != nil {
		return err
	}
	if origin := answer.Get(allowedOrigin); origin != "*" && !strings.EqualFold(origin, s.o.Origin) {
		return sink.Errorf(sink.Unavailable, "not-allowed", "%s does not allow events of origin %s: it must answer OPTIONS with the header %s", s.endpoint.URL.Host, s.o.Origin, allowedOrigin)
	}
	return nil
}

// Publish implements sink.Sink.
func (s *Sink) Publish(ctx context.Context, e ce.Event) error {
	if s.o.Config.Bool("abuseProtection") && !s.allowed.Load() {
		if err := s.handshake(ctx); err != nil {
			return err
		}
	}
	request, body, err := wire.Request(ctx, s.endpoint.URL, e, s.o.Config.String("contentMode") == "structured")
	if err != nil {
		return err
	}
	s.authorize(request)
	if err := s.sign(request, e.ID(), s.o.Clock.Now(), body); err != nil {
		return err
	}
	_, err = wire.Do(s.endpoint.Client, request, s.o.Clock)
	return err
}

// Close implements sink.Sink.
func (s *Sink) Close(context.Context) error {
	s.endpoint.Close()
	return nil
}
