package sqs

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/capstan-hub/capstan/playground/aws"
)

func (s *Service) sendMessage(c *aws.Call, in *input) (any, *aws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, fault := s.findLocked(c, in)
	if fault != nil {
		return nil, fault
	}
	return s.sendLocked(q, in.entry)
}

func (s *Service) sendMessageBatch(c *aws.Call, in *input) (any, *aws.Fault) {
	total := 0
	for _, e := range in.Entries {
		total += (&message{body: e.MessageBody, attributes: e.MessageAttributes}).size()
	}
	if total > maxBytes {
		return nil, bad(legacy+"BatchRequestTooLong", "Batch requests cannot be longer than 1048576 bytes.")
	}
	return s.each(c, in, s.sendLocked)
}

// sendLocked sends one message.
func (s *Service) sendLocked(q *queue, e entry) (any, *aws.Fault) {
	m := &message{id: uuid.NewString(), body: e.MessageBody, attributes: e.MessageAttributes, sent: s.clock.Now()}
	delay, fault := within("DelaySeconds", e.DelaySeconds, q.number(delayAttribute), 0, 900)
	switch {
	case fault != nil:
		return nil, fault
	case m.body == "":
		return nil, missing("MessageBody")
	case !writable(m.body):
		return nil, bad("InvalidMessageContents", "The message contains characters outside the allowed set.")
	case m.size() > q.number(sizeAttribute):
		return nil, invalid("One or more parameters are invalid. Reason: Message must be shorter than the queue's MaximumMessageSize.")
	case len(m.attributes) > maxBatch:
		return nil, invalid("Number of message attributes exceeds the allowed maximum [10].")
	case len(q.messages) >= maxBacklog || q.bytes >= maxStored:
		return nil, overLimit
	}
	for name, a := range m.attributes {
		if !strings.HasPrefix(a.DataType, "String") && !strings.HasPrefix(a.DataType, "Number") && !strings.HasPrefix(a.DataType, "Binary") {
			return nil, invalid("The type of message attribute '" + name + "' is invalid.")
		}
	}
	q.stats.Sent++
	if s.chanceLocked(q.faults.Drop) {
		q.stats.Dropped++
	} else {
		q.add(m, m.sent, m.sent.Add(time.Duration(delay)*time.Second+q.faults.Delay))
	}
	return sent{ID: e.ID, MessageID: m.id, MD5OfMessageBody: sum(m.body), MD5OfMessageAttributes: sumOf(m.attributes)}, nil
}

// writable reports whether SQS accepts all characters of a body: those of XML 1.0.
func writable(body string) bool {
	for _, r := range body {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return true
}
