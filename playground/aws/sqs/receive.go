package sqs

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capstan-hub/capstan/playground/aws"
)

func (s *Service) receiveMessage(c *aws.Call, in *input) (any, *aws.Fault) {
	s.mu.Lock()
	q, fault := s.findLocked(c, in)
	if fault != nil {
		s.mu.Unlock()
		return nil, fault
	}
	count, fault1 := within("MaxNumberOfMessages", in.MaxNumberOfMessages, 1, 1, maxBatch)
	wait, fault2 := within("WaitTimeSeconds", in.WaitTimeSeconds, q.number(waitAttribute), 0, 20)
	hide, fault3 := within("VisibilityTimeout", in.VisibilityTimeout, q.number(visibilityAttribute), 0, 43200)
	for _, fault := range []*aws.Fault{fault1, fault2, fault3} {
		if fault != nil {
			s.mu.Unlock()
			return nil, fault
		}
	}
	until := s.clock.Now().Add(time.Duration(wait) * time.Second)
	for {
		now := s.clock.Now()
		messages, fault := s.takeLocked(q, count, time.Duration(hide)*time.Second, now, in)
		if fault != nil || len(messages) > 0 || !now.Before(until) {
			if len(messages) == 0 && fault == nil {
				q.stats.Empty++
			}
			s.mu.Unlock()
			return map[string]any{"Messages": messages}, fault
		}
		wake := until
		if len(q.hidden) > 0 && q.hidden[0].visible.Before(wake) {
			wake = q.hidden[0].visible
		}
		changed := q.changed
		timer := s.clock.NewTimer(wake.Sub(now))
		s.mu.Unlock()
		canceled := s.wait(c.Request.Context(), changed, timer)
		s.mu.Lock()
		switch {
		case canceled:
			s.mu.Unlock()
			return map[string]any{}, nil // The caller has closed the connection.
		case q.deleted:
			s.mu.Unlock()
			return nil, noSuchQueue
		}
	}
}

// takeLocked receives messages from a queue.
func (s *Service) takeLocked(q *queue, count int, hide time.Duration, now time.Time, in *input) ([]received, *aws.Fault) {
	q.surface(now)
	if q.faults.Reorder {
		s.random.Shuffle(len(q.ready), func(i, j int) { q.ready[i], q.ready[j] = q.ready[j], q.ready[i] })
	}
	target, limit := s.redriveLocked(q)
	var out []received
	var left []*message
	for len(out) < count {
		if q.inFlight >= maxInFlight {
			if len(out) == 0 && len(q.ready) > 0 {
				return nil, overLimit
			}
			break
		}
		m := q.next()
		if m == nil {
			break
		}
		switch {
		case now.Sub(m.sent) > time.Duration(q.number(retentionAttribute))*time.Second:
			q.remove(m)
			q.stats.Expired++
			continue
		case target != nil && m.receives >= limit:
			q.remove(m)
			q.stats.DeadLettered++
			moved := &message{id: m.id, body: m.body, attributes: m.attributes, sent: m.sent}
			target.add(moved, now, now)
			target.stats.Sent++
			continue
		}
		out = append(out, s.hand(m, now, in))
		q.stats.Received++
		if hide == 0 || s.chanceLocked(q.faults.Duplicate) {
			left = append(left, m) // Visible again after this receive, which has no message twice.
			continue
		}
		m.flying = true
		q.inFlight++
		q.hide(m, now.Add(hide))
	}
	for _, m := range left {
		q.show(m)
	}
	if s.chanceLocked(q.faults.LoseReceive) {
		return nil, &aws.InternalError
	}
	return out, nil
}

// hand returns a message for a response, with a new receipt.
func (s *Service) hand(m *message, now time.Time, in *input) received {
	m.receives++
	if m.first.IsZero() {
		m.first = now
	}
	m.receipt = base64.StdEncoding.EncodeToString([]byte(m.id + "/" + rand.Text()))
	r := received{MessageID: m.id, ReceiptHandle: m.receipt, Body: m.body, MD5OfBody: sum(m.body)}
	system := map[string]string{
		"SenderId":                         "AIDAPLAYGROUND",
		"SentTimestamp":                    strconv.FormatInt(m.sent.UnixMilli(), 10),
		"ApproximateReceiveCount":          strconv.Itoa(m.receives),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.first.UnixMilli(), 10),
	}
	asked := append(slices.Clone(in.AttributeNames), in.MessageSystemAttributeNames...)
	maps.DeleteFunc(system, func(name, _ string) bool { return !slices.Contains(asked, name) && !slices.Contains(asked, "All") })
	r.Attributes = system
	r.MessageAttributes = maps.Clone(m.attributes)
	maps.DeleteFunc(r.MessageAttributes, func(name string, _ attribute) bool { return !requested(name, in.MessageAttributeNames) })
	r.MD5OfMessageAttributes = sumOf(r.MessageAttributes)
	return r
}

// requested reports whether a name is requested: by All, the name, or prefix.*.
func requested(name string, asked []string) bool {
	return slices.ContainsFunc(asked, func(a string) bool {
		prefix, many := strings.CutSuffix(a, ".*")
		return a == "All" || a == name || many && strings.HasPrefix(name, prefix)
	})
}

// redriveLocked returns the redrive policy of a queue: the dead-letter queue, and the number of receives.
func (s *Service) redriveLocked(q *queue) (*queue, int) {
	arn, limit := policyOf(q)
	if arn == "" {
		return nil, 0
	}
	target, _ := ParseARN(arn) // It was checked when it was set.
	return s.queues[target], limit
}

func policyOf(q *queue) (arn string, limit int) {
	var policy struct {
		Target string      `json:"deadLetterTargetArn"`
		Max    json.Number `json:"maxReceiveCount"`
	}
	if json.Unmarshal([]byte(q.attributes[redriveAttribute]), &policy) != nil {
		return "", 0
	}
	limit, _ = strconv.Atoi(policy.Max.String()) // It was checked when it was set.
	return policy.Target, limit
}

// of returns the message of a receipt; nil when it was deleted or received again since.
func (q *queue) of(receipt string) (*message, *aws.Fault) {
	raw, err := base64.StdEncoding.DecodeString(receipt)
	id, _, found := strings.Cut(string(raw), "/")
	if err != nil || !found {
		return nil, badHandle
	}
	if m := q.messages[id]; m != nil && m.receipt == receipt {
		return m, nil
	}
	return nil, nil
}

func (s *Service) deleteLocked(q *queue, e entry) (any, *aws.Fault) {
	m, fault := q.of(e.ReceiptHandle)
	if fault == nil && m != nil && !s.chanceLocked(q.faults.ForgetDelete) {
		q.remove(m)
		q.stats.Deleted++
	}
	return did{ID: e.ID}, fault
}

func (s *Service) change(q *queue, e entry) (any, *aws.Fault) {
	seconds, fault := within("VisibilityTimeout", e.VisibilityTimeout, -1, 0, 43200)
	if fault != nil {
		return nil, fault
	}
	m, fault := q.of(e.ReceiptHandle)
	now := s.clock.Now()
	q.surface(now)
	switch {
	case fault != nil:
		return nil, fault
	case m == nil:
		return nil, invalid("Value " + e.ReceiptHandle + " for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change.")
	case !m.flying:
		return nil, notInFlight
	}
	q.stats.VisibilityChanges++
	q.hide(m, now.Add(time.Duration(seconds)*time.Second))
	// Pollers wait for the old time: wake them.
	q.wake()
	return did{ID: e.ID}, nil
}

func (s *Service) deleteMessage(c *aws.Call, in *input) (any, *aws.Fault) {
	return s.one(c, in, s.deleteLocked)
}

func (s *Service) changeVisibility(c *aws.Call, in *input) (any, *aws.Fault) {
	return s.one(c, in, s.change)
}

func (s *Service) deleteMessageBatch(c *aws.Call, in *input) (any, *aws.Fault) {
	return s.each(c, in, s.deleteLocked)
}

func (s *Service) changeVisibilityBatch(c *aws.Call, in *input) (any, *aws.Fault) {
	return s.each(c, in, s.change)
}

// one runs an operation on the entry of a call that is no batch.
func (s *Service) one(c *aws.Call, in *input, do func(*queue, entry) (any, *aws.Fault)) (any, *aws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, fault := s.findLocked(c, in)
	if fault != nil {
		return nil, fault
	}
	if _, fault := do(q, in.entry); fault != nil {
		return nil, fault
	}
	return map[string]any{}, nil
}

// each runs an operation on each entry of a batch.
func (s *Service) each(c *aws.Call, in *input, do func(*queue, entry) (any, *aws.Fault)) (any, *aws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, fault := s.findLocked(c, in)
	if fault == nil {
		fault = checkBatch(in.Entries)
	}
	if fault != nil {
		return nil, fault
	}
	out := batch{Successful: []any{}, Failed: []failed{}}
	for _, e := range in.Entries {
		do := do
		if s.chanceLocked(q.faults.FailEntry) {
			do = func(*queue, entry) (any, *aws.Fault) { return nil, &aws.InternalError }
		}
		done, fault := do(q, e)
		if fault != nil {
			out.Failed = append(out.Failed, failed{ID: e.ID, SenderFault: fault.Status < 500, Code: fault.Code, Message: fault.Message})
			continue
		}
		out.Successful = append(out.Successful, done)
	}
	return out, nil
}

func checkBatch(entries []entry) *aws.Fault {
	switch {
	case len(entries) == 0:
		return bad(legacy+"EmptyBatchRequest", "There should be at least one entry in the request.")
	case len(entries) > maxBatch:
		return bad(legacy+"TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10.")
	}
	seen := map[string]bool{}
	for _, e := range entries {
		if e.ID == "" || len(e.ID) > 80 || strings.Trim(e.ID, idLetters) != "" {
			return bad(legacy+"InvalidBatchEntryId", "A batch entry id can only contain alphanumeric characters, hyphens and underscores.")
		}
		if seen[e.ID] {
			return bad(legacy+"BatchEntryIdsNotDistinct", "Id "+e.ID+" repeated.")
		}
		seen[e.ID] = true
	}
	return nil
}

const idLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
