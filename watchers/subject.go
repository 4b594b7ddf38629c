package watchers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// identity names a cluster.
type identity struct {
	name multicluster.ClusterName
	// display is the name in messages.
	display string
}

// subject is what a keeper and its runs watch: one kind of one cluster, with the demand
// for it.
type subject struct {
	shared  *shared
	cluster identity
	bucket  *wakeBucket
	kind    Kind
	// pace of its events; nil for no limit.
	pace *pace
	// work does all pending work. It runs in its own goroutine.
	work func(context.Context)

	// lockedState is guarded by shared.mu.
	lockedState subjectState
}

type subjectState struct {
	// pending: there is work; working: the work goroutine runs.
	pending, working bool
	// retryAt is when to work without an event; zero for never. No run starts before.
	retryAt time.Time
	demand  demandSet
	// problem is why the last run ended, until another is synced.
	problem problem
	// subscriptions receive what is stored.
	subscriptions map[*subscription]struct{}
}

func newSubject(s *shared, cluster identity, bucket *wakeBucket, kind Kind) *subject {
	made := &subject{
		shared: s, cluster: cluster, bucket: bucket, kind: kind,
		lockedState: subjectState{demand: demandSet{}, subscriptions: map[*subscription]struct{}{}},
	}
	if !made.isLocal() {
		made.pace = newPace(s.options.Clock)
	}
	return made
}

func (s *subject) indexKind() index.Kind {
	return index.Kind{Group: s.kind.GroupKind.Group, Kind: s.kind.GroupKind.Kind}
}

func (s *subject) object(want wanted) index.Object {
	return index.Object{Cluster: string(s.cluster.name), Kind: s.indexKind(), Namespace: want.namespace, Name: want.name}
}

// place is where a problem of the kind occurs: in a namespace, or in the whole cluster.
func (s *subject) place(namespace string) place {
	return place{
		kind: s.kind, cluster: s.cluster.display, local: s.isLocal(),
		namespace: namespace, limits: s.shared.options.limitsIn(s.isLocal()),
	}
}

// isLocal returns whether the cluster is the management cluster.
func (s *subject) isLocal() bool { return s.cluster.name == clusters.LocalName }

// wants returns whether an object is demanded.
func (s *subject) wants(namespace, name string) bool {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	return s.lockedState.demand.has(namespace, name)
}

// demandLocked adds an owner. The object is checked again even if it has other owners: the
// index may have removed it between one owner and the next.
func (s *subject) demandLocked(want wanted, owner string) {
	s.lockedState.demand.add(want, owner)
	s.pokeLocked()
}

// sweepLocked drops demands that have had no owner for the linger. It returns whether no demand
// is left, and when the next linger ends; zero if none has begun.
func (s *subject) sweepLocked(now time.Time) (empty bool, next time.Time) {
	dropped, next := s.lockedState.demand.sweep(now, s.shared.options.Timings.Linger)
	if dropped {
		s.pokeLocked()
	}
	return len(s.lockedState.demand) == 0, next
}

// pokeLocked makes the work goroutine work. It never waits.
func (s *subject) pokeLocked() {
	s.lockedState.pending = true
	ctx := s.shared.lockedState.ctx
	if !s.lockedState.working && ctx != nil && ctx.Err() == nil {
		s.lockedState.working = true
		s.shared.goroutines.Go(func() { s.work(ctx) })
	}
}

func (s *subject) poke() {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	s.pokeLocked()
}

// retryBy makes the work goroutine work at a time, or earlier.
func (s *subject) retryBy(at time.Time) {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	s.lockedState.retryAt = sooner(s.lockedState.retryAt, at)
	s.shared.changedLocked(s.cluster.name)
}

// reduce makes the stored form of an object: its key, if the object is not demanded.
func (s *subject) reduce(u *unstructured.Unstructured) client.Object {
	namespace, name := u.GetNamespace(), u.GetName()
	switch {
	case !s.wants(namespace, name):
		return newKey(u)
	case s.kind.Reduce == nil:
		u.SetManagedFields(nil)
		return u
	}
	short := newKey(u) // Reduce may modify the object.
	o, err := s.kind.Reduce(u)
	if err != nil {
		s.shared.options.Logger.V(1).Info("object cannot be read", "cluster", s.cluster.name, "kind", s.kind.GroupKind.String(),
			"namespace", namespace, "name", name, "error", err.Error())
		short.unreadable = true
		return short
	}
	return o
}

// record writes an observation to the index and returns the Pipelines to wake.
func (s *subject) record(want wanted, o index.Observation) []types.NamespacedName {
	o.At = s.shared.options.Clock.Now()
	woken := s.shared.options.Index.Observe(s.object(want), o)
	result := resultEqual
	if len(woken) > 0 {
		result = resultChanged
	}
	s.shared.meters.observations.WithLabelValues(s.kind.GroupKind.String(), result).Inc()
	return woken
}

// wake wakes the Pipelines that an observation concerns.
func (s *subject) wake(pipelines []types.NamespacedName, initial bool) {
	s.shared.wakes.wake(s.bucket, pipelines, initial)
}

// notifySources passes an event to the kind's subscriptions.
func (s *subject) notifySources(before, after client.Object, initial bool) {
	for _, one := range s.subscriptions() {
		one.notify(before, after, initial)
	}
}

func (s *subject) subscriptions() []*subscription {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	if len(s.lockedState.subscriptions) == 0 {
		return nil
	}
	all := make([]*subscription, 0, len(s.lockedState.subscriptions))
	for one := range s.lockedState.subscriptions {
		all = append(all, one)
	}
	return all
}
