package instancestate

import "sync"

// tracker settles a message when all of its facts are done.
type tracker struct {
	owed settler

	mu     sync.Mutex
	left   int
	failed bool
}

// more facts, on further objects, than were counted.
func (t *tracker) more(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left += n
}

// done with a fact; not well when it is to come again.
func (t *tracker) done(well bool) {
	t.mu.Lock()
	t.left--
	t.failed = t.failed || !well
	left, failed := t.left, t.failed
	t.mu.Unlock()
	switch {
	case left > 0:
	case failed:
		t.owed.Retry()
	default:
		t.owed.Ack()
	}
}

// nobody is owed anything.
type nobody struct{}

// Ack implements settler.
func (nobody) Ack() {}

// Retry implements settler.
func (nobody) Retry() {}
