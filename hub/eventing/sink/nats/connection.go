package nats

import (
	"context"
	"errors"
	"net"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/internal/netguard"
)

// dial is one attempt to connect. All calls that need the connection wait for it.
type dial struct {
	// done is closed when conn or err is set.
	done chan struct{}
	conn *nats.Conn
	err  error
}

var errClosed = sink.Errorf(sink.Transient, sink.CodeUnreachable, "the connection was closed")

// connection returns a connection that is up. It makes one if there is none.
func (s *Sink) connection(ctx context.Context) (*nats.Conn, error) {
	s.mu.Lock()
	state := &s.lockedState
	conn := state.conn
	switch {
	case state.closed:
		s.mu.Unlock()
		return nil, errClosed
	case conn != nil && !conn.IsClosed():
		s.mu.Unlock()
		if !conn.IsConnected() {
			return nil, s.disconnected()
		}
		return conn, nil
	case state.dial == nil:
		s.dialLocked(ctx)
	}
	d := state.dial
	s.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, notConnected(ctx.Err())
	}
}

// dialLocked starts to connect. The end of the calling context does not cancel it.
func (s *Sink) dialLocked(ctx context.Context) {
	state := &s.lockedState
	if state.hangUp != nil {
		state.hangUp()
	}
	ctx, state.hangUp = context.WithCancel(context.WithoutCancel(ctx))
	d := &dial{done: make(chan struct{})}
	state.dial = d
	go func() { // Ends when a server answers or none does; Close cancels it.
		defer close(d.done)
		conn, err := nats.Connect(s.url, append(slices.Clone(s.options), nats.SetCustomDialer(dialer{ctx, s.dialer}))...)
		s.mu.Lock()
		state.dial = nil
		closed := state.closed
		if err == nil && !closed {
			state.conn = conn
			s.lost.Store(nil)
		}
		s.mu.Unlock()
		switch {
		case closed:
			d.err = errClosed
			if err == nil {
				conn.Close()
			}
		case err != nil:
			d.err = notConnected(err)
		default:
			d.conn = conn
		}
	}()
}

// Close implements sink.Sink. Calls in progress return an error, although the stream may have
// stored their events.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	state := &s.lockedState
	conn, d := state.conn, state.dial
	state.closed = true
	s.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	if state.hangUp != nil { // It is not set any more after closed.
		state.hangUp()
	}
	if d == nil {
		return nil
	}
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dialer ends its calls and connections with a context, because the client has no context for
// them.
type dialer struct {
	ctx context.Context
	*net.Dialer
}

// Dial implements nats.CustomDialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &line{conn, context.AfterFunc(d.ctx, func() { _ = conn.Close() })}, nil
}

// line is a connection that the end of a context closes.
type line struct {
	net.Conn
	forget func() bool
}

// Close implements net.Conn.
func (l *line) Close() error {
	l.forget()
	return l.Conn.Close()
}

// disconnected returns the error while a connection is lost.
func (s *Sink) disconnected() error {
	if lost := s.lost.Load(); lost != nil {
		return notConnected(*lost)
	}
	return notConnected(nil)
}

// notConnected returns the error of a connection that is not up, by its cause.
func notConnected(cause error) error {
	switch {
	case cause == nil:
		return sink.Errorf(sink.Transient, sink.CodeUnreachable, "the hub is not connected to the server")
	case errors.Is(cause, nats.ErrAuthorization), errors.Is(cause, nats.ErrAuthExpired), errors.Is(cause, nats.ErrAuthRevoked),
		errors.Is(cause, nats.ErrAccountAuthExpired), errors.Is(cause, nats.ErrNkeysNotSupported):
		return sink.Errorf(sink.Unavailable, sink.CodeUnauthorized, "the server rejects the credentials in the Secret of secretRef: %w", cause)
	case errors.Is(cause, netguard.ErrForbidden):
		return sink.Errorf(sink.Unavailable, sink.CodeForbiddenAddress, "%w", cause)
	}
	return sink.Errorf(sink.Transient, sink.CodeUnreachable, "the hub is not connected to the server: %w", cause)
}
