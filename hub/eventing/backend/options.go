package backend

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/internal/allowedhosts"
)

const (
	// workers is the number of concurrent reconciles. None of them waits for a broker.
	workers = 4
	// DefaultPing is the time between two pings of a broker that answers.
	DefaultPing = 15 * time.Second
	// DefaultPingRetry is the time after the first ping that failed; it doubles up to
	// DefaultPing.
	DefaultPingRetry = time.Second
	// DefaultRecheck is the time between two reconciles of an EventingBackend without
	// changes. It is needed for a Secret that the hub may read but not watch.
	DefaultRecheck = 30 * time.Second
	// DefaultDrainGrace is how long a deleted EventingBackend waits for its queue.
	DefaultDrainGrace = 30 * time.Second
	// endGrace is the additional time for closing the sink. After it, the finalizer is
	// removed in any case.
	endGrace = 10 * time.Second
	// closeTimeout bounds closing a sink that was never used.
	closeTimeout = 5 * time.Second
	// droppedEventInterval is the least time between two Events about dropped events.
	droppedEventInterval = time.Minute
	// failuresToReport is how many pings must fail in a row with a transient error before
	// it is reported.
	failuresToReport = 2
)

// Opening has the arguments for opening a sink.
type Opening struct {
	// Config is a valid configuration.
	Config schema.Config
	// Secret is the data of the Secret; nil when the configuration names none.
	Secret map[string][]byte
	// Hosts to which the credentials of the Secret may be sent.
	Hosts allowedhosts.Rule
	// Name of the backend, "namespace/name".
	Name string
	// Changed may be called when the connection was made or lost. It does not block.
	Changed func()
}

// Opener opens a sink without connecting. Its error is about the Secret.
type Opener func(Opening) (sink.Sink, error)

// Reading is the state of a queue that is read.
type Reading struct {
	// Config in use.
	Config schema.Config
	// Ready is true when the last read succeeded.
	Ready bool
	// Message is the error; empty before the first read.
	Message string
	// Note is what a queue that is read cannot do; empty when there is nothing.
	Note string
	// Delivery is the state of its messages. GivenUp counts from any time on.
	Delivery eventingv1.Delivery
}

// Timings of a Reconciler; zero means the default.
type Timings struct {
	Ping, PingRetry, Recheck, DrainGrace, Delivery time.Duration
}

// Options of a Reconciler.
type Options struct {
	// Client reads from the hub's cache, and writes to the API server.
	Client client.Client
	// APIReader reads Secrets from the API server.
	APIReader client.Reader
	// RequireSecretHosts refuses Secrets without the annotation that names the hosts which may get their credentials, where
	// the EventingBackend names the host.
	RequireSecretHosts bool
	// Metadata watches Secrets. When it is nil, a change is read at the next reconcile.
	Metadata metadata.Interface
	// Registry has the types, and Openers opens their sinks.
	Registry *schema.Registry
	Openers  map[string]Opener
	// Publisher has the options of the publisher; New sets its callbacks.
	Publisher publisher.Options
	// Reading returns the state of a queue; false when it is not read. Nil when the hub
	// reads no queues.
	Reading func(types.NamespacedName) (Reading, bool)
	// Elected is closed when this replica becomes the leader.
	Elected <-chan struct{}
	// Recorder of Events.
	Recorder events.EventRecorder
	Timings  Timings
	Clock    clock.WithTicker
	Logger   logr.Logger
}

func (o *Options) defaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	for _, t := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{
		{&o.Timings.Ping, DefaultPing},
		{&o.Timings.PingRetry, DefaultPingRetry},
		{&o.Timings.Recheck, DefaultRecheck},
		{&o.Timings.DrainGrace, DefaultDrainGrace},
		{&o.Timings.Delivery, DefaultDelivery},
	} {
		if *t.value == 0 {
			*t.value = t.otherwise
		}
	}
	o.Publisher.Clock = o.Clock
}
