package dashboard

import (
	"errors"
	"sync"
	"time"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

const (
	// maxTopics at a time: each has the HTML of a page, about 1 MB for the largest fleets.
	maxTopics = 128
	// topicLinger is how long a topic is kept after its last viewer left: a reload, a
	// lost connection or a poll uses it again.
	topicLinger = 30 * time.Second
)

// errTooManyTopics is returned when all maxTopics topics have viewers.
var errTooManyTopics = errors.New("too many different pages have viewers")

// errAbsent is returned for the page of an object that does not exist, or that the viewer may not
// see.
var errAbsent = errors.New("the object does not exist")

// board has the topics. A seat counts the viewers of a topic: so a topic with viewers is
// never evicted, and no topic waits for the rendering of another.
type board struct {
	renderer *renderer

	// mu guards lockedSeats.
	mu          sync.Mutex
	lockedSeats map[string]*seat // by page and Scope
}

// seat has a topic, the number of its viewers, and when the last viewer left.
type seat struct {
	topic   *topic
	viewers int
	left    time.Time
}

func newBoard(r *renderer) *board { return &board{renderer: r, lockedSeats: map[string]*seat{}} }

func seatKey(a address, scope view.Scope) string { return a.canonical + "\n" + scope.Key() }

// has reports whether there is a topic of a page and Scope.
func (b *board) has(a address, scope view.Scope) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lockedSeats[seatKey(a, scope)] != nil
}

// join adds a viewer to the topic of a page and Scope, until leave is called. A new topic
// replaces one without viewers; errTooManyTopics when all topics have viewers.
func (b *board) join(a address, scope view.Scope) (t *topic, leave func(now time.Time), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := seatKey(a, scope)
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

// evictLocked removes the topic without viewers that was left longest ago.
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

// empty reports whether there are no topics.
func (b *board) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.lockedSeats) == 0
}

// watched returns the topics that have viewers. It removes topics that have had no
// viewers for topicLinger.
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
