package backend

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

const (
	// workers reconcile EventingBackends. None of them waits for a broker.
	workers = 4
	// DefaultPing is the time between two pings of a broker that answers.
	DefaultPing = 15 * time.Second
	// DefaultPingRetry is the time after the first ping that failed; it doubles up to
	// DefaultPing.
	DefaultPingRetry = time.Second
	// DefaultRecheck is the time between two looks at an EventingBackend of which
	// nothing was heard. It makes up for a Secret that may be read and not watched.
	DefaultRecheck = 30 * time.Second
	// drainGrace is how long a deleted EventingBackend is held for its queue.
	drainGrace = 30 * time.Second
	// endGrace beyond that is for the sink's own end; then the object goes without.
	endGrace = 10 * time.Second
	// closeTimeout bounds the end of the connections of a sink that was never used.
	closeTimeout = 5 * time.Second
	// tellGivenUp is the least time between two Events about events that were given up.
	tellGivenUp = time.Minute
	// failuresToTell is how many pings must fail in a row, of errors that come and go.
	failuresToTell = 2
)

// Opening is what a sink is opened with.
type Opening struct {
	// Config that the schema allows.
	Config schema.Config
	// Secret's data; nil when the configuration names none.
	Secret map[string][]byte
	// Name of the backend, "namespace/name".
	Name string
	// Changed may be told that the connection came or went. It does not block.
	Changed func()
}

// Opener opens a sink and makes no connection. Its error is about the Secret.
type Opener func(Opening) (sink.Sink, error)

// Reading is how a queue is read.
type Reading struct {
	// Config in use.
	Config schema.Config
	// Ready when it could be read at the last try.
	Ready bool
	// Message says why not; empty when it was not tried yet.
	Message string
}

// Timings of a Reconciler; defaults where zero.
type Timings struct {
	Ping, PingRetry, Recheck time.Duration
}

// Options of a Reconciler.
type Options struct {
	// Client reads from the hub's cache, and writes.
	Client client.Client
	// APIReader reads Secrets.
	APIReader client.Reader
	// Metadata watches Secrets; nil for none, so that a change is seen at the next look.
	Metadata metadata.Interface
	// Registry knows the types, and Openers opens their sinks.
	Registry *schema.Registry
	Openers  map[string]Opener
	// Publisher options but for the callbacks, which are the Reconciler's.
	Publisher publisher.Options
	// Reading tells how a queue is read; false when nothing is read. Nil where the hub
	// reads no queues.
	Reading func(types.NamespacedName) (Reading, bool)
	// Elected is closed when this replica leads.
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
	}{{&o.Timings.Ping, DefaultPing}, {&o.Timings.PingRetry, DefaultPingRetry}, {&o.Timings.Recheck, DefaultRecheck}} {
		if *t.value == 0 {
			*t.value = t.otherwise
		}
	}
	o.Publisher.Clock = o.Clock
}
