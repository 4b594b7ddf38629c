package sqs

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capstan-hub/capstan/playground/aws"
)

// Attributes of queues that change the simulation.
const (
	delayAttribute      = "DelaySeconds"
	sizeAttribute       = "MaximumMessageSize"
	retentionAttribute  = "MessageRetentionPeriod"
	waitAttribute       = "ReceiveMessageWaitTimeSeconds"
	visibilityAttribute = "VisibilityTimeout"
	redriveAttribute    = "RedrivePolicy"
)

// bounds are the limits of a numeric attribute, and its default.
type bounds struct{ low, high, otherwise int }

// numbers are the numeric attributes, with the limits and defaults of AWS.
var numbers = map[string]bounds{
	delayAttribute:      {0, 900, 0},
	sizeAttribute:       {1024, maxBytes, maxBytes},
	retentionAttribute:  {60, 1209600, 345600},
	waitAttribute:       {0, 20, 0},
	visibilityAttribute: {0, 43200, 30},
}

// texts are the attributes that are only stored and returned.
var texts = []string{"Policy", redriveAttribute, "RedriveAllowPolicy", "SqsManagedSseEnabled", "KmsMasterKeyId"}

func (q *queue) number(name string) int {
	if n, err := strconv.Atoi(q.attributes[name]); err == nil {
		return n
	}
	return numbers[name].otherwise
}

// within checks a parameter. otherwise is its default; a negative one makes it required.
func within(name string, given *int, otherwise, low, high int) (int, *aws.Fault) {
	switch {
	case given == nil && otherwise < 0:
		return 0, missing(name)
	case given == nil:
		return otherwise, nil
	case *given < low || *given > high:
		return 0, invalid("Value " + strconv.Itoa(*given) + " for parameter " + name + " is invalid. Reason: Must be between " +
			strconv.Itoa(low) + " and " + strconv.Itoa(high) + ", if provided.")
	}
	return *given, nil
}

var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

func (s *Service) createQueue(c *aws.Call, in *input) (any, *aws.Fault) {
	if !queueName.MatchString(in.QueueName) {
		return nil, invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length. FIFO queues are not simulated.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if fault := s.checkLocked(c.Region, in.Attributes); fault != nil {
		return nil, fault
	}
	at := address{c.Region, in.QueueName}
	if q := s.queues[at]; q != nil {
		for name, value := range in.Attributes {
			if had, set := q.attributes[name]; had != value && (set || strconv.Itoa(q.number(name)) != value) {
				return nil, bad("QueueAlreadyExists", "A queue already exists with the same name and a different value for attribute "+name)
			}
		}
		return map[string]string{"QueueUrl": q.url}, nil
	}
	now := s.clock.Now()
	q := &queue{
		address: at, url: URL(c.Server, in.QueueName), attributes: maps.Clone(in.Attributes), created: now, modified: now,
		messages: map[string]*message{}, changed: make(chan struct{}),
	}
	if q.attributes == nil {
		q.attributes = map[string]string{}
	}
	s.queues[at] = q
	return map[string]string{"QueueUrl": q.url}, nil
}

// checkLocked checks new attributes.
func (s *Service) checkLocked(region string, attributes map[string]string) *aws.Fault {
	for name, value := range attributes {
		if bound, isNumber := numbers[name]; isNumber {
			if n, err := strconv.Atoi(value); err != nil || n < bound.low || n > bound.high {
				return bad("InvalidAttributeValue", "Invalid value for the parameter "+name+".")
			}
			continue
		}
		if !slices.Contains(texts, name) {
			return bad("InvalidAttributeName", "Unknown Attribute "+name+".")
		}
		if name == redriveAttribute && value != "" {
			arn, limit := policyOf(&queue{attributes: attributes})
			target := address{region, arn[strings.LastIndexByte(arn, ':')+1:]}
			if limit < 1 || limit > 1000 || s.queues[target] == nil || arn != ARN(region, target.name) {
				return bad("InvalidAttributeValue", "Value "+value+" for parameter RedrivePolicy is invalid. Reason: Dead letter target does not exist, or maxReceiveCount is not between 1 and 1000.")
			}
		}
	}
	return nil
}

func (s *Service) deleteQueue(c *aws.Call, in *input) (any, *aws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, fault := s.findLocked(c, in)
	if fault != nil {
		return nil, fault
	}
	delete(s.queues, q.address)
	q.deleted = true
	q.wake()
	return map[string]any{}, nil
}

func (s *Service) purgeQueue(c *aws.Call, in *input) (any, *aws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, fault := s.findLocked(c, in)
	if fault != nil {
		return nil, fault
	}
	for _, m := range q.messages {
		q.remove(m)
	}
	return map[string]any{}, nil
}

func (s *Service) listQueues(c *aws.Call, in *input) (any, *aws.Fault) {
	return s.list("QueueUrls", func(q *queue) bool { return q.region == c.Region && strings.HasPrefix(q.name, in.QueueNamePrefix) }), nil
}

func (s *Service) listDeadLetterSources(c *aws.Call, in *input) (any, *aws.Fault) {
	s.mu.Lock()
	dead, fault := s.findLocked(c, in)
	s.mu.Unlock()
	if fault != nil {
		return nil, fault
	}
	return s.list("queueUrls", func(q *queue) bool {
		arn, _ := policyOf(q)
		return arn == ARN(dead.region, dead.name)
	}), nil
}

func (s *Service) list(key string, match func(*queue) bool) map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	urls := []string{}
	for _, q := range s.queues {
		if match(q) {
			urls = append(urls, q.url)
		}
	}
	slices.Sort(urls)
	return map[string][]string{key: urls}
}

func (s *Service) getQueueURL(c *aws.Call, in *input) (any, *aws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[address{c.Region, in.QueueName}]
	if q == nil {
		return nil, noSuchQueue
	}
	return map[string]string{"QueueUrl": q.url}, nil
}

func (s *Service) getQueueAttributes(c *aws.Call, in *input) (any, *aws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, fault := s.findLocked(c, in)
	if fault != nil {
		return nil, fault
	}
	stats := q.count(s.clock.Now())
	all := map[string]string{
		"QueueArn":                              ARN(q.region, q.name),
		"CreatedTimestamp":                      strconv.FormatInt(q.created.Unix(), 10),
		"LastModifiedTimestamp":                 strconv.FormatInt(q.modified.Unix(), 10),
		"ApproximateNumberOfMessages":           strconv.Itoa(stats.Visible),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(stats.InFlight),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(stats.Delayed),
	}
	for name := range numbers {
		all[name] = strconv.Itoa(q.number(name))
	}
	maps.Copy(all, q.attributes)
	for _, name := range in.AttributeNames {
		if _, known := all[name]; !known && name != "All" && !slices.Contains(texts, name) {
			return nil, bad("InvalidAttributeName", "Unknown Attribute "+name+".")
		}
	}
	maps.DeleteFunc(all, func(name, value string) bool {
		return value == "" || !slices.Contains(in.AttributeNames, name) && !slices.Contains(in.AttributeNames, "All")
	})
	return map[string]any{"Attributes": all}, nil
}

func (s *Service) setQueueAttributes(c *aws.Call, in *input) (any, *aws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, fault := s.findLocked(c, in)
	if fault == nil {
		fault = s.checkLocked(c.Region, in.Attributes)
	}
	if fault != nil {
		return nil, fault
	}
	maps.Copy(q.attributes, in.Attributes)
	q.modified = s.clock.Now()
	return map[string]any{}, nil
}

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

// SetFaults replaces the faults of a queue. It has no effect if the queue does not exist.
func (s *Service) SetFaults(region, name string, f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[address{region, name}]; q != nil {
		q.faults = f
	}
}

// Stats returns the statistics of a queue; zero if it does not exist.
func (s *Service) Stats(region, name string) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[address{region, name}]; q != nil {
		return q.count(s.clock.Now())
	}
	return Stats{}
}

// Bodies returns the bodies of all messages in a queue, including hidden ones, in any order.
func (s *Service) Bodies(region, name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var bodies []string
	if q := s.queues[address{region, name}]; q != nil {
		for _, m := range q.messages {
			bodies = append(bodies, m.body)
		}
	}
	return bodies
}

// Put adds messages to a queue without a call. It returns a fault if that fails.
func (s *Service) Put(region, name string, bodies ...string) *aws.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[address{region, name}]
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
