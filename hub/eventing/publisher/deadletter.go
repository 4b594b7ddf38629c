package publisher

import (
	"crypto/sha256"
	"encoding/hex"
	"math"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// Extension attributes of a dead letter.
const (
	// ErrorCodeExtension says why the event was given up.
	ErrorCodeExtension = "capstanerrorcode"
	// AttemptsExtension is how often it was sent.
	AttemptsExtension = "capstanattempts"
	// BackendExtension names the backend that would not have it.
	BackendExtension = "capstanbackend"
	// OriginalIDExtension is the id that the event had there.
	OriginalIDExtension = "capstanoriginalid"
)

// letter tells the Source of a dead letter of the original event, at the backend that
// gave it up, when the other backend has it.
type letter struct {
	of      *item
	backend string
}

var _ originator = letter{}

// originator is what an item needs of where it comes from.
type originator interface {
	Settled(backend, id string, how Outcome)
}

// Settled implements originator.
func (l letter) Settled(_, _ string, how Outcome) {
	if l.of.from == nil {
		return
	}
	if how == Published {
		how = DeadLettered
	}
	l.of.from.Settled(l.backend, l.of.event.ID(), how)
}

// giveUp an event: to the dead letter backend, or for good. When there is one that does
// not take it, it is neither: the event keeps its place, and is tried again.
func (b *backend) giveUp(a *attempt, err *sink.Error) Outcome {
	to := a.settings.DeadLetter
	if a.item.dead || to == "" || to == b.name {
		return GivenUp
	}
	b.mu.Lock()
	tries := a.item.tries + 1
	b.mu.Unlock()
	e := a.item.event.Clone()
	sum := sha256.Sum256([]byte(e.ID() + "|" + b.name))
	e.SetExtension(OriginalIDExtension, e.ID())
	e.SetExtension(ErrorCodeExtension, err.Code)
	e.SetExtension(AttemptsExtension, int32(min(tries, math.MaxInt32))) //nolint:gosec // Bounded.
	e.SetExtension(BackendExtension, b.name)
	// Another id: the other backend may get the event itself, too.
	e.SetID(hex.EncodeToString(sum[:]))
	switch b.dead(to, &item{event: e, from: letter{of: a.item, backend: b.name}, size: sizeOf(e), dead: true, since: b.clock.Now()}) {
	case queued, known, repeated:
		return DeadLettered
	case tooLarge:
		return GivenUp
	case replacing, deferred, full, closed:
	}
	b.log.Info("dead letter not taken; the event is tried again", "by", to, "type", e.Type(), "subject", e.Subject(), "id", a.item.event.ID())
	return ""
}
