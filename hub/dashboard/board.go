package dashboard

import (
	"errors"
	"sync"
	"time"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

const (
	// maxTopics at a time: each holds a page's HTML, a megabyte for the largest fleets.
	maxTopics = 128
	// topicLinger is how long a topic outlives its last viewer: a reload, a lost
	// connection, or a poll comes back to it.
	topicLinger = 30 * time.Second
)

// errTooManyTopics is returned where more different pages are looked at than are kept.
var errTooManyTopics = errors.New("too many different pages are looked at")

// board holds the topics that somebody looks at. Whoever looks has a seat: so no topic
// that is looked at is forgotten, and none waits for another's rendering.
type board struct {
	renderer *renderer

	// mu guards lockedSeats.
	mu          sync.Mutex
	lockedSeats map[string]*seat // by page and Scope
}

// seat of a topic: how many look at it, and when the last one left.
type seat struct {
	topic   *topic
	viewers int
	left    time.Time
}

func newBoard(r *renderer) *board { return &board{renderer: r, lockedSeats: map[string]*seat{}} }

// join those who look at a page with a Scope, until left. A topic that nobody looks at
// gives way to a new one; errTooManyTopics where all are looked at.
func (b *board) join(a address, scope view.Scope) (t *topic, leave func(now time.Time), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := a.canonical + "\n" + scope.Key()
	s := b.lockedSeats[key]
	if s == nil {
		if len(b.lockedSeats) >= maxTopics && !b.evictLocked() {
			return nil, nil, errTooManyTopics
		}
		s = &seat{topic: newTopic(a, scope, b.renderer)}
		b.lockedSeats[key] = s
	}
	s.viewers++
	return s.topic, func(now time.Time) {
		b.mu.Lock()
		defer b.mu.Unlock()
		s.viewers--
		s.left = now
	}, nil
}

// evictLocked forgets the topic that was left longest ago, of those that nobody looks at.
func (b *board) evictLocked() bool {
	oldest, when := "", time.Time{}
	for key, s := range b.lockedSeats {
		if s.viewers == 0 && (oldest == "" || s.left.Before(when)) {
			oldest, when = key, s.left
		}
	}
	delete(b.lockedSeats, oldest)
	return oldest != ""
}

// watched are the topics that somebody looks at. Those that were left topicLinger ago
// are forgotten.
func (b *board) watched(now time.Time) []*topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*topic
	for key, s := range b.lockedSeats {
		switch {
		case s.viewers > 0:
			all = append(all, s.topic)
		case now.Sub(s.left) > topicLinger:
			delete(b.lockedSeats, key)
		}
	}
	return all
}
