package clusters

import (
	"cmp"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

// Options of a Manager.
type Options struct {
	// Local is how the management cluster is reached: its objects are read through
	// it, and it is the connection of name "".
	Local *rest.Config
	// Namespace restricts what is read in the management cluster; all when empty.
	Namespace string
	// LocalOnly connects to no cluster but the management cluster, and looks for none:
	// no right to Clusters, Secrets or ClusterConnections is needed.
	LocalOnly bool
	// Elected is closed when this process leads. Until then, the Manager runs with the
	// connection to the management cluster alone: it reads no cluster objects and writes
	// nothing. When nil, the Manager itself needs the leader election.
	Elected <-chan struct{}
	// AllowLoopback lets kubeconfigs name loopback addresses, as they do where a
	// whole fleet runs on one machine.
	AllowLoopback bool
	// WorkloadScheme and WorkloadMapper are what the cluster.Cluster objects of
	// Get and Engage know; client-go's scheme and a mapper of it when nil.
	// The mapper must be static (StaticMapper): one that asks the cluster would
	// let a dead cluster hold its caller.
	WorkloadScheme *runtime.Scheme
	WorkloadMapper meta.RESTMapper
	// Recorder of Events on ClusterConnections; none are made when nil.
	Recorder events.EventRecorder
	// Registerer of the metrics; not registered when nil.
	Registerer prometheus.Registerer
	// Timings, where they are not zero, replace the defaults.
	Timings Timings
	Clock   clock.WithTicker
	Logger  logr.Logger
}

// Timings of connections. A zero field means its default.
type Timings struct {
	// ProbeInterval (30 s, ±20 %) between probes of a cluster that is silent; a
	// cluster heard of within it is not probed. With ProbeTimeout it stays under
	// the 45 s after which observations count as stale.
	ProbeInterval time.Duration
	// ProbeTimeout (5 s) of one probe.
	ProbeTimeout time.Duration
	// ProbeRetry (5 s) after a failed probe, and between the good ones that end an
	// outage: one lost packet changes nothing, and recovery takes 5 s.
	ProbeRetry time.Duration
	// Silence (30 s) without a byte from the cluster that, with failed probes,
	// makes it Unreachable.
	Silence time.Duration
	// UnreachableRetry (5 s) doubles up to UnreachableRetryMax (5 min): a dead
	// cluster costs little, and is found again within about the time it was away.
	UnreachableRetry, UnreachableRetryMax time.Duration
	// AuthRetry (60 s) doubles up to AuthRetryMax (10 min): a changed Secret wakes
	// at once, so this only finds what changed in the cluster itself.
	AuthRetry, AuthRetryMax time.Duration
	// KindGrace (30 s) for the initial list of a kind before it counts against the
	// cluster's state.
	KindGrace time.Duration
	// ReleaseSpread (2 s) is the time over which the requests that an outage held
	// back are released.
	ReleaseSpread time.Duration
	// Handover (30 s) is how long the connection to a cluster's old server stays, after
	// the one to its new server took over, for the watches to follow.
	Handover time.Duration
	// Linger (5 min) of a connection that nothing demands any more.
	Linger time.Duration
	// KindRetry (30 s) until a kind that the management cluster does not serve
	// (its CRD is not installed) is looked for again.
	KindRetry time.Duration
	// HubTimeout (10 s) of one call to the management cluster.
	HubTimeout time.Duration
	// WriteDelay (500 ms) gathers changes of a ClusterConnection into one write.
	WriteDelay time.Duration
}

// DefaultTimings are those that their fields' comments name.
func DefaultTimings() Timings {
	return Timings{
		ProbeInterval:       30 * time.Second,
		ProbeTimeout:        5 * time.Second,
		ProbeRetry:          5 * time.Second,
		Silence:             30 * time.Second,
		UnreachableRetry:    5 * time.Second,
		UnreachableRetryMax: 5 * time.Minute,
		AuthRetry:           time.Minute,
		AuthRetryMax:        10 * time.Minute,
		KindGrace:           30 * time.Second,
		ReleaseSpread:       2 * time.Second,
		Handover:            30 * time.Second,
		Linger:              5 * time.Minute,
		KindRetry:           30 * time.Second,
		HubTimeout:          10 * time.Second,
		WriteDelay:          500 * time.Millisecond,
	}
}

func (t Timings) orDefaults() Timings {
	d := DefaultTimings()
	return Timings{
		ProbeInterval:       cmp.Or(t.ProbeInterval, d.ProbeInterval),
		ProbeTimeout:        cmp.Or(t.ProbeTimeout, d.ProbeTimeout),
		ProbeRetry:          cmp.Or(t.ProbeRetry, d.ProbeRetry),
		Silence:             cmp.Or(t.Silence, d.Silence),
		UnreachableRetry:    cmp.Or(t.UnreachableRetry, d.UnreachableRetry),
		UnreachableRetryMax: cmp.Or(t.UnreachableRetryMax, d.UnreachableRetryMax),
		AuthRetry:           cmp.Or(t.AuthRetry, d.AuthRetry),
		AuthRetryMax:        cmp.Or(t.AuthRetryMax, d.AuthRetryMax),
		KindGrace:           cmp.Or(t.KindGrace, d.KindGrace),
		ReleaseSpread:       cmp.Or(t.ReleaseSpread, d.ReleaseSpread),
		Handover:            cmp.Or(t.Handover, d.Handover),
		Linger:              cmp.Or(t.Linger, d.Linger),
		KindRetry:           cmp.Or(t.KindRetry, d.KindRetry),
		HubTimeout:          cmp.Or(t.HubTimeout, d.HubTimeout),
		WriteDelay:          cmp.Or(t.WriteDelay, d.WriteDelay),
	}
}

// idle is the wait of a goroutine that has nothing to do but when it is woken.
const idle = time.Hour
