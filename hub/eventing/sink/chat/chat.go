package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
	"github.com/capstan-hub/capstan/internal/messagetemplate"
)

const (
	// keyURL is the key of the Secret.
	keyURL = "url"
	// maxURL bounds the address of a webhook, in bytes. Those of workflows have about 400.
	maxURL = 4096
	// maxAnswer is how many bytes of an answer a Service gets, to recognize its error codes.
	maxAnswer = 256
)

// Service is one chat service.
type Service struct {
	// Escape returns a value so that the service's markup shows it literally.
	Escape func(string) string
	// EscapeURL returns a URL so that the service's markup of links accepts it.
	EscapeURL func(string) string
	// Body returns the document to post, which is encoded as JSON.
	Body func(Message) any
	// Check returns the error for an answer; nil when the service accepted the message. err is
	// that of package wire; nil for 2xx. body is the beginning of the answer, which must not be
	// part of an error.
	Check func(host string, status int, body string, err *sink.Error) *sink.Error
}

// Options of a Sink.
type Options struct {
	Service Service
	// Config of a backend of a type with the keys template and proxyUrl.
	Config schema.Config
	// Secret is the data of the Secret.
	Secret map[string][]byte
	// DashboardURL is the external address of the dashboard, for links; empty for none.
	DashboardURL string
	Clock        clock.PassiveClock
	// AllowLoopback allows addresses of this machine: for tests and the playground.
	AllowLoopback bool
}

// Sink posts to one webhook.
type Sink struct {
	o        Options
	endpoint *wire.Endpoint
	// template is nil for the default text.
	template *messagetemplate.Template
}

var _ sink.Sink = &Sink{}

// Open makes a Sink without a connection. The error is of class wire.ErrSecret, or about the
// template.
func Open(o Options) (*Sink, error) {
	address, err := address(o.Secret)
	if err != nil {
		return nil, err
	}
	s := &Sink{o: o}
	if s.endpoint, err = wire.NewEndpoint(wire.EndpointOptions{
		URL: address, Proxy: o.Config.String("proxyUrl"), Secret: o.Secret,
		Connections: int(o.Config.Int("maxInFlightMessages")), AllowLoopback: o.AllowLoopback,
	}); err != nil {
		return nil, err
	}
	if text := o.Config.String("template"); text != "" {
		if s.template, err = messagetemplate.Parse(text); err != nil {
			return nil, err // The schema has checked it.
		}
	}
	return s, nil
}

// address returns the webhook's URL in a Secret. No error contains a part of it.
func address(secret map[string][]byte) (string, error) {
	text := strings.TrimSpace(string(secret[keyURL]))
	if text == "" {
		return "", wire.Secretf(keyURL, "is missing: it must be the address of the webhook")
	}
	if len(text) > maxURL {
		return "", wire.Secretf(keyURL, "is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return "", wire.Secretf(keyURL, "must be one https URL without user and fragment")
	}
	return text, nil
}

// Ping connects to the service: a webhook has no request that posts no message.
func (s *Sink) Ping(ctx context.Context) error { return s.endpoint.Connect(ctx) }

// Publish implements sink.Sink.
func (s *Sink) Publish(ctx context.Context, e ce.Event) error {
	m, err := s.message(e)
	if err != nil {
		return err
	}
	body, err := encode(s.o.Service.Body(m))
	if err != nil {
		return sink.Errorf(sink.Refused, "malformed", "encoding the message of event %s: %w", e.ID(), err)
	}
	request, err := wire.Post(ctx, s.endpoint.URL, "application/json", body)
	if err != nil {
		return err
	}
	answer, text, err := wire.SendAndRead(s.endpoint.Client, request, maxAnswer) //nolint:bodyclose // It is closed.
	if err != nil {
		return err
	}
	return s.check(answer, string(text))
}

// encode a document as JSON. <, > and & stay as they are, because chat services limit the bytes.
func encode(document any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(document)
	return b.Bytes(), err
}

// check an answer.
func (s *Sink) check(answer *http.Response, body string) error {
	host := s.endpoint.URL.Host
	var known *sink.Error
	if answer.StatusCode/100 != 2 {
		known = sink.Of(wire.StatusError(host, answer, s.o.Clock))
	}
	if known = s.o.Service.Check(host, answer.StatusCode, strings.TrimSpace(body), known); known != nil {
		return known
	}
	return nil
}

// Close implements sink.Sink.
func (s *Sink) Close(context.Context) error {
	s.endpoint.Close()
	return nil
}
