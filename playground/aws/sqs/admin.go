package sqs

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/policy"
)

// Attributes of queues that change the simulation.
const (
	delayAttribute      = "DelaySeconds"
	sizeAttribute       = "MaximumMessageSize"
	retentionAttribute  = "MessageRetentionPeriod"
	waitAttribute       = "ReceiveMessageWaitTimeSeconds"
	visibilityAttribute = "VisibilityTimeout"
	redriveAttribute    = "RedrivePolicy"
	policyAttribute     = "Policy"
	managedKeyAttribute = "SqsManagedSseEnabled"
	keyAttribute        = "KmsMasterKeyId"
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
var texts = []string{policyAttribute, redriveAttribute, "RedriveAllowPolicy", managedKeyAttribute, keyAttribute}

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
	if fault := s.checkLocked(c.Account, c.Region, in.Attributes); fault != nil {
		return nil, fault
	}
	at := ID{c.Account, c.Region, in.QueueName}
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
		ID: at, url: at.URL(c.Server), attributes: maps.Clone(in.Attributes), tags: maps.Clone(in.Tags), created: now, modified: now,
		messages: map[string]*message{}, changed: make(chan struct{}),
	}
	if q.attributes == nil {
		q.attributes = map[string]string{}
	}
	s.queues[at] = q
	return map[string]string{"QueueUrl": q.url}, nil
}

// checkLocked checks new attributes.
func (s *Service) checkLocked(account, region string, attributes map[string]string) *aws.Fault {
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
		if name == policyAttribute && value != "" {
			if _, err := policy.Parse(value, policy.Resource); err != nil {
				return bad("InvalidAttributeValue", "Invalid value for the parameter Policy. Reason: "+err.Error())
			}
		}
		if name == redriveAttribute && value != "" {
			arn, limit := policyOf(&queue{attributes: attributes})
			target, _ := ParseARN(arn) // The zero ID has no queue.
			if limit < 1 || limit > 1000 || s.queues[target] == nil || target.Account != account || target.Region != region {
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
	delete(s.queues, q.ID)
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
	return s.list("QueueUrls", func(q *queue) bool {
		return q.Account == c.Account && q.Region == c.Region && strings.HasPrefix(q.Name, in.QueueNamePrefix)
	}), nil
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
		return arn == dead.ARN()
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
	q := s.queues[ID{cmp.Or(in.QueueOwnerAWSAccountID, c.Account), c.Region, in.QueueName}]
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
		"QueueArn":                              q.ARN(),
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
	// AWS encrypts queues with its own key unless they have another one.
	all[managedKeyAttribute] = cmp.Or(all[managedKeyAttribute], strconv.FormatBool(all[keyAttribute] == ""))
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
		fault = s.checkLocked(q.Account, q.Region, in.Attributes)
	}
	if fault != nil {
		return nil, fault
	}
	maps.Copy(q.attributes, in.Attributes)
	q.modified = s.clock.Now()
	return map[string]any{}, nil
}

func (s *Service) tagQueue(c *aws.Call, in *input) (any, *aws.Fault) {
	return s.changeTags(c, in, func(tags map[string]string) { maps.Copy(tags, in.Tags) })
}

func (s *Service) untagQueue(c *aws.Call, in *input) (any, *aws.Fault) {
	return s.changeTags(c, in, func(tags map[string]string) {
		for _, key := range in.TagKeys {
			delete(tags, key)
		}
	})
}

func (s *Service) changeTags(c *aws.Call, in *input, change func(map[string]string)) (any, *aws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, fault := s.findLocked(c, in)
	if fault != nil {
		return nil, fault
	}
	if q.tags == nil {
		q.tags = map[string]string{}
	}
	change(q.tags)
	return map[string]any{}, nil
}

func (s *Service) listQueueTags(c *aws.Call, in *input) (any, *aws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, fault := s.findLocked(c, in)
	if fault != nil {
		return nil, fault
	}
	return map[string]any{"Tags": maps.Clone(q.tags)}, nil
}
