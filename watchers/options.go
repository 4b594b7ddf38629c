package watchers

import (
	goruntime "runtime"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// Demand is a demand of one owner on one cluster.
type Demand struct {
	Cluster multicluster.ClusterName
	Kind    schema.GroupKind
	// Namespace and Name of the object; an empty Name means every object of the
	// namespace, an empty Namespace with it every object of the cluster.
	Namespace, Name string
}

// InNamespaces returns a demand for each of some namespaces, or the demand itself if there are none.
func InNamespaces(d Demand, namespaces []string) []Demand {
	if len(namespaces) == 0 {
		return []Demand{d}
	}
	demands := make([]Demand, 0, len(namespaces))
	for _, namespace := range namespaces {
		d.Namespace = namespace
		demands = append(demands, d)
	}
	return demands
}

// Kind defines how a kind is read.
type Kind struct {
	GroupKind schema.GroupKind
	// ClusterScoped objects are in no namespace.
	ClusterScoped bool
	// Versions in the order of preference; the server's preferred one if empty.
	Versions []string
	// Reads are the fields that Reduce reads, such as "status.conditions", besides apiVersion,
	// kind and the name, namespace, UID and resourceVersion; all fields if empty. No others
	// are decoded.
	Reads []string
	// Reduce makes the stored form of a demanded object. It may modify its argument. If
	// nil, the object is stored without its managed fields.
	Reduce func(*unstructured.Unstructured) (client.Object, error)
	// Observe makes an observation of a stored object; nil for kinds that are not in the
	// index.
	Observe func(client.Object) index.Observation
}

// Connections is what the watchers need of clusters.Manager.
type Connections interface {
	Demand(name multicluster.ClusterName, owner string)
	Release(name multicluster.ClusterName, owner string)
	Connection(name multicluster.ClusterName) (*clusters.Connection, error)
	Snapshot(name multicluster.ClusterName) (clusters.Snapshot, bool)
	ReportKinds(name multicluster.ClusterName, kinds []capstanv1.WatchedKind, apps int)
}

// Options of a Watcher.
type Options struct {
	Clusters Connections
	Index    *index.Index
	// Kinds returns how a kind is read. It is pure.
	Kinds func(schema.GroupKind) Kind
	// Wake receives the Pipelines to reconcile; initial ones may wait for all others. It
	// must not block.
	Wake func(pipelines []types.NamespacedName, initial bool)
	// Scheme gives Readers the kinds of Go types; client-go's if nil. Unstructured objects
	// need none.
	Scheme *runtime.Scheme
	// SourcesIn returns whether Sources deliver objects of a cluster with which they are
	// engaged; always, if nil. It is called again when the Listener's ReferenceChanged is
	// called. It must not block.
	SourcesIn func(multicluster.ClusterName) bool
	// Namespaces restrict what Sources demand of the management cluster, whose kinds are then
	// listed by namespace; all if there are none.
	Namespaces []string
	// EveryReplica runs the Watcher without leader election. It watches what is demanded; on
	// a replica that does not lead, this is only the management cluster.
	EveryReplica bool
	// Lists is how many initial lists are under way in the process, each of which may hold a
	// cluster's whole answer in memory; 8 for each CPU if 0.
	Lists int
	// MaxObjects (20,000) of one kind in one workload cluster, demanded or not. A key takes
	// half a kilobyte, so no tenant can take more than about 10 MiB by creating
	// objects.
	MaxObjects int
	// MaxLocalObjects (DefaultMaxLocalObjects) of one kind in the management cluster; where it is
	// watched by namespace, in each of them. A list may have 26 KiB, and the memory 3.3 KiB, for
	// each object.
	MaxLocalObjects int
	// Registerer of the metrics; not registered if nil.
	Registerer prometheus.Registerer
	// Timings that are not zero replace the defaults.
	Timings Timings
	Clock   clock.WithTicker
	Logger  logr.Logger
}

// Timings of watchers. A zero field means its default.
type Timings struct {
	// FreshFor (DefaultFreshFor) is how long observations are fresh after the last byte from their
	// cluster. Probes are at most 36 s apart and take at most 5 s, so a healthy silent
	// cluster stays fresh.
	FreshFor time.Duration
	// Check (2 s) is how often the loop searches for clusters that are due: a freshness, a linger
	// or the wait before a retry has ended. Other clusters are checked when an event triggers it.
	Check time.Duration
	// Linger (60 s) is how long an informer runs without a demand: edits and GitOps tools
	// often delete and create an object within seconds.
	Linger time.Duration
	// Retry (30 s) is the wait for a kind that is not installed or not allowed. It doubles
	// up to RetryMax (10 min): a user has to fix something first.
	Retry, RetryMax time.Duration
	// TransientRetry (1 s) is the wait for a kind after a failed call to the API server. It
	// doubles up to Retry.
	TransientRetry time.Duration
	// SlowList (30 s) is the duration after which an initial list is reported as slow, and
	// makes its cluster Degraded. The time in which it waits for a slot does not count.
	SlowList time.Duration
	// ListSlot (2 s) is how long an initial list may hold one of the slots. Most lists take
	// milliseconds; a cluster that does not answer blocks others no longer than this.
	ListSlot time.Duration
	// Blind (10 min) is how long a watch may deliver nothing while the cluster answers. An
	// API server sends a bookmark about every minute.
	Blind time.Duration
	// Call (10 s) is the deadline of one call that is not a list or a watch.
	Call time.Duration
}

func (t *Timings) defaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.FreshFor, DefaultFreshFor},
		{&t.Check, 2 * time.Second},
		{&t.Linger, time.Minute},
		{&t.Retry, 30 * time.Second},
		{&t.RetryMax, 10 * time.Minute},
		{&t.TransientRetry, time.Second},
		{&t.SlowList, 30 * time.Second},
		{&t.ListSlot, 2 * time.Second},
		{&t.Blind, 10 * time.Minute},
		{&t.Call, 10 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}

func (o *Options) defaults() {
	o.Timings.defaults()
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Logger.GetSink() == nil {
		o.Logger = logr.Discard()
	}
	if o.Scheme == nil {
		o.Scheme = clientscheme.Scheme
	}
	if o.Lists == 0 {
		o.Lists = listsForEachCPU * goruntime.GOMAXPROCS(0)
	}
	if o.MaxObjects == 0 {
		o.MaxObjects = maxObjects
	}
	if o.MaxLocalObjects == 0 {
		o.MaxLocalObjects = DefaultMaxLocalObjects
	}
}

const (
	maxObjects = 20_000
	// DefaultMaxLocalObjects is the default of Options.MaxLocalObjects.
	DefaultMaxLocalObjects = 100_000
	// DefaultFreshFor is the default of Timings.FreshFor.
	DefaultFreshFor = 45 * time.Second
	// MaxLocalObjectsFlag is the name of its flag.
	MaxLocalObjectsFlag = "management-max-objects"

	// listsForEachCPU is the default of Options.Lists for each CPU.
	listsForEachCPU = 8

	// wakesPerSecond and wakeBurst bound the wakes that one cluster may cause.
	wakesPerSecond = 50
	wakeBurst      = 100

	// owner is this package's name as an owner of connections.
	owner = "watchers"
)
