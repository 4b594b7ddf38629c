package clusters

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// Retries of a write that failed.
const (
	writeRetry    = time.Second
	writeRetryMax = time.Minute
)

// writeShare is the part of the time that writes may take, so that a start with a thousand clusters
// leaves the API server to those who write what depends on them: the statuses of Pipelines.
const writeShare = 3

// longestRest is the longest time without a write after a round of them.
const longestRest = time.Second

// cpusEach CPUs there are for each object that is written at the same time: with an object for each CPU, the first start of a
// thousand clusters took a tenth longer on two CPUs, because the statuses of Pipelines waited for twice as many writes.
const cpusEach = 2

// roundEach objects are written in a round for each one that is written at the same time. A round is short, so that a
// problem waits for few others, and long enough that a fleet is not searched for each object.
const roundEach = 8

// desired is the desired state of a ClusterConnection.
type desired struct {
	ref Ref
	// create the object, owned by owner, if it does not exist. Set while the cluster object
	// exists.
	create bool
	owner  clusterObject
	status capstanv1.ClusterConnectionStatus
	// brief: the status is expected to change within seconds (isBrief).
	brief bool
	// remove the object; the other fields are not used then.
	remove bool
}

// urgentLocked reports whether a state shows a problem or its end, or the object must go.
func (w *writer) urgentLocked(name multicluster.ClusterName, d desired) bool {
	shown := w.lockedState.written[name]
	return d.remove || isProblem(d.status.State) || shown != nil && isProblem(shown.Status.State)
}

// writer writes ClusterConnections in rounds, each of them once in a round, and rests after each round.
// A slow management cluster delays the writes but no connection. Only the newest desired state of
// each object is kept. Problems and their ends are written first.
type writer struct {
	hub      client.Client
	recorder events.EventRecorder
	clock    clock.Clock
	log      logr.Logger
	// began is when the process began.
	began   time.Time
	delay   time.Duration
	timeout time.Duration
	wake    chan struct{} // of capacity 1
	// atOnce objects are written at the same time.
	atOnce int

	mu          sync.Mutex
	lockedState struct {
		queue map[multicluster.ClusterName]queued
		// found are objects of an earlier hub that were not needed yet.
		found map[multicluster.ClusterName]*capstanv1.ClusterConnection
		// written are the last known objects.
		written map[multicluster.ClusterName]*capstanv1.ClusterConnection
	}
}

// queued is a desired state and the time of its write.
type queued struct {
	desired desired
	due     time.Time
	wait    backoff.Sequence
	logged  bool // a failure was logged
}

func newWriter(hub client.Client, o Options, log logr.Logger) *writer {
	w := &writer{
		hub: hub, recorder: o.Recorder, clock: o.Clock, log: log,
		began: o.Clock.Now(), delay: o.Timings.WriteDelay, timeout: o.Timings.HubTimeout,
		wake: make(chan struct{}, 1), atOnce: max(1, runtime.GOMAXPROCS(0)/cpusEach),
	}
	w.lockedState.written = map[multicluster.ClusterName]*capstanv1.ClusterConnection{}
	w.lockedState.queue = map[multicluster.ClusterName]queued{}
	w.lockedState.found = map[multicluster.ClusterName]*capstanv1.ClusterConnection{}
	return w
}

// adopt passes an object of an earlier hub, so that it is not read again.
func (w *writer) adopt(name multicluster.ClusterName, object *capstanv1.ClusterConnection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lockedState.found[name] = object
}

// adopted returns that object, once; nil if there is none.
func (w *writer) adopted(name multicluster.ClusterName) *capstanv1.ClusterConnection {
	w.mu.Lock()
	defer w.mu.Unlock()
	object := w.lockedState.found[name]
	delete(w.lockedState.found, name)
	return object
}

// last returns the last known object; nil if there is none.
func (w *writer) last(name multicluster.ClusterName) *capstanv1.ClusterConnection {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lockedState.written[name]
}

// known stores the last known object; nil for none.
func (w *writer) known(name multicluster.ClusterName, object *capstanv1.ClusterConnection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if object == nil {
		delete(w.lockedState.written, name)
		return
	}
	w.lockedState.written[name] = object
}

// queue queues the desired state of an object, which is written after poke. It returns at once.
func (w *writer) queue(name multicluster.ClusterName, want desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	item, waiting := w.lockedState.queue[name]
	if !waiting {
		item = queued{due: w.clock.Now().Add(w.delay), wait: backoff.NewSequence(writeRetry, writeRetryMax)}
	}
	item.desired = want
	w.lockedState.queue[name] = item
}

// remove queues the deletion of an object.
func (w *writer) remove(name multicluster.ClusterName, ref Ref) {
	w.queue(name, desired{ref: ref, remove: true})
	w.poke()
}

// poke makes the writer write what is due. It never waits.
func (w *writer) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *writer) run(ctx context.Context) {
	for {
		round, next := w.pick(roundEach * w.atOnce)
		if len(round) > 0 {
			began := w.clock.Now()
			var writing errgroup.Group
			writing.SetLimit(w.atOnce)
			for _, item := range round {
				writing.Go(func() error {
					w.attempt(ctx, item)
					return nil
				})
			}
			_ = writing.Wait()
			w.pause(ctx, min((writeShare-1)*w.clock.Since(began), longestRest), nil)
		} else {
			w.pause(ctx, next, w.wake)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// pause waits until the time is over, wake is received from, or the context ends.
func (w *writer) pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := w.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C():
	}
}

// picked is an item that was removed from the queue.
type picked struct {
	queued
	name   multicluster.ClusterName
	urgent bool
}

// sooner compares the order in which items are written: urgent ones first, and then those that have been due for longest.
func sooner(a, b picked) int {
	switch {
	case a.urgent == b.urgent:
		return a.due.Compare(b.due)
	case a.urgent:
		return -1
	}
	return 1
}

// pick removes the items from the queue that are due, most at a time, in the order of sooner.
// Without one it returns the time until the next item is due.
func (w *writer) pick(most int) ([]picked, time.Duration) {
	now := w.clock.Now()
	next := idle
	w.mu.Lock()
	defer w.mu.Unlock()
	var due []picked
	for name, item := range w.lockedState.queue {
		if wait := item.due.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		// Most of a fleet may be due at a start, and few are picked: it is not sorted.
		found := picked{item, name, w.urgentLocked(name, item.desired)}
		if at, _ := slices.BinarySearchFunc(due, found, sooner); at < most {
			due = slices.Insert(due[:min(len(due), most-1)], at, found)
		}
	}
	for _, item := range due {
		delete(w.lockedState.queue, item.name)
	}
	return due, next
}

// attempt writes an object. After a failure it queues the desired state again, or the newer
// one if there is one.
func (w *writer) attempt(ctx context.Context, item picked) {
	call, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	name := item.name
	err := w.write(call, name, item.desired)
	if err == nil || ctx.Err() != nil {
		return
	}
	w.known(name, nil)                              // The object may have changed: read it again.
	if !item.logged && !apierrors.IsNotFound(err) { // An object that was deleted with its cluster is no problem.
		item.logged = true
		w.log.Error(err, "ClusterConnection cannot be written", "cluster", string(name))
	}
	item.due = w.clock.Now().Add(item.wait.Wait())
	w.mu.Lock()
	defer w.mu.Unlock()
	if newer, ok := w.lockedState.queue[name]; ok {
		item.desired = newer.desired
	}
	w.lockedState.queue[name] = item.queued
}

// write makes the object equal to its desired state.
func (w *writer) write(ctx context.Context, name multicluster.ClusterName, want desired) error {
	key := client.ObjectKey{Namespace: want.ref.Namespace, Name: connectionName(want.ref)}
	if want.remove {
		w.adopted(name)
		w.known(name, nil)
		object := &capstanv1.ClusterConnection{}
		object.Namespace, object.Name = key.Namespace, key.Name
		return client.IgnoreNotFound(w.hub.Delete(ctx, object))
	}
	current, err := w.current(ctx, name, key, want)
	if current == nil || err != nil {
		return err
	}
	if want.create {
		labelled := current.DeepCopy()
		setOwner(labelled, want.ref, want.owner)
		if !equality.Semantic.DeepEqual(labelled.ObjectMeta, current.ObjectMeta) {
			if err := w.hub.Patch(ctx, labelled, client.MergeFrom(current)); err != nil {
				return err
			}
			labelled.ManagedFields = nil
			current = labelled
			w.known(name, current)
		}
	}
	status := merged(current.Status, want.status, want.brief)
	status.ObservedGeneration = current.Generation
	status.DropFormerNames()
	if equality.Semantic.DeepEqual(status, current.Status) {
		return nil
	}
	changed := current.DeepCopy()
	changed.Status = status
	if err := w.hub.Status().Patch(ctx, changed, client.MergeFrom(current.PatchBase())); err != nil {
		return err
	}
	changed.ManagedFields = nil
	w.known(name, changed)
	w.emitEvent(changed, current.Status, want.owner)
	return nil
}

// current returns the present object, and creates it if that is desired. It returns nil if
// the object does not exist.
func (w *writer) current(ctx context.Context, name multicluster.ClusterName, key client.ObjectKey, want desired) (*capstanv1.ClusterConnection, error) {
	found, object := w.adopted(name), w.last(name)
	if object == nil {
		object = found
	}
	var refused error
	if object == nil && want.create {
		object = newClusterConnection(key, want.ref, want.owner)
		if refused = w.hub.Create(ctx, object); refused != nil {
			object = nil // It may exist, also if a quota or a webhook refuses another one.
		}
	}
	if object == nil {
		object = &capstanv1.ClusterConnection{}
		if err := w.hub.Get(ctx, key, object); apierrors.IsNotFound(err) {
			return nil, refused
		} else if err != nil {
			return nil, err
		}
	}
	object.ManagedFields = nil // Nothing reads them.
	w.known(name, object)
	return object, nil
}

// emitEvent emits an Event when the state changed. A cluster that is older than this process has none
// for its first connection: a first start would create one for each cluster, while the API server has
// the statuses of all Pipelines to write.
func (w *writer) emitEvent(object *capstanv1.ClusterConnection, before capstanv1.ClusterConnectionStatus, owner clusterObject) {
	if w.recorder == nil || object.Status.State == before.State {
		return
	}
	if owner.Created.Before(w.began) && neverConnected(before) && !isProblem(object.Status.State) {
		return
	}
	kind := corev1.EventTypeNormal
	if isProblem(object.Status.State) {
		kind = corev1.EventTypeWarning
	}
	w.recorder.Eventf(object, nil, kind, string(object.Status.State), "Connect", "%s: %s", object.Status.Reason, object.Status.Message)
}

// neverConnected reports whether the status is of a cluster that had neither a connection nor a problem.
func neverConnected(status capstanv1.ClusterConnectionStatus) bool {
	return !isProblem(status.State) && status.State != capstanv1.ConnectionReady && status.KubernetesVersion == ""
}
