package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

const (
	// pollRate is the number of polls per second with one Secret at one service. GitHub
	// allows a token 5,000 requests per hour; the other acts need their part.
	pollRate = 0.8
	// pollBurst lets a hub that starts poll some pull requests at once.
	pollBurst = 30

	// showRate is the number of commit statuses per second with one Secret at one service. A hub
	// that starts sets them all again, which must not use up the rate limit of promotions.
	showRate = 0.4
	// showBurst lets some pull requests show at once that a window opened or closed.
	showBurst = 30
	// showAgain is the wait for the right to set a commit status. Each try reads the Secret.
	showAgain = time.Minute
)

// errTooOften is the error of a poll over the rate.
var errTooOften = errors.New("other pull requests are polled first")

// errShownTooOften is the error of a commit status over the rate.
var errShownTooOften = errors.New("commit statuses of other pull requests are set first")

// pace limits the requests with one Secret to one service.
type pace struct {
	polls *rate.Limiter
	shows *rate.Limiter

	// mu guards the fields that follow.
	mu        sync.Mutex
	heldUntil time.Time
	heldBy    error
}

func newPace() *pace {
	return &pace{polls: rate.NewLimiter(pollRate, pollBurst), shows: rate.NewLimiter(showRate, showBurst)}
}

// poll takes the right to one poll.
func (p *pace) poll(now time.Time) error {
	if p.polls.AllowN(now, 1) {
		return nil
	}
	return &strategy.RetryAfterError{After: time.Second, Untried: true, Err: errTooOften}
}

// show takes the right to set one commit status.
func (p *pace) show(now time.Time) error {
	if p.shows.AllowN(now, 1) {
		return nil
	}
	return &strategy.RetryAfterError{After: showAgain, Untried: true, Err: errShownTooOften}
}

// held returns an error while the service's rate limit is in force.
func (p *pace) held(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.heldUntil.Sub(now); left > 0 {
		return &strategy.RetryAfterError{After: left, Untried: true, Err: fmt.Errorf("the service limits the rate, so it was not called; its last response: %w", p.heldBy)}
	}
	return nil
}

// idle reports whether the pace has no state and can be removed.
func (p *pace) idle(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.heldUntil.After(now) && p.polls.TokensAt(now) >= pollBurst && p.shows.TokensAt(now) >= showBurst
}

// note records a response. A rate limit stops the requests of all promotions with this
// Secret, not only those of the promotion that got the response.
func (p *pace) note(now time.Time, err error) {
	var service *provider.Error
	var git *gitrepo.Error
	limited := errors.As(err, &service) && service.Class == provider.RateLimited ||
		errors.As(err, &git) && git.Class == gitrepo.RateLimited
	if !limited {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := now.Add(retryAfter(err)); until.After(p.heldUntil) {
		p.heldUntil, p.heldBy = until, err
	}
}

// turns serializes the acts on each branch.
type turns struct {
	// mu guards lockedTaken, and the field users of each turn.
	mu          sync.Mutex
	lockedTaken map[string]*turn
}

// turn is the turn on one branch. The act that has its token runs.
type turn struct {
	token chan struct{}
	users int
}

func newTurns() *turns { return &turns{lockedTaken: map[string]*turn{}} }

// take waits for the turn on a branch. done returns it.
func (t *turns) take(ctx context.Context, branch string) (done func(), err error) {
	t.mu.Lock()
	mine := t.lockedTaken[branch]
	if mine == nil {
		mine = &turn{token: make(chan struct{}, 1)}
		t.lockedTaken[branch] = mine
	}
	mine.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(t.lockedTaken, branch)
		}
	}
	select {
	case mine.token <- struct{}{}:
		return func() { <-mine.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// maxComparisons is the number of entries from which long overdue ones are removed: their
// promotions have finished.
const maxComparisons = 10_000

// comparisons holds when each open pull request is next compared with its base.
type comparisons struct {
	clock clock.PassiveClock

	// mu guards lockedNext.
	mu         sync.Mutex
	lockedNext map[types.UID]time.Time
}

func newComparisons(c clock.PassiveClock) *comparisons {
	return &comparisons{clock: c, lockedNext: map[types.UID]time.Time{}}
}

// due reports whether a comparison is due. A promotion that is new to this process gets a
// time spread over the interval, so that a hub that starts does not clone everything at once.
func (l *comparisons) due(promotion types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	next, ok := l.lockedNext[promotion]
	if !ok {
		h := fnv.New32a()
		_, _ = h.Write([]byte(promotion))
		next = now.Add(compareEvery * time.Duration(h.Sum32()%100) / 100)
		l.lockedNext[promotion] = next
	}
	return !next.After(now)
}

// done sets the next time. It is later when this comparison took longer.
func (l *comparisons) done(promotion types.UID, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if len(l.lockedNext) >= maxComparisons {
		for other, next := range l.lockedNext {
			if now.Sub(next) > compareEvery {
				delete(l.lockedNext, other)
			}
		}
	}
	l.lockedNext[promotion] = now.Add(max(compareEvery, compareShare*took))
}
