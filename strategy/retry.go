package strategy

import "time"

const (
	// FirstRetry is the wait after the first failed attempt; it doubles with each failure in
	// sequence. A receiver that restarts is reachable again after the first wait.
	FirstRetry = 5 * time.Second
	// MaxRetry is the longest wait after a failed attempt. A receiver that is unreachable for
	// a day receives 150 requests.
	MaxRetry = 10 * time.Minute

	// TryAgainEvery is the time between two tries of a promotion that failed, if its class of
	// failures is tried again. A user fixes rights or files outside of the hub's view; an
	// hour bounds the wait after the fix, and a promotion that stays failed for a month
	// makes 720 tries.
	TryAgainEvery = time.Hour
)

// Patience is how long an error is retried before it ends the promotion. Both bounds must
// be reached. The zero value ends it at once.
type Patience struct {
	// Failures in sequence.
	Failures int64
	// For is the time since the first of them.
	For time.Duration
}

// Ends returns whether a sequence of failures ends the promotion.
func (p Patience) Ends(failures int64, since time.Duration) bool {
	return failures >= p.Failures && since >= p.For
}
