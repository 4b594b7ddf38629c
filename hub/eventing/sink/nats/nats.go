package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
)

// pingInterval finds a server that is gone without a word in two of them; the client's
// own default is two minutes.
const pingInterval = 20 * time.Second

// Options of a Sink.
type Options struct {
	// Config of a backend of type nats.
	Config schema.Config
	// Secret's data; nil when none is named.
	Secret map[string][]byte
	// Name of the connection, for those who look at the server.
	Name string
	// AllowLoopback lets the server be on this machine: in tests and the playground.
	AllowLoopback bool
	// Changed is told when the connection comes or goes. It must not block.
	Changed func()
}

// Sink publishes to one stream.
type Sink struct {
	options []nats.Option
	dialer  *net.Dialer
	url     string
	stream  jetstream.StreamConfig
	prefix  string
	// ready is whether the stream was seen and has not been missed since.
	ready atomic.Bool
	// denials are the messages of the server about a missing permission, and denied is
	// the newest: the call that lacks it is not answered.
	denials atomic.Int64
	denied  atomic.Value
	// lost is why the connection did not come back at the newest try.
	lost atomic.Pointer[error]

	mu          sync.Mutex
	lockedState struct {
		conn *nats.Conn
		// dial is on its way; nil for none.
		dial *dial
		// hangUp ends the newest dial and the connection that it made; nil before.
		hangUp context.CancelFunc
		closed bool
	}
}

var _ sink.Sink = &Sink{}

// Open a Sink. The error is of class wire.ErrSecret.
func Open(o Options) (*Sink, error) {
	c := o.Config
	s := &Sink{dialer: wire.Dialer(o.AllowLoopback), url: c.String("url"), prefix: c.String("subjectPrefix"), stream: streamConfig(c)}
	credentials, err := credentials(o.Secret)
	if err != nil {
		return nil, err
	}
	secure, given, err := wire.TLS(o.Secret)
	if err != nil {
		return nil, err
	}
	if given {
		credentials = append(credentials, nats.Secure(secure))
	}
	changed := func(*nats.Conn) {
		if o.Changed != nil {
			o.Changed()
		}
	}
	s.options = append(credentials,
		nats.Name(o.Name), nats.Timeout(c.Duration("requestTimeout")),
		nats.MaxReconnects(int(c.Int("maxReconnects"))), nats.ReconnectWait(c.Duration("reconnectWait")),
		nats.IgnoreAuthErrorAbort(), nats.PingInterval(pingInterval),
		nats.ReconnectBufSize(-1), // Nothing is sent later behind the publisher's back.
		nats.ConnectHandler(changed), nats.ClosedHandler(changed),
		nats.ReconnectHandler(func(c *nats.Conn) { s.lost.Store(nil); changed(c) }),
		nats.DisconnectErrHandler(func(c *nats.Conn, _ error) { changed(c) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { s.lost.Store(&err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				s.denied.Store(err.Error())
				s.denials.Add(1)
			}
		}),
	)
	return s, nil
}

// Ping asks for the stream, and makes it if it is missing.
func (s *Sink) Ping(ctx context.Context) error {
	conn, err := s.connection(ctx)
	if err != nil {
		return err
	}
	return s.ensure(ctx, conn)
}

// Publish implements sink.Sink.
func (s *Sink) Publish(ctx context.Context, e ce.Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return sink.Errorf(sink.Refused, "malformed", "the event has no JSON form: %w", err)
	}
	conn, err := s.connection(ctx)
	if err != nil {
		return err
	}
	if most := conn.MaxPayload(); int64(len(body)) > most {
		return sink.Errorf(sink.TooLarge, sink.CodeTooLarge, "%d bytes are more than the %d that the server takes", len(body), most)
	}
	if !s.ready.Load() {
		if err := s.ensure(ctx, conn); err != nil {
			return err
		}
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return s.class(err, s.denials.Load())
	}
	denials := s.denials.Load()
	message := &nats.Msg{
		Subject: s.subject(e), Data: body,
		Header: nats.Header{"Content-Type": {ce.ApplicationCloudEventsJSON}},
	}
	_, err = js.PublishMsg(ctx, message, jetstream.WithMsgID(e.ID()), jetstream.WithExpectStream(s.stream.Name), jetstream.WithRetryAttempts(0))
	if err != nil {
		return s.class(err, denials)
	}
	return nil
}

// subject of an event: of the hub's own by their kind, of any other by its type.
func (s *Sink) subject(e ce.Event) string {
	if k := event.KindOf(e); k != "" {
		return s.prefix + "." + string(k)
	}
	return s.prefix + "." + e.Type()
}

// ensure that the stream is there and is as configured.
func (s *Sink) ensure(ctx context.Context, conn *nats.Conn) error {
	js, err := jetstream.New(conn)
	if err != nil {
		return s.class(err, s.denials.Load())
	}
	denials := s.denials.Load()
	stream, err := js.Stream(ctx, s.stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, s.stream)
		if err == nil {
			s.ready.Store(true)
			return nil
		}
	}
	if err != nil {
		return s.class(err, denials)
	}
	found := stream.CachedInfo().Config
	if err := fits(found, s.stream); err != nil {
		return err
	}
	if wanted := merged(found, s.stream); wanted != nil {
		if _, err := js.UpdateStream(ctx, *wanted); err != nil {
			return s.class(err, denials)
		}
	}
	s.ready.Store(true)
	return nil
}

// Error codes of the server that the client has no names for.
const (
	codeResources      jetstream.ErrorCode = 10002 // of the account
	codeInsufficient   jetstream.ErrorCode = 10023
	codeMemory         jetstream.ErrorCode = 10028
	codeStorage        jetstream.ErrorCode = 10047
	codeStoreFailed    jetstream.ErrorCode = 10077 // maximum bytes or messages exceeded
	codeExpectedStream jetstream.ErrorCode = 10060
)

// class of an error of the server or client; denials were there before the call.
func (s *Sink) class(err error, denials int64) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return sink.Errorf(sink.TooLarge, sink.CodeTooLarge, "%w", err)
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, jetstream.ErrStreamNotFound):
		s.ready.Store(false)
		return sink.Errorf(sink.Unavailable, "no-stream", "stream %s does not answer: it, or JetStream, is not there", s.stream.Name)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		s.ready.Store(false)
		return sink.Errorf(sink.Unavailable, "no-jetstream", "the server has JetStream disabled, or has it for other accounts: %w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		if s.denials.Load() > denials {
			return sink.Errorf(sink.Unavailable, sink.CodeForbidden, "the user lacks a permission: %v", s.denied.Load())
		}
		return sink.Errorf(sink.Transient, sink.CodeTimeout, "stream %s did not answer in time", s.stream.Name)
	case errors.As(err, &api):
		return s.refusal(api)
	}
	return sink.Errorf(sink.Transient, sink.CodeUnreachable, "%w", err)
}

// refusal is what JetStream itself says.
func (s *Sink) refusal(err *jetstream.APIError) error {
	switch err.ErrorCode { //nolint:exhaustive // The rest is below.
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return sink.Errorf(sink.TooLarge, sink.CodeTooLarge, "%w", err)
	case codeResources, codeInsufficient, codeMemory, codeStorage, codeStoreFailed:
		return sink.Errorf(sink.Unavailable, "stream-full", "stream %s takes no more: %s; make room, or raise streamMaxBytes or streamMaxMsgs", s.stream.Name, err.Description)
	case codeExpectedStream:
		return sink.Errorf(sink.Unavailable, "stream-mismatch", "the subjects %s.> go to another stream than %s", s.prefix, s.stream.Name)
	}
	if err.Code >= 500 {
		return sink.Errorf(sink.Transient, fmt.Sprint("jetstream-", err.ErrorCode), "%w", err)
	}
	return sink.Errorf(sink.Unavailable, fmt.Sprint("jetstream-", err.ErrorCode), "the server refuses stream %s as it is configured: %s", s.stream.Name, strings.TrimSpace(err.Description))
}
