package watchers

import (
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// watched is one cluster.
type watched struct {
	name multicluster.ClusterName
	// forPeople is the name in messages.
	forPeople string

	// The loop's own:

	// demanded is whether the connection was demanded.
	demanded bool
	// uid tells the cluster from another of the same name; empty when not known yet.
	uid string
	// reported is what the connections were last told.
	reported []capstanv1.WatchedKind
	apps     int

	// Guarded by the Watcher's mutex:

	lockedKinds map[schema.GroupKind]*keeper
	// lockedBucket and lockedFolded: wakes over the bucket wait in folded; the value
	// is whether all of them were initial.
	lockedBucket *rate.Limiter
	lockedFolded map[types.NamespacedName]bool
}

func newWatched(name multicluster.ClusterName) *watched {
	c := &watched{
		name: name, forPeople: string(name),
		lockedKinds:  map[schema.GroupKind]*keeper{},
		lockedBucket: rate.NewLimiter(wakesPerSecond, wakeBurst),
		lockedFolded: map[types.NamespacedName]bool{},
	}
	if name == index.LocalCluster {
		c.forPeople = "the management cluster"
	}
	return c
}

// sweep forgets what has lingered out, and the cluster with its last kind. It tells
// whether the cluster is gone.
func (w *Watcher) sweep(c *watched, now time.Time) bool {
	var over []*keeper
	w.mu.Lock()
	for gk, k := range c.lockedKinds {
		if k.lockedSweep(now, w.o.Timings.Linger) {
			delete(c.lockedKinds, gk)
			over = append(over, k)
		}
	}
	gone := len(c.lockedKinds) == 0
	if gone && w.lockedState.clusters[c.name] == c {
		delete(w.lockedState.clusters, c.name)
	}
	w.mu.Unlock()
	for _, k := range over {
		k.disconnect()
		w.o.Index.Forget(string(c.name), k.indexKind())
	}
	if gone && c.demanded {
		// The loop alone demands and releases, so these cannot cross.
		c.demanded = false
		w.o.Clusters.ReportKinds(c.name, nil, 0)
		w.o.Clusters.Release(c.name, owner)
	}
	return gone
}

// keepersOf returns the keepers of a cluster.
func (w *Watcher) keepersOf(c *watched) []*keeper {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(c.lockedKinds))
}

// tend brings keepers and the connection together, and judges what is fresh.
func (w *Watcher) tend(c *watched, now time.Time) {
	if !c.demanded {
		c.demanded = true
		w.o.Clusters.Demand(c.name, owner)
	}
	snapshot, _ := w.o.Clusters.Snapshot(c.name)
	connection, err := w.o.Clusters.Connection(c.name)
	if err != nil || connection.Context().Err() != nil {
		connection = nil // None, or one that ends: the next is announced.
	}
	keepers := w.keepersOf(c)
	if snapshot.ClusterUID != "" {
		if c.uid != "" && c.uid != snapshot.ClusterUID {
			w.o.Logger.Info("another cluster has the name", "cluster", c.name, "uid", snapshot.ClusterUID)
			for _, k := range keepers {
				k.disconnect()
				w.o.Index.Forget(string(c.name), k.indexKind())
			}
		}
		c.uid = snapshot.ClusterUID
	}
	woken := map[types.NamespacedName]struct{}{}
	for _, k := range keepers {
		// Before it is heard of, a cluster would only hold a list slot.
		if connection != nil && heard(snapshot.State) {
			k.connect(connection, now)
			k.unblind()
		}
		if k.kind.Observe != nil {
			k.judge(snapshot, connection, now, woken)
		}
	}
	w.wake(c, slices.Collect(maps.Keys(woken)), true)
}

// heard is whether a cluster in the state answers.
func heard(s capstanv1.ConnectionState) bool {
	switch s {
	case capstanv1.ConnectionReady, capstanv1.ConnectionDegraded:
		return true
	case capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting, capstanv1.ConnectionUnreachable,
		capstanv1.ConnectionAuthFailed, capstanv1.ConnectionRemoved:
	}
	return false
}

// report tells the connections what is watched, when it changed.
func (w *Watcher) report(c *watched, now time.Time) {
	apps := 0
	var kinds []capstanv1.WatchedKind
	w.mu.Lock()
	for _, k := range c.lockedKinds {
		kinds = append(kinds, k.lockedReport(now))
		apps += k.lockedApps()
	}
	w.mu.Unlock()
	slices.SortFunc(kinds, func(a, b capstanv1.WatchedKind) int { return strings.Compare(a.Kind, b.Kind) })
	if apps != c.apps || !slices.Equal(kinds, c.reported) {
		c.apps, c.reported = apps, kinds
		w.o.Clusters.ReportKinds(c.name, slices.Clone(kinds), apps)
	}
}

// connectionTrouble is why nothing of a cluster can be relied upon; the zero
// problem when that is not so.
func connectionTrouble(c *watched, s clusters.Snapshot) problem {
	said := func(otherwise string) string {
		if s.Message == "" {
			return c.forPeople + " " + otherwise
		}
		return c.forPeople + ": " + s.Message
	}
	switch s.State {
	case capstanv1.ConnectionReady, capstanv1.ConnectionDegraded:
		return problem{}
	case capstanv1.ConnectionUnreachable:
		return problem{ReasonUnreachable, said("does not answer")}
	case capstanv1.ConnectionAuthFailed:
		return problem{ReasonAuthFailed, said("does not accept the credentials")}
	case capstanv1.ConnectionRemoved:
		return problem{ReasonRemoved, said("is gone")}
	case capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting:
	}
	if s.Reason == clusters.ReasonHubUnreadable {
		return problem{ReasonConnecting, said("cannot be looked up")}
	}
	// The steps of connecting take milliseconds each, and a change wakes Pipelines.
	return problem{ReasonConnecting, c.forPeople + " is being connected"}
}
