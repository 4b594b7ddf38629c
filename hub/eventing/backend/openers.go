package backend

import (
	"errors"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/beb"
	"github.com/capstan-hub/capstan/hub/eventing/sink/nats"
	"github.com/capstan-hub/capstan/hub/eventing/sink/sqs"
	"github.com/capstan-hub/capstan/hub/eventing/sink/webhook"
)

// World is what sinks need beside their configuration.
type World struct {
	// Hub is the hub's name, for receivers that are asked whether they want its events.
	Hub string
	// AWS is how queues are written to; nil for none.
	AWS *awsconfig.Config
	// AllowLoopback lets brokers be on this machine.
	AllowLoopback bool
	Clock         clock.PassiveClock
}

// errNoAWS is told of a queue where the hub has no AWS.
var errNoAWS = errors.New("this hub writes to no queues of AWS")

// Openers of the types that schema.Types has.
func Openers(w World) map[string]Opener {
	if w.Clock == nil {
		w.Clock = clock.RealClock{}
	}
	return map[string]Opener{
		"nats": func(o Opening) (sink.Sink, error) {
			return nats.Open(nats.Options{Config: o.Config, Secret: o.Secret, Name: "capstan " + o.Name, AllowLoopback: w.AllowLoopback, Changed: o.Changed})
		},
		"beb": func(o Opening) (sink.Sink, error) {
			return beb.Open(beb.Options{Config: o.Config, Secret: o.Secret, Clock: w.Clock, AllowLoopback: w.AllowLoopback})
		},
		"http": func(o Opening) (sink.Sink, error) {
			return webhook.Open(webhook.Options{Config: o.Config, Secret: o.Secret, Origin: w.Hub, Clock: w.Clock, AllowLoopback: w.AllowLoopback})
		},
		typeSQS: func(o Opening) (sink.Sink, error) {
			if w.AWS == nil {
				return nil, errNoAWS
			}
			return sqs.Open(sqs.Options{Config: o.Config, AWS: w.AWS, AllowLoopback: w.AllowLoopback}), nil
		},
	}
}
