package backend

import (
	"errors"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/beb"
	"github.com/capstan-hub/capstan/hub/eventing/sink/chat"
	"github.com/capstan-hub/capstan/hub/eventing/sink/commitstatus"
	"github.com/capstan-hub/capstan/hub/eventing/sink/flux"
	"github.com/capstan-hub/capstan/hub/eventing/sink/msteams"
	"github.com/capstan-hub/capstan/hub/eventing/sink/nats"
	"github.com/capstan-hub/capstan/hub/eventing/sink/slack"
	"github.com/capstan-hub/capstan/hub/eventing/sink/sqs"
	"github.com/capstan-hub/capstan/hub/eventing/sink/webhook"
	"github.com/capstan-hub/capstan/internal/egress"
)

// SinkOptions are what sinks need in addition to their configuration.
type SinkOptions struct {
	// Hub is the hub's name, for the webhook handshake (abuseProtection).
	Hub string
	// HubID distinguishes the hub from all others: it names the owner of JetStream's streams.
	HubID string
	// AWS configures the calls to SQS; nil when it is not configured.
	AWS *awsconfig.Config
	// DashboardURL is the external address of the dashboard, for links to it; empty when it is not
	// known.
	DashboardURL string
	// GitProxy is the administrator's proxy for Git services; nil for none.
	GitProxy *egress.Proxy
	// AllowLoopback allows brokers on this machine.
	AllowLoopback bool
	Clock         clock.PassiveClock
}

// errNoAWS is the error of a queue when AWS is not configured.
var errNoAWS = errors.New("AWS is not configured for this hub, so it cannot publish to SQS queues")

// Openers returns the openers of the types in schema.Types.
func Openers(w SinkOptions) map[string]Opener {
	if w.Clock == nil {
		w.Clock = clock.RealClock{}
	}
	inChat := func(service chat.Service) Opener {
		return func(o Opening) (sink.Sink, error) {
			return chat.Open(chat.Options{
				Service: service, Config: o.Config, Secret: o.Secret, DashboardURL: w.DashboardURL, Clock: w.Clock, AllowLoopback: w.AllowLoopback,
			})
		}
	}
	return map[string]Opener{
		"commitstatus": func(o Opening) (sink.Sink, error) {
			return commitstatus.Open(commitstatus.Options{
				Config: o.Config, Secret: o.Secret, Hosts: o.Hosts, DashboardURL: w.DashboardURL, Proxy: w.GitProxy, Clock: w.Clock, AllowLoopback: w.AllowLoopback,
			})
		},
		"slack":   inChat(slack.Service()),
		"msteams": inChat(msteams.Service()),
		"nats": func(o Opening) (sink.Sink, error) {
			return nats.Open(nats.Options{Config: o.Config, Secret: o.Secret, Hosts: o.Hosts, Name: "capstan " + o.Name, Owner: w.HubID + "/" + o.Name, AllowLoopback: w.AllowLoopback, Changed: o.Changed})
		},
		"beb": func(o Opening) (sink.Sink, error) {
			return beb.Open(beb.Options{Config: o.Config, Secret: o.Secret, Clock: w.Clock, AllowLoopback: w.AllowLoopback})
		},
		"http": func(o Opening) (sink.Sink, error) {
			return webhook.Open(webhook.Options{Config: o.Config, Secret: o.Secret, Hosts: o.Hosts, Origin: w.Hub, Clock: w.Clock, AllowLoopback: w.AllowLoopback})
		},
		"flux": func(o Opening) (sink.Sink, error) {
			return flux.Open(flux.Options{Config: o.Config, DashboardURL: w.DashboardURL, Clock: w.Clock, AllowLoopback: w.AllowLoopback})
		},
		schema.TypeSQS: func(o Opening) (sink.Sink, error) {
			if w.AWS == nil {
				return nil, errNoAWS
			}
			return sqs.Open(sqs.Options{Config: o.Config, AWS: w.AWS, AllowLoopback: w.AllowLoopback}), nil
		},
	}
}
