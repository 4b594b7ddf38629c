package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/clusters/kubeconfig"
)

// drainBytes of a 401's body are read so that its connection can be used again.
const drainBytes = 4 << 10

// Options of a Transport.
type Options struct {
	// Server that requests may go to.
	Server *url.URL
	// Clock of LastContact and of Spread.
	Clock clock.Clock
	// Spread is the time over which parked requests are released when the gate
	// opens, so that a thousand clusters that come back together are not listened to
	// in the same moment. Zero: at once.
	Spread time.Duration
	// AllowLoopback lets it dial loopback addresses.
	AllowLoopback bool
	// Reauthenticate is called after a 401 and returns when the credentials were
	// read again, and set if they changed. Calls may overlap. Nil: a 401 is final.
	Reauthenticate func(context.Context)
	// CheckServer is called after a request got no answer and returns when the server was
	// probed, and the gate shut if it did not answer. Calls may overlap. Nil: the
	// failure is final.
	CheckServer func(context.Context)
	// AllowPatch says which PATCH requests may pass; none when nil.
	AllowPatch func(*http.Request) bool
	// Refused is told of each request that the guard refuses.
	Refused func(RefusedReason)
}

// Transport is the http.RoundTripper of one connection.
type Transport struct {
	options     Options
	gate        *gate
	connections connections
	dial        dialFunc
	// born, and contact nanoseconds after the one before it (0 never): a wall clock
	// that is put back must not make a dead cluster seem fresh, so the time keeps its
	// monotonic part.
	born    time.Time
	contact atomic.Int64
	current atomic.Pointer[credentials]
}

// credentials are swapped as one.
type credentials struct {
	generation *generation
	token      string
}

var _ http.RoundTripper = &Transport{}

// New returns a Transport with its gate shut. It does not dial.
func New(o Options, config *kubeconfig.Config) (*Transport, error) {
	t := &Transport{options: o, gate: newGate(), born: o.Clock.Now()}
	t.dial = t.connections.through(newDialer(o.AllowLoopback))
	first, err := newGeneration(config, t.dial)
	if err != nil {
		return nil, err
	}
	t.current.Store(&credentials{generation: first, token: config.Token})
	return t, nil
}

// NewLocal returns a Transport for the management cluster, whose rest.Config is
// the administrator's own and is used as it is.
func NewLocal(o Options, config *rest.Config) (*Transport, error) {
	t := &Transport{options: o, gate: newGate(), born: o.Clock.Now()}
	config = rest.CopyConfig(config)
	dial := dialFunc(config.Dial)
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	}
	t.dial = t.connections.through(dial)
	config.Dial = t.dial
	inner, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("transport to the management cluster: %w", err)
	}
	t.current.Store(&credentials{generation: &generation{roundTripper: inner}})
	return t, nil
}

// SetCredentials replaces token and client certificate. The server, its name and
// CA are those of New; Classify tells whether that is enough. One caller at a time.
func (t *Transport) SetCredentials(config *kubeconfig.Config, change kubeconfig.Change) error {
	old := t.current.Load()
	next := &credentials{generation: old.generation, token: config.Token}
	switch change {
	case kubeconfig.Same:
		return nil
	case kubeconfig.TokenOnly:
	case kubeconfig.ClientCert:
		fresh, err := newGeneration(config, t.dial)
		if err != nil {
			return err
		}
		next.generation = fresh
	case kubeconfig.Endpoint:
		return errors.New("another endpoint takes another transport")
	}
	t.current.Store(next)
	if next.generation != old.generation {
		old.generation.retire()
	}
	return nil
}

// SetOpen opens or shuts the gate.
func (t *Transport) SetOpen(open bool) { t.gate.set(open) }

// CloseConnections closes every TCP connection. Watches end and resume through the gate.
func (t *Transport) CloseConnections() { t.connections.sever(false) }

// Close ends the Transport: open streams break, parked and later requests fail
// with ErrClosed.
func (t *Transport) Close() {
	t.gate.end()
	t.connections.sever(true)
	t.current.Load().generation.retire()
}

// LastContact is when the API server was last heard; zero if never.
func (t *Transport) LastContact() time.Time {
	since := t.contact.Load()
	if since == 0 {
		return time.Time{}
	}
	return t.born.Add(time.Duration(since - 1))
}

func (t *Transport) noteContact() { t.contact.Store(int64(t.options.Clock.Since(t.born)) + 1) }

type probeKey struct{}

// WithProbe marks requests that pass a shut gate and take a 401 for an answer.
func WithProbe(ctx context.Context) context.Context { return context.WithValue(ctx, probeKey{}, true) }

// RoundTrip sends a request; see the package comment for its way.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := t.guard(request); err != nil {
		closeBody(request)
		return nil, err
	}
	ctx := request.Context()
	if ctx.Value(probeKey{}) != nil {
		if t.gate.hasEnded() {
			closeBody(request)
			return nil, ErrClosed
		}
		response, _, err := t.send(request)
		return response, err
	}
	if err := t.enter(ctx); err != nil {
		closeBody(request)
		return nil, err
	}
	response, used, err := t.send(request)
	again, err := t.toRetry(request, response, used, err)
	if again == nil {
		return response, err
	}
	if err := t.enter(ctx); err != nil {
		closeBody(again)
		return nil, err
	}
	response, _, err = t.send(again)
	return response, err
}

// enter waits until the gate is open; and then for a while that is random, if it was
// shut.
func (t *Transport) enter(ctx context.Context) error {
	for !t.gate.isOpen() {
		if err := t.gate.wait(ctx); err != nil {
			return err
		}
		if t.options.Spread == 0 {
			break
		}
		timer := t.options.Clock.NewTimer(rand.N(t.options.Spread))
		select {
		case <-timer.C():
		case <-t.gate.ended:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return t.gate.wait(ctx)
}

// toRetry gives the request to send once more, when the gate lets it; nil
// if the answer, or the failure, stands.
func (t *Transport) toRetry(request *http.Request, response *http.Response, used *credentials, err error) (*http.Request, error) {
	ctx := request.Context()
	switch {
	case err != nil:
		reads := request.Method != http.MethodPatch // which may have arrived
		if t.options.CheckServer == nil || !reads || ctx.Err() != nil || t.gate.hasEnded() || errors.Is(err, ErrRefused) {
			return nil, err
		}
		again := replay(request)
		if again == nil {
			return nil, err
		}
		t.options.CheckServer(ctx)
		return again, nil
	case response.StatusCode == http.StatusUnauthorized && t.options.Reauthenticate != nil:
		again := replay(request)
		if again == nil {
			return nil, nil
		}
		if t.current.Load() == used {
			t.options.Reauthenticate(ctx)
		}
		if t.current.Load() == used && t.gate.isOpen() {
			return nil, nil // as it was: the answer stands
		}
		_, _ = io.CopyN(io.Discard, response.Body, drainBytes)
		_ = response.Body.Close()
		return again, nil
	}
	return nil, nil
}

// send sends a request with the current credentials.
func (t *Transport) send(request *http.Request) (*http.Response, *credentials, error) {
	used := t.current.Load()
	generation := used.generation
	generation.inFlight.Add(1)

	// A RoundTripper must not change the request it was given.
	out := request
	if used.token != "" {
		out = request.Clone(request.Context())
		out.Header.Set("Authorization", "Bearer "+used.token)
	}
	watch := isWatch(request)
	response, err := generation.roundTripper.RoundTrip(out)
	if err != nil {
		generation.leave()
		if watch && request.Context().Err() == nil {
			err = lostError{err}
		}
		return nil, used, err
	}
	wrapped := &body{ReadCloser: response.Body, ctx: request.Context(), watch: watch, left: MaxAnswer, lastContact: t.LastContact, leave: generation.leave}
	if watch && response.StatusCode == http.StatusOK {
		if wrapped.stream = streamOf(request.Context()); wrapped.stream != nil {
			wrapped.stream.begin(response.Body)
		}
	}
	if response.StatusCode < http.StatusInternalServerError && response.StatusCode != http.StatusUnauthorized {
		wrapped.contact = t.noteContact
		t.noteContact()
	}
	response.Body = wrapped
	return response, used, nil
}

// replay is the request once more; nil if its body is spent.
func replay(request *http.Request) *http.Request {
	if request.Body == nil || request.Body == http.NoBody {
		return request
	}
	if request.GetBody == nil {
		return nil
	}
	fresh, err := request.GetBody()
	if err != nil {
		return nil
	}
	again := request.Clone(request.Context())
	again.Body = fresh
	return again
}

// closeBody: a RoundTripper closes the request's body, whatever happens.
func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
}
