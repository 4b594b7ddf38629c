package watchers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// keeper keeps one kind of one cluster watched: it finds the served version and
// what may be listed, runs the informers, and tries again when that ends.
//
// Fields whose names begin with locked are guarded by the Watcher's mutex.
type keeper struct {
	w       *Watcher
	cluster multicluster.ClusterName
	kind    Kind
	// changed tells the keeper's goroutine that the demand changed; it holds one.
	changed chan struct{}

	// lockedWant: what is wanted → owners.
	lockedWant map[wanted]sets.Set[string]
	// lockedSince is since when nothing is wanted; zero while something is.
	lockedSince time.Time
	// lockedEpoch is the connection that the keeper runs on; 0 for none.
	lockedEpoch  int64
	lockedCancel context.CancelFunc
	// lockedBegan is when the keeper was started on the connection.
	lockedBegan time.Time
	// lockedVersion is the served version; empty until it is known.
	lockedVersion string
	// lockedSynced: every informer has its initial list.
	lockedSynced bool
	// lockedProblem is why it cannot be watched.
	lockedProblem problem
	// lockedInformers: namespace, or "" for all → informer.
	lockedInformers map[string]*informer
	// lockedSources are told of what is stored.
	lockedSources map[*subscription]struct{}
}

// wanted is an object, all objects of a namespace (no name), or all.
type wanted struct{ namespace, name string }

// problem is why a kind cannot be watched in a cluster.
type problem struct{ reason, message string }

// Reasons of kinds that are not synced.
const (
	ReasonConnecting    = "Connecting"
	ReasonNotSynced     = clusters.ReasonSyncing
	ReasonSlow          = "ListSlow"
	ReasonNotInstalled  = "CRDNotInstalled"
	ReasonForbidden     = "Forbidden"
	ReasonUnreadable    = "Unreadable"
	ReasonSilent        = "Silent"
	ReasonNotServedHere = "VersionNotServed"
)

func newKeeper(w *Watcher, cluster multicluster.ClusterName, kind Kind) *keeper {
	return &keeper{
		w: w, cluster: cluster, kind: kind,
		changed:         make(chan struct{}, 1),
		lockedWant:      map[wanted]sets.Set[string]{},
		lockedInformers: map[string]*informer{},
		lockedSources:   map[*subscription]struct{}{},
	}
}

func (k *keeper) indexKind() index.Kind {
	return index.Kind{Group: k.kind.GroupKind.Group, Kind: k.kind.GroupKind.Kind}
}

func (k *keeper) object(namespace, name string) index.Object {
	return index.Object{Cluster: string(k.cluster), Kind: k.indexKind(), Namespace: namespace, Name: name}
}

// demand and release are called with the Watcher's mutex held.
func (k *keeper) demand(d Demand, owner string) {
	want := wanted{d.Namespace, d.Name}
	if k.lockedWant[want] == nil {
		k.lockedWant[want] = sets.New[string]()
		k.tellChanged()
	}
	k.lockedWant[want].Insert(owner)
	k.lockedSince = time.Time{}
}

func (k *keeper) release(d Demand, owner string, now time.Time) {
	want := wanted{d.Namespace, d.Name}
	k.lockedWant[want].Delete(owner)
	if k.lockedWant[want].Len() == 0 {
		delete(k.lockedWant, want)
		k.tellChanged()
	}
	if len(k.lockedWant) == 0 {
		k.lockedSince = now
	}
}

// tellChanged never blocks: the channel holds one, and one is enough.
func (k *keeper) tellChanged() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// over tells whether nobody has wanted the kind for the linger.
func (k *keeper) over(now time.Time, linger time.Duration) bool {
	return len(k.lockedWant) == 0 && !k.lockedSince.IsZero() && now.Sub(k.lockedSince) >= linger
}

// wants tells whether an object is demanded.
func (k *keeper) wants(namespace, name string) bool {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	return k.lockedWants(namespace, name)
}

func (k *keeper) lockedWants(namespace, name string) bool {
	for _, want := range []wanted{{namespace, name}, {namespace, ""}, {"", ""}} {
		if _, ok := k.lockedWant[want]; ok {
			return true
		}
	}
	return false
}

// start runs the keeper on a connection, unless it runs on that one already.
func (k *keeper) start(ctx context.Context, connection *clusters.Connection) {
	k.w.mu.Lock()
	if k.lockedEpoch == connection.Epoch() && k.lockedCancel != nil {
		k.w.mu.Unlock()
		return
	}
	before := k.lockedCancel
	ctx, cancel := context.WithCancel(ctx)
	k.lockedEpoch, k.lockedCancel = connection.Epoch(), cancel
	k.lockedSynced, k.lockedVersion, k.lockedProblem = false, "", problem{}
	k.lockedBegan = k.w.o.Clock.Now()
	k.w.mu.Unlock()
	if before != nil {
		before()
	}
	// The connection's end is the keeper's too, but the keeper must be able to stop
	// alone: so one context of the two.
	stopAfter := context.AfterFunc(connection.Context(), cancel)
	k.w.keepers.Add(1)
	go func() {
		defer k.w.keepers.Done()
		defer stopAfter()
		defer cancel()
		k.run(ctx, connection)
		k.ended(connection.Epoch())
	}()
}

// ended notes that the keeper does not run any more, so that it can be started
// again on another connection.
func (k *keeper) ended(epoch int64) {
	k.w.mu.Lock()
	if k.lockedEpoch == epoch {
		k.lockedEpoch, k.lockedCancel, k.lockedSynced, k.lockedBegan = 0, nil, false, time.Time{}
	}
	k.w.mu.Unlock()
	k.w.nudge()
}

func (k *keeper) stop() {
	k.w.mu.Lock()
	cancel := k.lockedCancel
	k.w.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// run watches until the context ends.
func (k *keeper) run(ctx context.Context, connection *clusters.Connection) {
	wait := k.w.o.Timings.Retry
	for ctx.Err() == nil {
		began := k.w.o.Clock.Now()
		err := k.watch(ctx, connection)
		if ctx.Err() != nil {
			return
		}
		if k.w.o.Clock.Since(began) > k.w.o.Timings.RetryMax {
			wait = k.w.o.Timings.Retry // It went well for long: this is a new trouble.
		}
		k.setProblem(problemOf(err, k))
		if !errors.Is(err, errReplan) {
			if !k.sleep(ctx, wait+time.Duration(rand.Int64N(int64(wait)/5+1))) {
				return
			}
			wait = min(2*wait, k.w.o.Timings.RetryMax)
		}
	}
}

// sleep until the time is over; false when the context ended.
func (k *keeper) sleep(ctx context.Context, d time.Duration) bool {
	timer := k.w.o.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

func (k *keeper) setProblem(p problem) {
	k.w.mu.Lock()
	same := k.lockedProblem == p
	k.lockedProblem = p
	if p.reason != "" {
		k.lockedSynced = false
	}
	k.w.mu.Unlock()
	if !same {
		if p.reason != "" {
			k.w.o.Logger.Info("kind cannot be watched", "cluster", k.cluster, "kind", k.kind.GroupKind.String(), "reason", p.reason, "message", p.message)
		}
		k.w.nudge()
	}
}

// freshness judges whether observations can be relied upon now.
func (k *keeper) freshness(s clusters.Snapshot, connection *clusters.Connection, now time.Time) index.Freshness {
	k.w.mu.Lock()
	synced, p, began := k.lockedSynced, k.lockedProblem, k.lockedBegan
	k.w.mu.Unlock()
	cluster := "the management cluster"
	if k.cluster != "" {
		cluster = string(k.cluster)
	}
	stale := func(reason, message string) index.Freshness { return index.Freshness{Reason: reason, Message: message} }
	switch s.State {
	case capstanv1.ConnectionReady, capstanv1.ConnectionDegraded:
	case capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting, "":
		message := fmt.Sprintf("%s is being connected to", cluster)
		if s.Message != "" {
			message = fmt.Sprintf("%s: %s", cluster, s.Message)
		}
		return stale(ReasonConnecting, message)
	case capstanv1.ConnectionUnreachable, capstanv1.ConnectionAuthFailed, capstanv1.ConnectionRemoved:
		return stale(string(s.State), fmt.Sprintf("%s is %s: %s", cluster, s.State, s.Message))
	}
	switch {
	case p.reason != "":
		return stale(p.reason, p.message)
	case !synced && !began.IsZero() && now.Sub(began) > k.w.o.Timings.SlowList:
		return stale(ReasonSlow, fmt.Sprintf("the initial list of %s in %s takes longer than %s", k.kind.GroupKind, cluster, k.w.o.Timings.SlowList))
	case !synced || connection == nil:
		return stale(ReasonNotSynced, fmt.Sprintf("the initial list of %s in %s is under way", k.kind.GroupKind, cluster))
	case now.Sub(connection.LastContact()) >= k.w.o.Timings.FreshFor:
		return stale(ReasonSilent, fmt.Sprintf("nothing was heard of %s for %s", cluster, k.w.o.Timings.FreshFor))
	}
	return index.Freshness{Fresh: true}
}

// watchedKind is called with the Watcher's mutex held.
func (k *keeper) watchedKind() capstanv1.WatchedKind {
	shown := capstanv1.WatchedKind{
		Kind: k.kind.GroupKind.String(), Version: k.lockedVersion, Synced: k.lockedSynced,
		Reason: k.lockedProblem.reason, Message: k.lockedProblem.message,
	}
	if !shown.Synced && shown.Reason == "" {
		shown.Reason = ReasonNotSynced
	}
	return shown
}

// observe brings an observation to the index and returns whom to wake.
func (k *keeper) observe(namespace, name string, o index.Observation) []types.NamespacedName {
	o.At = k.w.o.Clock.Now()
	woken := k.w.o.Index.Observe(k.object(namespace, name), o)
	result := "equal"
	if len(woken) > 0 {
		result = "changed"
	}
	k.w.m.observations.WithLabelValues(k.kind.GroupKind.String(), result).Inc()
	return woken
}

// wake the Pipelines that an observation concerns.
func (k *keeper) wake(pipelines []types.NamespacedName, initial bool) {
	if len(pipelines) == 0 {
		return
	}
	k.w.mu.Lock()
	c := k.w.lockedState.clusters[k.cluster]
	k.w.mu.Unlock()
	if c != nil {
		k.w.wake(c, pipelines, initial)
	}
}
