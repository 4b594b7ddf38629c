package sqs

import (
	"container/heap"
	"time"
)

// Limits of AWS, and of a queue's memory.
const (
	maxBatch    = 10
	maxBytes    = 1 << 20
	maxInFlight = 120_000
	maxBacklog  = 1 << 20
	maxStored   = 1 << 30
)

// queue has messages. Service.mu protects it.
type queue struct {
	ID
	url        string
	attributes map[string]string
	tags       map[string]string
	created    time.Time
	modified   time.Time
	faults     Faults
	stats      Stats

	// messages of the queue, by id.
	messages map[string]*message
	bytes    int
	// ready are the visible messages, oldest first. Messages with deleted set are skipped.
	ready []*message
	// hidden are the messages that are delayed or in flight.
	hidden   byTime
	inFlight int
	// changed is closed and replaced when there is a message to receive or the queue was
	// deleted.
	changed chan struct{}
	deleted bool
}

// message in a queue.
type message struct {
	id         string
	body       string
	attributes map[string]attribute
	sent       time.Time
	// visible is when a hidden message becomes visible.
	visible  time.Time
	first    time.Time
	receives int
	// receipt of the newest receive; older ones have no effect.
	receipt string
	flying  bool
	deleted bool
	// place in hidden; -1 when it is not hidden.
	place int
}

func (m *message) size() int {
	n := len(m.body)
	for name, a := range m.attributes {
		n += len(name) + len(a.DataType) + len(a.BinaryValue)
		if a.StringValue != nil {
			n += len(*a.StringValue)
		}
	}
	return n
}

// add adds a message that becomes visible at a time.
func (q *queue) add(m *message, now, visible time.Time) {
	m.place = -1
	q.messages[m.id] = m
	q.bytes += m.size()
	if visible.After(now) {
		q.hide(m, visible)
		return
	}
	q.show(m)
}

func (q *queue) show(m *message) {
	q.ready = append(q.ready, m)
	q.wake()
}

func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *queue) hide(m *message, until time.Time) {
	m.visible = until
	if m.place >= 0 {
		heap.Fix(&q.hidden, m.place)
		return
	}
	heap.Push(&q.hidden, m)
}

// surface makes messages visible whose time is over.
func (q *queue) surface(now time.Time) {
	for len(q.hidden) > 0 && !q.hidden[0].visible.After(now) {
		m := heap.Pop(&q.hidden).(*message)
		q.endFlight(m)
		q.ready = append(q.ready, m)
	}
}

func (q *queue) endFlight(m *message) {
	if m.flying {
		m.flying = false
		q.inFlight--
	}
}

// remove deletes a message.
func (q *queue) remove(m *message) {
	if m.place >= 0 {
		heap.Remove(&q.hidden, m.place)
	}
	q.endFlight(m)
	m.deleted = true
	delete(q.messages, m.id)
	q.bytes -= m.size()
}

// next returns the next visible message; nil when there is none.
func (q *queue) next() *message {
	for len(q.ready) > 0 {
		m := q.ready[0]
		q.ready[0] = nil
		q.ready = q.ready[1:]
		if !m.deleted && !m.flying {
			return m
		}
	}
	q.ready = nil
	return nil
}

// byTime is a heap of hidden messages.
type byTime []*message

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].visible.Before(h[j].visible) }

func (h byTime) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *byTime) Push(x any) {
	m := x.(*message)
	m.place = len(*h)
	*h = append(*h, m)
}

// Pop implements heap.Interface.
func (h *byTime) Pop() any {
	old := *h
	m := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	m.place = -1
	return m
}
