package publisher

import (
	"crypto/sha256"
	"encoding/hex"
	"math"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// Extension attributes of a dead letter.
const (
	// ErrorCodeExtension is the code of the error for which the event was given up.
	ErrorCodeExtension = "capstanerrorcode"
	// AttemptsExtension is how often it was sent.
	AttemptsExtension = "capstanattempts"
	// BackendExtension names the backend that gave it up.
	BackendExtension = "capstanbackend"
	// OriginalIDExtension is the id of the original event.
	OriginalIDExtension = "capstanoriginalid"
)

// letter is the originator of a dead letter. When the dead letter is settled, it reports the
// original event as settled, for the backend that gave it up, to the Source.
type letter struct {
	of      *item
	backend string
}

var _ originator = letter{}

// originator is the part of a Source that an item needs.
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

// giveUp hands an event to the dead letter backend, or drops it if there is none. If the dead
// letter backend does not accept it, the outcome is empty: the event keeps its place and is
// sent again.
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
	// A new id, because the other backend may also get the event itself.
	e.SetID(hex.EncodeToString(sum[:]))
	switch b.dead(to, &item{event: e, from: letter{of: a.item, backend: b.name}, size: sizeOf(e), dead: true, since: b.clock.Now()}) {
	case queued, known, repeated:
		return DeadLettered
	case tooLarge:
		return GivenUp
	case replacing, deferred, full, closed:
	}
	b.log.Info("the dead letter backend does not accept an event; it is sent again to the first backend", "deadLetterBackend", to, "type", e.Type(), "subject", e.Subject(), "id", a.item.event.ID())
	return ""
}
