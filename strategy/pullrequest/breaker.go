package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/internal/backoff"
	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

const (
	// maxLate is the number of acts in sequence that must time out before a server is
	// paused. A single one may be a request that is too large for it, or a lost packet.
	maxLate = 3

	// firstRest and maxRest bound the pause before one act tries the server again. The
	// pause doubles as long as the server does not respond.
	firstRest = 15 * time.Second
	maxRest   = 4 * time.Minute
)

// errNotAnswering is the reason why an act at a server is not started.
var errNotAnswering = errors.New("the Git server does not respond")

// breaker prevents acts from waiting for a server that does not respond: each would
// occupy a worker of the hub, and a slot for clones, until its timeout. After maxLate
// timeouts in sequence the other acts fail at once, and one act at a time tests the server.
//
// A server has two breakers, one for its API and one for Git. The two are often different
// machines: responses of one say nothing about the other.
type breaker struct {
	clock clock.PassiveClock
	// of is the part of the server, for messages.
	of part

	// mu guards the fields that follow.
	mu sync.Mutex
	// lockedLate counts the acts that timed out since the last response.
	lockedLate int
	// lockedUntil is when the next act may try; lockedRest is the length of that pause.
	lockedUntil time.Time
	lockedRest  time.Duration
	lockedCause error
	// lockedProbe is the act that tests the server; nil if there is none.
	lockedProbe *pass
}

// part of a server.
type part string

const (
	partAPI part = "API"
	partGit part = "Git"
)

// serverBreakers are those of one server.
type serverBreakers struct{ api, git *breaker }

func newBreakers(c clock.PassiveClock) *serverBreakers {
	return &serverBreakers{api: newBreaker(c, partAPI), git: newBreaker(c, partGit)}
}

// pass is the right of one act to call the server.
type pass struct{ b *breaker }

func newBreaker(c clock.PassiveClock, of part) *breaker { return &breaker{clock: c, of: of} }

// enter gives an act the right to call the server.
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

// refuses returns the error with which enter would refuse an act now, and changes nothing.
func (b *breaker) refuses() error {
	p, err := b.enter()
	if err != nil {
		return err
	}
	p.leave(errUnused)
	return nil
}

// refusedLocked returns the error that tells an act when to retry. While another act tests
// the server, that is firstRest: the result of the test is not known yet.
func (b *breaker) refusedLocked() *strategy.RetryAfterError {
	after := b.lockedUntil.Sub(b.clock.Now())
	if after <= 0 {
		after = firstRest
	}
	return &strategy.RetryAfterError{
		After: after, Untried: true, Err: fmt.Errorf("%w (%s); one promotion at a time retries it: %w", errNotAnswering, b.of, b.lockedCause),
	}
}

// refusal returns an error if the right has expired, which can happen while an act waits
// for a slot for its clone.
func (p *pass) refusal() *gitrepo.Error {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if p.b.lockedLate < maxLate || p.b.lockedProbe == p {
		return nil
	}
	err := p.b.refusedLocked()
	return &gitrepo.Error{Class: gitrepo.Transient, Message: err.Error(), RetryAfter: err.After, Err: err}
}

// errUnfinished is the result of an act that panicked; errUnused that of a pass without act.
var (
	errUnfinished = errors.New("the act did not end")
	errUnused     = errors.New("the server was not called")
)

// act runs do and records its result. It also records a panic, which says nothing about
// the server, so that the act does not stay the probe.
func (p *pass) act(do func() error) error {
	result := errUnfinished
	defer func() { p.leave(result) }()
	result = do()
	return result
}

// leave records the result of an act.
func (p *pass) leave(err error) {
	b := p.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lockedProbe == p {
		b.lockedProbe = nil
	}
	switch {
	case b.of.timedOut(err):
		b.lockedLate++
		b.lockedCause = err
		if b.lockedLate >= maxLate && !b.clock.Now().Before(b.lockedUntil) {
			b.lockedRest = backoff.Policy{First: firstRest, Max: maxRest}.Next(b.lockedRest)
			b.lockedUntil = b.clock.Now().Add(b.lockedRest)
		}
	case b.of.answered(err):
		b.resetLocked()
	}
}

// answered records a response before the act ends.
func (p *pass) answered() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.b.resetLocked()
}

func (b *breaker) resetLocked() {
	b.lockedLate, b.lockedRest, b.lockedUntil, b.lockedCause = 0, 0, time.Time{}, nil
}

// timedOut reports whether the part of the server was silent for the time of a request. The
// wait for a turn or for a slot does not count, nor does a transfer that the act's own deadline
// ended: it may have been steady.
func (of part) timedOut(err error) bool {
	var service *provider.Error
	var git *gitrepo.Error
	if of == partGit {
		return errors.As(err, &git) && git.TimedOut
	}
	return errors.As(err, &service) && service.TimedOut && !errors.Is(service.Err, context.DeadlineExceeded)
}

// answered reports whether the result shows that the part of the server responded. Other
// errors are the hub's own, or of the other part, and say nothing about it.
func (of part) answered(err error) bool {
	var service *provider.Error
	var git *gitrepo.Error
	var known *failure
	if err == nil || errors.As(err, &known) {
		return true
	}
	if of == partGit {
		return errors.As(err, &git) && (git.Status != 0 || git.Class != gitrepo.Transient && git.Class != gitrepo.Invalid)
	}
	return errors.As(err, &service) && service.Status != 0
}

// gate is the transport of an act's clones. It refuses requests after the act's right to
// call the server has expired, and distinguishes a forbidden address, and a failure of the proxy, from a
// failure of the server.
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
	var between *egress.Error
	if errors.As(err, &between) {
		return nil, &gitrepo.Error{Class: gitrepo.Transient, Message: between.Error(), Err: between}
	}
	return response, err
}
