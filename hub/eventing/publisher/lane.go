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
	from  originator // nil if nothing can emit it again
	size  int64
	level bool
	since time.Time
	// attempts that failed while others succeeded; tries counts all attempts.
	attempts, tries int
	// failedAt is when it first failed; zero if it has not failed.
	failedAt time.Time
	// refused is the streak in which the broker refused it; 0 if it did not.
	refused int
	// dead is set for a dead letter.
	dead bool
}

// repeatable returns whether a Source emits the event again if it is not queued.
func (it *item) repeatable() bool { return it.from != nil && !it.dead }

// lane holds the events of one subject, in order.
type lane struct {
	subject string
	items   []*item
	// due is when the first item may be sent, or an empty lane may be deleted.
	due time.Time
	// retry is when the first item may be sent again after it failed.
	retry time.Time
	// quiet is when the next level event may be sent.
	quiet time.Time
	// busy is set while the first item is in flight.
	busy bool
	// place in the heap; -1 if it is not in it.
	place int
	// turn orders lanes that are due at the same time: the one that waits longest is first.
	turn uint64
}

// dueAt returns the value for due. While the queue drains, quiet is ignored.
func (l *lane) dueAt(now time.Time, draining bool) time.Time {
	due := now
	if len(l.items) == 0 || (l.items[0].level && !draining) {
		due = later(due, l.quiet)
	}
	return later(due, l.retry)
}

// waiting returns the index of the last item that is not in flight; -1 if there is none.
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

// schedule is a heap of the lanes that are not busy, sorted by due.
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

// newest returns the lane that is due and whose first item waits for the shortest time. The
// first lane is due.
func (s schedule) newest(now time.Time) *lane {
	found := s[0]
	for _, l := range s {
		if len(l.items) > 0 && !l.due.After(now) && (len(found.items) == 0 || l.items[0].since.After(found.items[0].since)) {
			found = l
		}
	}
	return found
}

// put adds a lane, or moves it to its new place.
func (s *schedule) put(l *lane) {
	if l.place >= 0 {
		heap.Fix(s, l.place)
		return
	}
	heap.Push(s, l)
}

// take removes a lane.
func (s *schedule) take(l *lane) {
	if l.place >= 0 {
		heap.Remove(s, l.place)
	}
}
