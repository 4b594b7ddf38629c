package publisher

import (
	"container/heap"
	"slices"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
)

// item is one event in a queue.
type item struct {
	event ce.Event
	from  originator // nil when nobody can emit it again
	size  int64
	level bool
	since time.Time
	// attempts that failed while others passed; tries is all of them.
	attempts, tries int
	// failedAt is when it first failed; zero when it has not.
	failedAt time.Time
	// dead is set for a dead letter.
	dead bool
}

// again tells whether the event is emitted again when it is not taken.
func (it *item) again() bool { return it.from != nil && !it.dead }

// lane holds the events of one subject, in order.
type lane struct {
	subject string
	items   []*item
	// due is when the first item may be sent, or the lane forgotten if it is empty.
	due time.Time
	// retry is when the first item may be sent again after it failed.
	retry time.Time
	// quiet is when the next level event may be sent.
	quiet time.Time
	// busy is set while the first item is on its way.
	busy bool
	// place in the heap; -1 when it is not there.
	place int
	// turn orders lanes that are due at one time: the one that waits longest first.
	turn uint64
}

// dueAt is what due should be. Draining, nobody waits for quiet.
func (l *lane) dueAt(now time.Time, draining bool) time.Time {
	due := now
	if len(l.items) == 0 || (l.items[0].level && !draining) {
		due = later(due, l.quiet)
	}
	return later(due, l.retry)
}

// waiting is the item of an id that is queued and not on its way; -1 when there is none.
func (l *lane) waiting() int {
	last := len(l.items) - 1
	if last < 0 || (last == 0 && l.busy) {
		return -1
	}
	return last
}

// pop the first item.
func (l *lane) pop() *item {
	first := l.items[0]
	l.items = slices.Delete(l.items, 0, 1)
	l.retry = time.Time{}
	return first
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// schedule is the lanes that are not busy, by when they are due.
type schedule []*lane

var _ heap.Interface = &schedule{}

// Len implements heap.Interface.
func (s schedule) Len() int { return len(s) }

// Less implements heap.Interface.
func (s schedule) Less(i, j int) bool {
	if s[i].due.Equal(s[j].due) {
		return s[i].turn < s[j].turn
	}
	return s[i].due.Before(s[j].due)
}

// Swap implements heap.Interface.
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	l, _ := x.(*lane)
	l.place = len(*s)
	*s = append(*s, l)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	l := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	l.place = -1
	return l
}

// put a lane where it belongs.
func (s *schedule) put(l *lane) {
	if l.place >= 0 {
		heap.Fix(s, l.place)
		return
	}
	heap.Push(s, l)
}

// take a lane out.
func (s *schedule) take(l *lane) {
	if l.place >= 0 {
		heap.Remove(s, l.place)
	}
}
