package instancestate

import "sync"

// outcome of a fact; of a message's facts the worst counts.
type outcome int

const (
	// acknowledged: it is written, or nothing is to be written.
	acknowledged outcome = iota
	// released: another replica may know more.
	released
	// failed: it is to come again.
	failed
)

// tracker settles a message when all of its facts are done.
type tracker struct {
	owed settler

	// mu guards the fields that follow.
	mu    sync.Mutex
	left  int
	worst outcome
}

// more facts, on further objects, than were counted.
func (t *tracker) more(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left += n
}

// done with a fact.
func (t *tracker) done(o outcome) {
	t.mu.Lock()
	t.left--
	t.worst = max(t.worst, o)
	left, worst := t.left, t.worst
	t.mu.Unlock()
	if left > 0 {
		return
	}
	switch worst {
	case acknowledged:
		t.owed.Ack()
	case released:
		t.owed.Release()
	case failed:
		t.owed.Retry()
	}
}

// nobody is owed anything.
type nobody struct{}

// Ack implements settler.
func (nobody) Ack() {}

// Retry implements settler.
func (nobody) Retry() {}

// Release implements settler.
func (nobody) Release() {}
