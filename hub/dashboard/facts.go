package dashboard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/internal/delivery"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// factsFor is how long the observed states of clusters are reused. States that depend on
// time, such as stale, are shown at most factsFor and pulseEvery late.
const factsFor = 500 * time.Millisecond

// errNotReady is returned until the caches are filled from the management cluster.
var errNotReady = errors.New("it has not read its objects yet")

// source builds the facts, once for all viewers.
type source struct {
	cache cache.Cache
	live  func() map[view.Cluster]view.Observed
	// objects reads the cluster objects; nil when they are not shown.
	objects func() ([]clusters.Object, error)
	leads   func() bool
	warm    bool
	clock   clock.WithTicker
	// lease reads the lease of the leader; nil if that is not possible.
	lease func(context.Context) (Lease, error)
	// sharing is nil for a hub that does not share the management cluster.
	sharing *Sharing
	// machines reads the machines of the management cluster; nil when they are not shown.
	machines client.Reader
	// retention of finished Promotions.
	retention delivery.Retention

	// history has the states of the connections, which are recorded without a viewer, too.
	history *history

	// ready is set once the caches can be read without waiting.
	ready atomic.Bool
	// touched has an element when objects changed since pulse last received from it.
	touched chan struct{}

	// mu guards the fields that follow. It is held while the caches, which are memory, are read.
	mu sync.Mutex
	// lockedObjects are shared with the caches and with every Facts that is made from them.
	lockedObjects *view.Facts
	lockedFacts   *view.Facts
	// lockedEvents are the hub's Events, by UID. There can be tens of thousands, and a
	// list would copy each of them.
	lockedEvents map[types.UID]*eventsv1.Event
	// lockedMachines were read at lockedMachinesAt.
	lockedMachines   machines
	lockedMachinesAt time.Time
	lockedLeader     leaseReading
	lockedHubs       []view.Hub
}

// kinds whose objects are shown.
func kinds() []client.Object {
	return []client.Object{&capstanv1.ClusterConnection{}, &pipelinesv1.Pipeline{}, &capstanv1.Promotion{}, &eventingv1.EventingBackend{}, &eventsv1.Event{}}
}

// watch adds event handlers to the informers of all kinds; they run until the cache ends.
func (s *source) watch(ctx context.Context) error {
	for _, kind := range kinds() {
		informer, err := s.cache.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { s.touch(o, false) },
			UpdateFunc: func(before, o any) {
				if !promotions.Unchanged(before.(client.Object), o.(client.Object)) {
					s.touch(o, false)
				}
			},
			DeleteFunc: func(o any) { s.touch(o, true) },
		}); err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	s.ready.Store(true)
	return nil
}

// touch handles the change or deletion of an object.
func (s *source) touch(object any, deleted bool) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	s.history.change(object, deleted)
	s.mu.Lock()
	s.lockedObjects = nil
	if e, ok := object.(*eventsv1.Event); ok {
		if deleted {
			delete(s.lockedEvents, e.UID)
		} else {
			s.lockedEvents[e.UID] = e
		}
	}
	s.mu.Unlock()
	select {
	case s.touched <- struct{}{}:
	default:
	}
}

// facts returns the current facts: the same value until something changes or factsFor is
// over. The error is errNotReady before the caches are filled.
func (s *source) facts(ctx context.Context) (*view.Facts, error) {
	if !s.ready.Load() {
		return nil, errNotReady
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if s.lockedObjects != nil && s.lockedFacts != nil && now.Sub(s.lockedFacts.Now) < factsFor {
		return s.lockedFacts, nil
	}
	if s.lockedObjects == nil {
		objects, err := s.readLocked(ctx)
		if err != nil {
			return nil, err
		}
		s.lockedObjects = objects
	}
	if s.machines != nil && now.Sub(s.lockedMachinesAt) >= machinesFor {
		s.lockedMachines, s.lockedMachinesAt = readMachines(ctx, s.machines), now
	}
	facts := *s.lockedObjects
	facts.NodeGroups, facts.Instances, facts.Unread = s.lockedMachines.groups, s.lockedMachines.instances, s.lockedMachines.unread
	if s.objects != nil {
		read, err := s.objects()
		if facts.Objects = objectsOf(read); err != nil {
			facts.Unread = append(slices.Clone(facts.Unread), err.Error())
		}
	}
	facts.Now, facts.Leads, facts.Retention = now, s.leads(), s.retention
	facts.Connects = facts.Leads || s.warm
	facts.Past, facts.PastSince, facts.BackendPast = s.history.past(), s.history.began, s.history.backends()
	if facts.Connects {
		facts.Observed = s.live()
	}
	if !facts.Leads {
		facts.LeaderSeen, facts.Leaderless = s.lockedLeader.at, s.lockedLeader.expired(now)
	}
	if s.sharing != nil {
		facts.Hub, facts.Conflict, facts.OtherHubs = s.sharing.Name, s.sharing.Conflict(), s.lockedHubs
	}
	s.lockedFacts = &facts
	return s.lockedFacts, nil
}

// release forgets the last facts, which keep the objects of their time in memory.
func (s *source) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedObjects, s.lockedFacts = nil, nil
	if s.clock.Since(s.lockedMachinesAt) >= machinesFor {
		s.lockedMachines = machines{}
	}
}

// readLocked reads the caches. Objects are not copied, except Promotions: this package never
// changes them, but the cache may have packed a Promotion.
func (s *source) readLocked(ctx context.Context) (*view.Facts, error) {
	var connections capstanv1.ClusterConnectionList
	var pipelines pipelinesv1.PipelineList
	var promotions capstanv1.PromotionList
	var backends eventingv1.EventingBackendList
	for _, list := range []client.ObjectList{&connections, &pipelines, &backends} {
		if err := s.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("reading %T: %w", list, err)
		}
	}
	if err := s.cache.List(ctx, &promotions); err != nil {
		return nil, fmt.Errorf("reading %T: %w", promotions, err)
	}
	for i := range pipelines.Items { // The targets of fleets are those that were selected.
		pipelines.Items[i] = *pipelines.Items[i].Shown()
	}
	return &view.Facts{
		Connections: connections.Items, Pipelines: pipelines.Items, Promotions: promotions.Items, Backends: backends.Items,
		Events: slices.Collect(maps.Values(s.lockedEvents)),
	}, nil
}

// objectsOf returns the cluster objects as the pages use them, in the same order.
func objectsOf(read []clusters.Object) []view.Object {
	of := func(ref clusters.Ref) view.Cluster {
		return view.Cluster{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
	}
	all := make([]view.Object, 0, len(read))
	for _, o := range read {
		all = append(all, view.Object{Cluster: of(o.Ref), Of: of(o.Of), Labels: o.Labels, Created: o.Created, Deleting: o.Deleting})
	}
	return all
}

// CacheOptions restrict the cached Events to those that the hub reports: a management
// cluster has many more.
func CacheOptions(reporter string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&eventsv1.Event{}: {Field: fields.OneTermEqualSelector("reportingController", reporter)}}
}
