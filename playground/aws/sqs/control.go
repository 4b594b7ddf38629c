package sqs

import (
	"maps"
	"time"

	"github.com/capstan-hub/capstan/playground/aws"
)

// Faults of one queue. Rates are from 0 to 1.
type Faults struct {
	// Refuse is the response to calls of the queue, at RefuseRate.
	Refuse     *aws.Fault
	RefuseRate float64
	// Drop loses sent messages.
	Drop float64
	// Delay is the time before a sent message can be received.
	Delay time.Duration
	// Reorder returns messages in random order.
	Reorder bool
	// Duplicate keeps a received message visible.
	Duplicate float64
	// LoseReceive fails a receive after it has hidden the messages.
	LoseReceive float64
	// ForgetDelete confirms a delete and does nothing.
	ForgetDelete float64
	// FailEntry fails an entry of a batch.
	FailEntry float64
}

// Stats of one queue.
type Stats struct {
	// Sent, Dropped of these, Received, Deleted, moved to the dead letters (DeadLettered)
	// and Expired messages, since the queue was created.
	Sent, Dropped, Received, Deleted, DeadLettered, Expired int
	// Empty receives, and VisibilityChanges of messages.
	Empty, VisibilityChanges int
	// Visible, InFlight and Delayed messages now.
	Visible, InFlight, Delayed int
	// Oldest is the age of the oldest message; 0 without messages.
	Oldest time.Duration
}

func (q *queue) count(now time.Time) Stats {
	q.surface(now)
	stats := q.stats
	stats.InFlight = q.inFlight
	stats.Delayed = len(q.hidden) - q.inFlight
	stats.Visible = len(q.messages) - len(q.hidden)
	for _, m := range q.messages {
		stats.Oldest = max(stats.Oldest, now.Sub(m.sent))
	}
	return stats
}

// SetFaults replaces the faults of a queue of aws.Account. It has no effect if the queue does not exist.
func (s *Service) SetFaults(region, name string, f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[home(region, name)]; q != nil {
		q.faults = f
	}
}

// Stats returns the statistics of a queue of aws.Account; zero if it does not exist.
func (s *Service) Stats(region, name string) Stats { return s.StatsOf(home(region, name)) }

// StatsOf returns the statistics of a queue; zero if it does not exist.
func (s *Service) StatsOf(id ID) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[id]; q != nil {
		return q.count(s.clock.Now())
	}
	return Stats{}
}

// Bodies returns the bodies of all messages in a queue of aws.Account, including hidden
// ones, in any order.
func (s *Service) Bodies(region, name string) []string {
	var bodies []string
	for _, m := range s.Messages(home(region, name)) {
		bodies = append(bodies, m.Body)
	}
	return bodies
}

// Message in a queue.
type Message struct {
	Body string
	// Attributes with texts or numbers.
	Attributes map[string]string
}

// Messages returns all messages in a queue, including hidden ones, in any order.
func (s *Service) Messages(id ID) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Message
	if q := s.queues[id]; q != nil {
		for _, m := range q.messages {
			attributes := map[string]string{}
			for name, a := range m.attributes {
				if a.StringValue != nil {
					attributes[name] = *a.StringValue
				}
			}
			all = append(all, Message{m.body, attributes})
		}
	}
	return all
}

// Attributes returns the set attributes of a queue.
func (s *Service) Attributes(id ID) (attributes map[string]string, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[id]
	if q == nil {
		return nil, false
	}
	return maps.Clone(q.attributes), true
}

// Send adds a message to a queue without a call, for a service that may send it. It returns
// a fault if that fails.
func (s *Service) Send(id ID, m Message) *aws.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[id]
	if q == nil {
		return noSuchQueue
	}
	e := entry{MessageBody: m.Body, MessageAttributes: map[string]attribute{}}
	for name, value := range m.Attributes {
		e.MessageAttributes[name] = attribute{DataType: "String", StringValue: &value}
	}
	_, fault := s.sendLocked(q, e)
	return fault
}

// Put adds messages to a queue of aws.Account without a call. It returns a fault if that fails.
func (s *Service) Put(region, name string, bodies ...string) *aws.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[home(region, name)]
	if q == nil {
		return noSuchQueue
	}
	for _, body := range bodies {
		if _, fault := s.sendLocked(q, entry{MessageBody: body}); fault != nil {
			return fault
		}
	}
	return nil
}

// Missing is the fault of a queue that does not exist, for Faults.Refuse.
var Missing = noSuchQueue
