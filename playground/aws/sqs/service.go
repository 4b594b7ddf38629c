package sqs

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"sync"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/playground/aws"
)

// Options of a Service.
type Options struct {
	// Clock of all queues; the real one when nil.
	Clock clock.Clock
	// Seed of the random choices of faults.
	Seed uint64
}

// Service simulates SQS.
type Service struct {
	clock clock.Clock

	// mu guards the fields that follow, and the queues.
	mu     sync.Mutex
	random *rand.Rand
	queues map[ID]*queue
}

var _ aws.Service = &Service{}

// New returns an SQS without queues.
func New(o Options) *Service {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Service{clock: o.Clock, random: rand.New(rand.NewPCG(o.Seed, 0)), queues: map[ID]*queue{}}
}

// Name implements aws.Service.
func (s *Service) Name() string { return "sqs" }

// Anonymous implements aws.Service.
func (s *Service) Anonymous(string) bool { return false }

// action answers a call. It returns the value to encode as JSON.
type action func(s *Service, c *aws.Call, in *input) (any, *aws.Fault)

var actions = map[string]action{
	"CreateQueue":                  (*Service).createQueue,
	"DeleteQueue":                  (*Service).deleteQueue,
	"PurgeQueue":                   (*Service).purgeQueue,
	"ListQueues":                   (*Service).listQueues,
	"GetQueueUrl":                  (*Service).getQueueURL,
	"GetQueueAttributes":           (*Service).getQueueAttributes,
	"SetQueueAttributes":           (*Service).setQueueAttributes,
	"ListDeadLetterSourceQueues":   (*Service).listDeadLetterSources,
	"SendMessage":                  (*Service).sendMessage,
	"SendMessageBatch":             (*Service).sendMessageBatch,
	"ReceiveMessage":               (*Service).receiveMessage,
	"DeleteMessage":                (*Service).deleteMessage,
	"DeleteMessageBatch":           (*Service).deleteMessageBatch,
	"ChangeMessageVisibility":      (*Service).changeVisibility,
	"ChangeMessageVisibilityBatch": (*Service).changeVisibilityBatch,
	"TagQueue":                     (*Service).tagQueue,
	"UntagQueue":                   (*Service).untagQueue,
	"ListQueueTags":                (*Service).listQueueTags,
}

// Serve implements aws.Service.
func (s *Service) Serve(w http.ResponseWriter, c *aws.Call) *aws.Fault {
	act := actions[c.Action]
	if act == nil {
		return &aws.Fault{Status: http.StatusBadRequest, Code: "InvalidAction", Message: "The action " + c.Action + " is not valid for this endpoint."}
	}
	in, fault := parse(c)
	if fault == nil {
		fault = s.refusal(c, in)
	}
	if fault != nil {
		return fault
	}
	out, fault := act(s, c, in)
	if fault != nil {
		return fault
	}
	write(w, http.StatusOK, out)
	return nil
}

func parse(c *aws.Call) (*input, *aws.Fault) {
	in := &input{}
	if err := json.Unmarshal(c.Body, in); err != nil {
		return nil, bad("SerializationException", err.Error())
	}
	return in, nil
}

// refusal returns the fault for a call from its queue's Faults, or nil.
func (s *Service) refusal(c *aws.Call, in *input) *aws.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[idOf(c, in.QueueURL)]
	if q == nil || q.faults.Refuse == nil || !s.chanceLocked(q.faults.RefuseRate) {
		return nil
	}
	return q.faults.Refuse
}

// chanceLocked returns true at a rate of 0 to 1.
func (s *Service) chanceLocked(rate float64) bool { return rate > 0 && s.random.Float64() < rate }

// findLocked finds a queue by its URL.
func (s *Service) findLocked(c *aws.Call, in *input) (*queue, *aws.Fault) {
	if in.QueueURL == "" {
		return nil, missing("QueueUrl")
	}
	if q := s.queues[idOf(c, in.QueueURL)]; q != nil {
		return q, nil
	}
	return nil, noSuchQueue
}

// wait returns after a change or a time, or when the call is canceled.
func (s *Service) wait(ctx context.Context, changed <-chan struct{}, timer clock.Timer) (canceled bool) {
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C():
	case <-ctx.Done():
		return true
	}
	return false
}
