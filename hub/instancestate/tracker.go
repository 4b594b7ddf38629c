package instancestate

import (
	"sync"
	"time"
)

// outcome of a fact. The outcome of a message is the worst of its facts.
type outcome int

const (
	// acknowledged: it is written, or changes nothing.
	acknowledged outcome = iota
	// released: another replica may know its object.
	released
	// failed: SQS must deliver it again.
	failed
)

// tracker settles a message when all of its facts are done.
type tracker struct {
	received delivery

	// mu guards the fields that follow.
	mu    sync.Mutex
	left  int
	worst outcome
}

// more adds facts on further objects.
func (t *tracker) more(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left += n
}

// done records the outcome of one fact.
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
		t.received.Ack()
	case released:
		t.received.Release(0)
	case failed:
		t.received.Retry()
	}
}

// noDelivery is a delivery without a message.
type noDelivery struct{}

// Ack implements delivery.
func (noDelivery) Ack() {}

// Retry implements delivery.
func (noDelivery) Retry() {}

// Release implements delivery.
func (noDelivery) Release(time.Duration) {}
