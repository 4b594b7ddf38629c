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

	"github.com/capstan-hub/capstan/internal/egress"
)

// Options of a Manager.
type Options struct {
	// Local is the configuration for the management cluster. The Manager reads its objects
	// with it, and it is the connection with the name "".
	Local *rest.Config
	// Namespaces restrict reads in the management cluster; all if there are none.
	Namespaces []string
	// SecretNamespaces are those whose Secrets may name clusters, with pipelinesv1.ClusterSecretLabel. The hub needs list
	// and watch on Secrets there, for metadata only.
	SecretNamespaces []string
	// LocalOnly connects only to the management cluster. The Manager then needs no right to
	// Clusters, Secrets or ClusterConnections.
	LocalOnly bool
	// ReadOnly sends no PATCH to workload clusters, and sends everything else as usual.
	ReadOnly bool
	// Elected is closed when this process leads. Until then, the Manager only has the
	// connection to the management cluster: it reads cluster objects only for Objects, and
	// writes nothing. When nil, the Manager itself needs the leader election.
	Elected <-chan struct{}
	// WarmStandby makes a Manager with Elected connect to all demanded clusters before the election,
	// too. It then still writes no ClusterConnections and engages no cluster.
	WarmStandby bool
	// Dials is how many connections are made at the same time, a quarter of them to clusters that
	// failed before; 32 for each CPU if 0.
	Dials int
	// AllowLoopback allows loopback addresses in kubeconfigs, for a fleet on one machine.
	AllowLoopback bool
	// Proxy of the administrator through which workload clusters are connected to; nil for none. It
	// is not used for the management cluster.
	Proxy *egress.Proxy
	// WorkloadScheme and WorkloadMapper are used by the cluster.Cluster objects of
	// Get and Engage. The defaults are client-go's scheme and a mapper of it.
	// The mapper must be static (StaticMapper): calls to an unreachable cluster would
	// block the caller of the mapper.
	WorkloadScheme *runtime.Scheme
	WorkloadMapper meta.RESTMapper
	// Recorder of Events on ClusterConnections; no Events when nil.
	Recorder events.EventRecorder
	// Registerer of the metrics; they are not registered when nil.
	Registerer prometheus.Registerer
	// Timings that are not zero replace the defaults.
	Timings Timings
	Clock   clock.WithTicker
	Logger  logr.Logger
}

// Timings of connections. A zero field means its default.
type Timings struct {
	// ProbeInterval (30 s, less up to 20 %) between probes of a silent cluster. A cluster
	// with a contact during the interval is not probed. ProbeInterval, ProbeTimeout and
	// ProbeRetry together are shorter than the 45 s after which observations are stale, so
	// one lost probe has no effect.
	ProbeInterval time.Duration
	// ProbeTimeout (5 s) of one probe.
	ProbeTimeout time.Duration
	// ProbeRetry (5 s) after a failed probe. One lost packet changes nothing.
	ProbeRetry time.Duration
	// ConnectRetry (1 s, at most ProbeRetry) after a failed probe of a cluster that has not answered
	// yet, neither this hub nor an earlier one: what waits for its first observation does not wait
	// long for one that does not exist.
	ConnectRetry time.Duration
	// Silence (30 s) without a byte from the cluster that, with failed probes,
	// makes it Unreachable.
	Silence time.Duration
	// UnreachableRetry (5 s) doubles up to UnreachableRetryMax (5 min), and is at most a quarter
	// of the outage: an unreachable cluster causes few probes, and is found again soon.
	UnreachableRetry, UnreachableRetryMax time.Duration
	// AuthRecheck (1 s) after a 401 to credentials that worked. It doubles for the next two
	// probes; then the cluster is AuthFailed. Requests wait meanwhile, open watches continue.
	AuthRecheck time.Duration
	// AuthRetry (5 s) doubles up to AuthRetryMax (10 min). A changed Secret is read
	// at once, so the retries only find changes in the cluster itself.
	AuthRetry, AuthRetryMax time.Duration
	// ForbiddenRetry (1 min) until a Secret that the hub may not read is read again; after 15
	// reads, AuthRetryMax.
	ForbiddenRetry time.Duration
	// ProbeConfirm (200 ms) is the time between the good probes that end an outage. It is
	// ProbeRetry for a cluster that failed within a minute after its last outage: one that flaps
	// shall not become Ready each time.
	ProbeConfirm time.Duration
	// ReleaseSpread (2 s) is the longest time over which requests that waited during an outage
	// are sent: 2 ms for each cluster that returned within that time.
	ReleaseSpread time.Duration
	// Handover (30 s) is how long the connection to the previous server of a cluster stays
	// open after the one to its new server replaced it. The watches move in that time.
	Handover time.Duration
	// Linger (5 min) is how long a connection without demand is kept.
	Linger time.Duration
	// KindRetry (30 s) until the next check for a kind that the management cluster does
	// not serve (its CRD is not installed).
	KindRetry time.Duration
	// HubTimeout (10 s) of one call to the management cluster.
	HubTimeout time.Duration
	// WriteDelay (500 ms) combines changes of a ClusterConnection into one write.
	WriteDelay time.Duration
}

// DefaultTimings returns the defaults, which the comments of the fields give.
func DefaultTimings() Timings {
	return Timings{
		ProbeInterval:       30 * time.Second,
		ProbeTimeout:        5 * time.Second,
		ProbeRetry:          5 * time.Second,
		ConnectRetry:        time.Second,
		Silence:             30 * time.Second,
		UnreachableRetry:    5 * time.Second,
		UnreachableRetryMax: 5 * time.Minute,
		AuthRecheck:         time.Second,
		AuthRetry:           5 * time.Second,
		AuthRetryMax:        10 * time.Minute,
		ForbiddenRetry:      time.Minute,
		ProbeConfirm:        200 * time.Millisecond,
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
		ConnectRetry:        min(cmp.Or(t.ConnectRetry, d.ConnectRetry), cmp.Or(t.ProbeRetry, d.ProbeRetry)),
		Silence:             cmp.Or(t.Silence, d.Silence),
		UnreachableRetry:    cmp.Or(t.UnreachableRetry, d.UnreachableRetry),
		UnreachableRetryMax: cmp.Or(t.UnreachableRetryMax, d.UnreachableRetryMax),
		AuthRecheck:         cmp.Or(t.AuthRecheck, d.AuthRecheck),
		AuthRetry:           cmp.Or(t.AuthRetry, d.AuthRetry),
		AuthRetryMax:        cmp.Or(t.AuthRetryMax, d.AuthRetryMax),
		ForbiddenRetry:      cmp.Or(t.ForbiddenRetry, d.ForbiddenRetry),
		ProbeConfirm:        cmp.Or(t.ProbeConfirm, d.ProbeConfirm),
		ReleaseSpread:       cmp.Or(t.ReleaseSpread, d.ReleaseSpread),
		Handover:            cmp.Or(t.Handover, d.Handover),
		Linger:              cmp.Or(t.Linger, d.Linger),
		KindRetry:           cmp.Or(t.KindRetry, d.KindRetry),
		HubTimeout:          cmp.Or(t.HubTimeout, d.HubTimeout),
		WriteDelay:          cmp.Or(t.WriteDelay, d.WriteDelay),
	}
}

// idle is the wait of a goroutine that only works after a wake.
const idle = time.Hour

func (o *Options) scoping() scoping {
	return scoping{namespaces: o.Namespaces, secrets: o.SecretNamespaces}
}
