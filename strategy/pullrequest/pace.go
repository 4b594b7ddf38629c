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
	// pollRate of one Secret at one service, per second. GitHub gives a token 5,000
	// requests an hour, and the acts want theirs, too.
	pollRate = 0.8
	// pollBurst lets a hub that starts look at some at once.
	pollBurst = 30
)

// errTooOften is what a poll that would be too many ends with.
var errTooOften = errors.New("other pull requests are looked at first")

// pace at which one Secret's owner asks one service.
type pace struct {
	polls *rate.Limiter

	// mu guards the fields that follow.
	mu        sync.Mutex
	heldUntil time.Time
	heldBy    error
}

func newPace() *pace { return &pace{polls: rate.NewLimiter(pollRate, pollBurst)} }

// poll takes the right to one look.
func (p *pace) poll(now time.Time) error {
	if p.polls.AllowN(now, 1) {
		return nil
	}
	return &strategy.RetryAfterError{After: time.Second, Untried: true, Err: errTooOften}
}

// held is an error while the service has asked to be left alone.
func (p *pace) held(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.heldUntil.Sub(now); left > 0 {
		return &strategy.RetryAfterError{After: left, Untried: true, Err: fmt.Errorf("not asked, because a moment ago: %w", p.heldBy)}
	}
	return nil
}

// idle tells whether to forget it loses nothing.
func (p *pace) idle(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.heldUntil.After(now) && p.polls.TokensAt(now) >= pollBurst
}

// note an answer: who limits the rate is left alone by all promotions, not only by
// the one that was told.
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

// turns lets one act at a time have a branch.
type turns struct {
	// mu guards lockedTaken, and the field users of each turn.
	mu          sync.Mutex
	lockedTaken map[string]*turn
}

// turn is one branch's. Whoever has its token acts.
type turn struct {
	token chan struct{}
	users int
}

func newTurns() *turns { return &turns{lockedTaken: map[string]*turn{}} }

// take a branch, waiting for who has it. done gives it back.
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

// maxLooks is how many are remembered before those that are long due are forgotten:
// their promotions are over.
const maxLooks = 10_000

// looks remembers when a waiting pull request is to be compared with its base again.
type looks struct {
	clock clock.PassiveClock

	// mu guards lockedNext.
	mu         sync.Mutex
	lockedNext map[types.UID]time.Time
}

func newLooks(c clock.PassiveClock) *looks {
	return &looks{clock: c, lockedNext: map[types.UID]time.Time{}}
}

// due tells whether it is time. One that this process does not know has its time
// spread, so that a hub that starts does not clone everything at once.
func (l *looks) due(promotion types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	next, ok := l.lockedNext[promotion]
	if !ok {
		h := fnv.New32a()
		_, _ = h.Write([]byte(promotion))
		next = now.Add(baseLookEvery * time.Duration(h.Sum32()%100) / 100)
		l.lockedNext[promotion] = next
	}
	return !next.After(now)
}

// looked sets the next time, the later the longer this look took.
func (l *looks) looked(promotion types.UID, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if len(l.lockedNext) >= maxLooks {
		for other, next := range l.lockedNext {
			if now.Sub(next) > baseLookEvery {
				delete(l.lockedNext, other)
			}
		}
	}
	l.lockedNext[promotion] = now.Add(max(baseLookEvery, baseLookShare*took))
}
