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
	"github.com/capstan-hub/capstan/internal/egress"
)

// drainBytes is how much of the body of a 401 is read, so that its connection can be used
// again.
const drainBytes = 4 << 10

// Options of a Transport.
type Options struct {
	// Server that requests may go to.
	Server *url.URL
	// Clock of LastContact and of Spread.
	Clock clock.Clock
	// Spread is the time over which waiting requests are sent after the gate opens, until
	// SetSpread. Zero: all are sent at once.
	Spread time.Duration
	// AllowLoopback allows loopback addresses.
	AllowLoopback bool
	// Proxy of the administrator for workload clusters; nil for none.
	Proxy *egress.Proxy
	// Reauthenticate is called after a 401. It returns when the credentials were
	// read again, and set if they changed. Calls may overlap. Nil: a 401 is final.
	Reauthenticate func(context.Context)
	// CheckServer is called after a request without a response. It returns when the server
	// was probed, and the gate closed if it did not respond. Calls may overlap. Nil: the
	// failure is final.
	CheckServer func(context.Context)
	// AllowPatch reports whether a PATCH may be sent; none when nil.
	AllowPatch func(*http.Request) bool
	// Refused is called for each request that the guard refuses.
	Refused func(RefusedReason)
}

// Transport is the http.RoundTripper of one connection.
type Transport struct {
	options     Options
	gate        *gate
	spread      atomic.Int64 // a time.Duration
	connections connections
	dial        dialFunc
	// born is when the Transport was made. contact is the last contact, as nanoseconds
	// after born plus 1 (0 for none). The time keeps its monotonic part: setting the wall
	// clock back must not make an unreachable cluster appear fresh.
	born    time.Time
	contact atomic.Int64
	current atomic.Pointer[credentials]
}

// credentials are replaced together.
type credentials struct {
	generation *generation
	token      string
}

var _ http.RoundTripper = &Transport{}

func newTransport(o Options) *Transport {
	t := &Transport{options: o, gate: newGate(), born: o.Clock.Now()}
	t.SetSpread(o.Spread)
	return t
}

// New returns a Transport with a closed gate. It does not dial.
func New(o Options, config *kubeconfig.Config) (*Transport, error) {
	t := newTransport(o)
	t.dial = t.connections.through(newDialer(o.AllowLoopback, o.Proxy))
	first, err := newGeneration(config, t.dial)
	if err != nil {
		return nil, err
	}
	t.current.Store(&credentials{generation: first, token: config.Token})
	return t, nil
}

// NewLocal returns a Transport for the management cluster. Its rest.Config is from the
// administrator and is used without checks.
func NewLocal(o Options, config *rest.Config) (*Transport, error) {
	t := newTransport(o)
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

// SetCredentials replaces the token and the client certificate. The server, its name and
// its CA stay those of New: it returns an error for kubeconfig.Endpoint. Calls must not
// overlap.
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
		return errors.New("another endpoint needs another transport")
	}
	t.current.Store(next)
	if next.generation != old.generation {
		old.generation.retire()
	}
	return nil
}

// SetSpread sets the time over which waiting requests are sent after the gate opens. It keeps the
// load low when a thousand clusters become reachable at the same moment.
func (t *Transport) SetSpread(d time.Duration) { t.spread.Store(int64(d)) }

// SetOpen opens or closes the gate.
func (t *Transport) SetOpen(open bool) { t.gate.set(open) }

// IsOpen returns whether the gate is open.
func (t *Transport) IsOpen() bool { return t.gate.isOpen() }

// CloseConnections closes every TCP connection. Watches end and resume through the gate.
func (t *Transport) CloseConnections() { t.connections.sever(false) }

// Close ends the Transport. Open streams are closed; waiting and later requests fail
// with ErrClosed.
func (t *Transport) Close() {
	t.gate.end()
	t.connections.sever(true)
	t.current.Load().generation.retire()
}

// LastContact returns the time of the last byte received from the API server; zero if
// there was none.
func (t *Transport) LastContact() time.Time {
	since := t.contact.Load()
	if since == 0 {
		return time.Time{}
	}
	return t.born.Add(time.Duration(since - 1))
}

func (t *Transport) noteContact() { t.contact.Store(int64(t.options.Clock.Since(t.born)) + 1) }

type probeKey struct{}

// WithProbe returns a context for probes: requests that do not wait at the gate and are
// not repeated.
func WithProbe(ctx context.Context) context.Context { return context.WithValue(ctx, probeKey{}, true) }

// RoundTrip sends a request. The package comment describes its steps.
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

// enter waits until the gate is open and, if it was closed, then for a random time of at
// most the spread.
func (t *Transport) enter(ctx context.Context) error {
	for !t.gate.isOpen() {
		if err := t.gate.wait(ctx); err != nil {
			return err
		}
		spread := time.Duration(t.spread.Load())
		if spread <= 0 {
			break
		}
		timer := t.options.Clock.NewTimer(rand.N(spread))
		select {
		case <-timer.C():
		case <-t.gate.ended:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return t.gate.wait(ctx)
}

// toRetry returns the request to send once more when the gate is open. It returns nil
// when the response or the failure is final.
func (t *Transport) toRetry(request *http.Request, response *http.Response, used *credentials, err error) (*http.Request, error) {
	ctx := request.Context()
	switch {
	case err != nil:
		reads := request.Method != http.MethodPatch // A PATCH may have been executed.
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
		// Also with the same credentials: the server may have rejected them for a moment that
		// is over, and the gate been closed and opened before this goroutine ran again.
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
	wrapped := &body{ReadCloser: response.Body, ctx: request.Context(), watch: watch, left: maxAnswerOf(request.Context()), lastContact: t.LastContact, leave: generation.leave}
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

// replay returns the request with a new body; nil if the body cannot be read again.
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

// closeBody closes the body of a request. A RoundTripper must close it in every case.
func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
}
