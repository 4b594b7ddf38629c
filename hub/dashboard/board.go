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

// board holds the topics that somebody looks at.
type board struct {
	renderer *renderer

	mu           sync.Mutex
	lockedTopics map[string]*topic // by page and Scope
}

func newBoard(r *renderer) *board { return &board{renderer: r, lockedTopics: map[string]*topic{}} }

// topic of a page and a Scope. One that is not looked at gives way to a new one.
func (b *board) topic(a address, scope view.Scope, now time.Time) (*topic, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := a.canonical + "\n" + scope.Key()
	if t := b.lockedTopics[key]; t != nil {
		return t, nil
	}
	if len(b.lockedTopics) >= maxTopics && !b.evictLocked() {
		return nil, errTooManyTopics
	}
	t := newTopic(a, scope, b.renderer)
	t.lockedUsed = now // Nobody else has it yet.
	b.lockedTopics[key] = t
	return t, nil
}

// evictLocked forgets the topic that was longest not asked for, of those that nobody
// looks at.
func (b *board) evictLocked() bool {
	oldest, when := "", time.Time{}
	for key, t := range b.lockedTopics {
		if viewers, last := t.use(); viewers == 0 && (oldest == "" || last.Before(when)) {
			oldest, when = key, last
		}
	}
	delete(b.lockedTopics, oldest)
	return oldest != ""
}

// watched are the topics that somebody looks at. Those that nobody has asked for in
// topicLinger are forgotten.
func (b *board) watched(now time.Time) []*topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*topic
	for key, t := range b.lockedTopics {
		viewers, last := t.use()
		switch {
		case viewers > 0:
			all = append(all, t)
		case now.Sub(last) > topicLinger:
			delete(b.lockedTopics, key)
		}
	}
	return all
}
