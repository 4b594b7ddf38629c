package watchers

import (
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// Demand is what an owner wants of a cluster.
type Demand struct {
	Cluster multicluster.ClusterName
	Kind    schema.GroupKind
	// Namespace and Name of the object; an empty Name means every object of the
	// namespace, an empty Namespace with it every object of the cluster.
	Namespace, Name string
}

// Kind is how a kind is read.
type Kind struct {
	GroupKind schema.GroupKind
	// Versions in the order of preference; the server's preferred one when empty.
	Versions []string
	// Reduce makes what is stored of a demanded object.
	Reduce func(*unstructured.Unstructured) (client.Object, error)
	// Observe makes an observation of what is stored; nil for kinds that are not for
	// the index.
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
	// Kinds says how a kind is read.
	Kinds func(schema.GroupKind) Kind
	// Wake is told which Pipelines to look at; initial ones come from an initial
	// list. It must not block.
	Wake func(pipelines []types.NamespacedName, initial bool)
	// Registerer of the metrics; not registered when nil.
	Registerer prometheus.Registerer
	// Timings, where they are not zero, replace the defaults.
	Timings Timings
	Clock   clock.WithTicker
	Logger  logr.Logger
}

// Timings of watchers. A zero field means its default.
type Timings struct {
	// FreshFor (45 s) after the last byte from a cluster its observations count.
	// Probes come at most 36 s apart, so a healthy silent cluster stays fresh.
	FreshFor time.Duration
	// Check (2 s) is how often freshness and linger are looked at.
	Check time.Duration
	// Linger (60 s) of an informer that nobody demands any more: edits and GitOps
	// tools delete and create in one breath.
	Linger time.Duration
	// Retry (30 s) of a kind that cannot be watched doubles up to RetryMax (10 min).
	Retry, RetryMax time.Duration
	// SlowList (30 s) is when an initial list that is under way counts as trouble.
	SlowList time.Duration
	// ListSlot (10 s) is how long an initial list may hold one of the slots.
	ListSlot time.Duration
}

func (t *Timings) defaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.FreshFor, 45 * time.Second},
		{&t.Check, 2 * time.Second},
		{&t.Linger, time.Minute},
		{&t.Retry, 30 * time.Second},
		{&t.RetryMax, 10 * time.Minute},
		{&t.SlowList, 30 * time.Second},
		{&t.ListSlot, 10 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}

const (
	// listSlots bounds the initial lists under way in the process, each of which
	// may hold a cluster's whole answer in memory.
	listSlots = 16

	// wakesPerSecond and wakeBurst bound what one cluster may ask of the hub.
	wakesPerSecond = 50
	wakeBurst      = 100

	// foldFor is how long folded wakes wait before the bucket is looked at again.
	foldFor = 20 * time.Millisecond

	// owner is this package's name as an owner of connections.
	owner = "watchers"
)
