package pullrequest

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/internal/backoff"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

const (
	// maxLate is how many acts in sequence must have waited in vain before a server
	// is left alone. One may be a request that is too much for it, or a lost packet.
	maxLate = 3

	// firstRest and maxRest bound how long a server is left alone before one act tries
	// it again; the time doubles as long as it does not answer.
	firstRest = 15 * time.Second
	maxRest   = 4 * time.Minute
)

// errNotAnswering is why an act at a server is not begun.
var errNotAnswering = errors.New("the Git server does not answer")

// breaker keeps acts from waiting for a server that does not answer: each would hold a
// worker of the hub, and a place for clones, until its time has passed. Once some in
// sequence have, others fail at once, and one at a time tries whether it answers again.
type breaker struct {
	clock clock.PassiveClock

	// mu guards the fields that follow.
	mu sync.Mutex
	// lockedLate counts the acts since the last answer that waited in vain.
	lockedLate int
	// lockedUntil is when the next may try; lockedRest is how long that was.
	lockedUntil time.Time
	lockedRest  time.Duration
	lockedCause error
	// lockedProbe is the act that tries; nil for none.
	lockedProbe *pass
}

// pass is the right of one act to ask the server.
type pass struct{ b *breaker }

func newBreaker(c clock.PassiveClock) *breaker { return &breaker{clock: c} }

// enter gives an act the right to ask the server.
func (b *breaker) enter() (*pass, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &pass{b}
	if b.lockedLate < maxLate {
		return p, nil
	}
	if b.lockedProbe != nil || b.clock.Now().Before(b.lockedUntil) {
		return nil, b.refusedLocked()
	}
	b.lockedProbe = p
	return p, nil
}

// refusedLocked tells an act when to come back. What one that tries will find is not
// known before its own time has passed.
func (b *breaker) refusedLocked() *strategy.RetryAfterError {
	after := b.lockedUntil.Sub(b.clock.Now())
	if after <= 0 {
		after = firstRest
	}
	return &strategy.RetryAfterError{
		After: after, Untried: true, Err: fmt.Errorf("%w, and is tried by one promotion at a time until it does: %w", errNotAnswering, b.lockedCause),
	}
}

// refusal is an error if the right has gone since, as for who waited for a clone's
// place meanwhile.
func (p *pass) refusal() *gitrepo.Error {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if p.b.lockedLate < maxLate || p.b.lockedProbe == p {
		return nil
	}
	err := p.b.refusedLocked()
	return &gitrepo.Error{Class: gitrepo.Transient, Message: err.Error(), RetryAfter: err.After, Err: err}
}

// errUnfinished is what came of an act that did not come to its end.
var errUnfinished = errors.New("the act did not end")

// act by the right, and note what came of it: also of a panic, which says nothing of
// the server, and must not keep the place of the one that tries.
func (p *pass) act(do func() error) error {
	came := errUnfinished
	defer func() { p.leave(came) }()
	came = do()
	return came
}

// leave tells what came of an act.
func (p *pass) leave(err error) {
	b := p.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lockedProbe == p {
		b.lockedProbe = nil
	}
	switch {
	case timedOut(err):
		b.lockedLate++
		b.lockedCause = err
		if b.lockedLate >= maxLate && !b.clock.Now().Before(b.lockedUntil) {
			b.lockedRest = backoff.Policy{First: firstRest, Max: maxRest}.Next(b.lockedRest)
			b.lockedUntil = b.clock.Now().Add(b.lockedRest)
		}
	case answered(err):
		b.lockedLate, b.lockedRest, b.lockedUntil, b.lockedCause = 0, 0, time.Time{}, nil
	}
}

// timedOut tells whether an act waited for the server in vain. To wait for its turn or
// for a place is no such thing.
func timedOut(err error) bool {
	var service *provider.Error
	var git *gitrepo.Error
	return errors.As(err, &service) && service.TimedOut || errors.As(err, &git) && git.TimedOut
}

// answered tells whether what came of an act is the server's word. Other errors are of
// the hub's own, and say nothing of it.
func answered(err error) bool {
	var service *provider.Error
	var git *gitrepo.Error
	var known *failure
	return err == nil || errors.As(err, &known) ||
		errors.As(err, &service) && service.Status != 0 || errors.As(err, &git) && git.Status != 0
}

// gate is the transport of an act's clones. It lets nothing through once the act's
// right to ask has gone, and tells an address that is not to be called from a network
// that fails.
type gate struct {
	pass *pass
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if refusal := g.pass.refusal(); refusal != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, refusal
	}
	response, err := g.next.RoundTrip(r)
	if errors.Is(err, netguard.ErrForbidden) {
		// Git's host may differ from the API's, and a name may resolve to another address
		// each time.
		return nil, &gitrepo.Error{Class: gitrepo.Invalid, Message: err.Error() + " in url of the Pipeline's strategy"}
	}
	return response, err
}
