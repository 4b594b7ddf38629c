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
	"github.com/capstan-hub/capstan/internal/allowedhosts"
)

// pingInterval is the time between two pings: a server that no longer answers is detected
// after two intervals. The client's default is two minutes.
const pingInterval = 20 * time.Second

// Options of a Sink.
type Options struct {
	// Config of a backend of type nats.
	Config schema.Config
	// Secret is the data of the Secret; nil if secretRef is not set.
	Secret map[string][]byte
	// Hosts to which the credentials of the Secret may be sent.
	Hosts allowedhosts.Rule
	// Name of the connection, as the server shows it.
	Name string
	// Owner of a stream that this backend creates: hub/namespace/name, unique among all hubs.
	Owner string
	// AllowLoopback allows addresses of this machine: for tests and the playground.
	AllowLoopback bool
	// Changed is called when the connection is made or lost. It must not block.
	Changed func()
}

// Sink publishes to one stream.
type Sink struct {
	options []nats.Option
	dialer  *net.Dialer
	url     string
	stream  jetstream.StreamConfig
	prefix  string
	// ready is set when the stream was checked, until it is missing.
	ready atomic.Bool
	// adopts is set when this Sink has tried to become the owner of a stream without one.
	adopts atomic.Bool
	// denials counts the server's messages about missing permissions; denied is the newest.
	// The server sends them instead of an answer to the call.
	denials atomic.Int64
	denied  atomic.Value
	// lost is the error of the last failed reconnect.
	lost atomic.Pointer[error]

	mu          sync.Mutex
	lockedState struct {
		conn *nats.Conn
		// dial is in progress; nil for none.
		dial *dial
		// hangUp ends the newest dial and the connection that it made; nil before.
		hangUp context.CancelFunc
		closed bool
	}
}

var _ sink.Sink = &Sink{}

// Open makes a Sink without a connection. The error is of class wire.ErrSecret.
func Open(o Options) (*Sink, error) {
	c := o.Config
	if err := wire.CheckHosts(o.Hosts, strings.Split(c.String("url"), ",")...); err != nil {
		return nil, err
	}
	s := &Sink{dialer: wire.Dialer(o.AllowLoopback), url: c.String("url"), prefix: c.String("subjectPrefix"), stream: streamConfig(c, o.Owner)}
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
		nats.ReconnectBufSize(-1), // No buffer: only the publisher sends events again.
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

// Ping reads the stream, and creates it if it is missing.
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
		return sink.Errorf(sink.TooLarge, sink.CodeTooLarge, "the event has %d bytes; the server accepts at most %d", len(body), most)
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

// subject returns the subject of an event: by kind for the hub's own events, by type for others.
func (s *Sink) subject(e ce.Event) string {
	if k := event.KindOf(e); k != "" {
		return s.prefix + "." + string(k)
	}
	return s.prefix + "." + e.Type()
}

// ensure that the stream exists and is as configured.
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
		s.ready.Store(false) // The stream may have changed.
		return err
	}
	// Without the right to change streams, each try would wait for an answer in vain.
	if update, needed := merged(found, s.stream); update != nil && (needed || s.adopts.CompareAndSwap(false, true)) {
		_, err := js.UpdateStream(ctx, *update)
		switch {
		case err != nil && needed:
			return s.class(err, denials)
		case err != nil && s.denials.Load() == denials:
			s.adopts.Store(false) // It may succeed at the next ping.
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

// class maps an error of the server or the client to an Error. denials is the count before the
// call.
func (s *Sink) class(err error, denials int64) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return sink.Errorf(sink.TooLarge, sink.CodeTooLarge, "%w", err)
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, jetstream.ErrStreamNotFound):
		s.ready.Store(false)
		return sink.Errorf(sink.Unavailable, "no-stream", "stream %s does not answer: it does not exist, or JetStream is not available", s.stream.Name)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		s.ready.Store(false)
		return sink.Errorf(sink.Unavailable, "no-jetstream", "JetStream is not enabled on the server, or not for this account: %w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		if s.denials.Load() > denials {
			return sink.Errorf(sink.Unavailable, sink.CodeForbidden, "the user in the Secret lacks a permission: %v", s.denied.Load())
		}
		return sink.Errorf(sink.Transient, sink.CodeTimeout, "stream %s did not answer in time", s.stream.Name)
	case errors.As(err, &api):
		return s.refusal(api)
	}
	return sink.Errorf(sink.Transient, sink.CodeUnreachable, "%w", err)
}

// refusal maps an error of JetStream's API to an Error.
func (s *Sink) refusal(err *jetstream.APIError) error {
	switch err.ErrorCode { //nolint:exhaustive // The other codes are below.
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return sink.Errorf(sink.TooLarge, sink.CodeTooLarge, "%w", err)
	case codeResources, codeInsufficient, codeMemory, codeStorage, codeStoreFailed:
		return sink.Errorf(sink.Unavailable, "stream-full", "stream %s is full: %s; delete messages, or raise streamMaxBytes or streamMaxMsgs", s.stream.Name, err.Description)
	case codeExpectedStream:
		return sink.Errorf(sink.Unavailable, "stream-mismatch", "another stream than %[2]s takes the subjects %[1]s.>; choose another subjectPrefix or streamName", s.prefix, s.stream.Name)
	}
	if err.Code >= 500 {
		return sink.Errorf(sink.Transient, fmt.Sprint("jetstream-", err.ErrorCode), "%w", err)
	}
	return sink.Errorf(sink.Unavailable, fmt.Sprint("jetstream-", err.ErrorCode), "the server rejects the configuration of stream %s: %s", s.stream.Name, strings.TrimSpace(err.Description))
}
