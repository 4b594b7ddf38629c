package watchers

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// watched is one cluster.
type watched struct {
	shared  *shared
	cluster identity
	bucket  *wakeBucket

	// loop belongs to the goroutine of Watcher.Start.
	loop watchedLoop
	// lockedState is guarded by shared.mu.
	lockedState watchedState
}

type watchedLoop struct {
	// demanded is whether the connection is demanded.
	demanded bool
	// uid distinguishes the cluster from others that had its name; empty if not known.
	uid string
	// reported is what was last reported to the Manager.
	reported report
	// due is when the cluster is checked without a change; zero for never.
	due time.Time
	// resuming is since when a watch resumes after an outage; zero if none does.
	resuming time.Time
}

type watchedState struct {
	keepers map[schema.GroupKind]*keeper
}

// report is what the Manager shows about a cluster.
type report struct {
	kinds []capstanv1.WatchedKind
	apps  int
}

func newWatched(s *shared, name multicluster.ClusterName) *watched {
	c := &watched{
		shared: s, cluster: identity{name: name, display: string(name)}, bucket: newWakeBucket(),
		lockedState: watchedState{keepers: map[schema.GroupKind]*keeper{}},
	}
	if name == index.LocalCluster {
		c.cluster.display = "the management cluster"
	}
	return c
}

// demandLocked adds an owner of a demand.
func (c *watched) demandLocked(d Demand, owner string, kind Kind) {
	k := c.lockedState.keepers[d.Kind]
	if k == nil {
		k = newKeeper(newSubject(c.shared, c.cluster, c.bucket, kind))
		c.lockedState.keepers[d.Kind] = k
	}
	k.subject.demandLocked(wanted{d.Namespace, d.Name}, owner)
	c.shared.changedLocked(c.cluster.name)
}

// releaseLocked removes an owner of a demand.
func (c *watched) releaseLocked(d Demand, owner string, now time.Time) {
	c.lockedState.keepers[d.Kind].subject.lockedState.demand.release(wanted{d.Namespace, d.Name}, owner, now)
	c.shared.changedLocked(c.cluster.name)
}

// sweepLocked removes and returns the keepers whose linger has passed. The cluster is done
// with its last keeper. Called by the loop.
func (c *watched) sweepLocked(now time.Time) (over []*keeper, done bool) {
	c.loop.due = time.Time{}
	for gk, k := range c.lockedState.keepers {
		empty, next := k.subject.sweepLocked(now)
		if c.loop.due = sooner(c.loop.due, next); empty {
			delete(c.lockedState.keepers, gk)
			over = append(over, k)
		}
	}
	return over, len(c.lockedState.keepers) == 0
}

// finish ends keepers, and with done the cluster's connection. Called by the loop.
func (c *watched) finish(over []*keeper, done bool) {
	c.forget(over)
	if done && c.loop.demanded {
		// Only the loop demands and releases, so these cannot overlap.
		c.loop.demanded = false
		c.shared.options.Clusters.ReportKinds(c.cluster.name, nil, 0)
		c.shared.options.Clusters.Release(c.cluster.name, owner)
	}
}

// forget disconnects keepers, and removes what they observed from the index.
func (c *watched) forget(keepers []*keeper) {
	for _, k := range keepers {
		k.disconnect()
		c.shared.options.Index.Forget(string(c.cluster.name), k.subject.indexKind())
	}
}

// keepers returns the keepers of the cluster.
func (c *watched) keepers() []*keeper {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	return slices.Collect(maps.Values(c.lockedState.keepers))
}

// check connects the keepers, publishes what is fresh, and reports the kinds. It adds to
// loop.due. Called by the loop, after sweepLocked.
func (c *watched) check(now time.Time) {
	options := &c.shared.options
	if !c.loop.demanded {
		c.loop.demanded = true
		options.Clusters.Demand(c.cluster.name, owner)
	}
	snapshot, _ := options.Clusters.Snapshot(c.cluster.name)
	connection, err := options.Clusters.Connection(c.cluster.name)
	if err != nil || connection.Context().Err() != nil {
		connection = nil // None, or one that ends: ConnectionChanged reports the next.
	}
	keepers := c.keepers()
	c.identify(snapshot.ClusterUID, keepers)
	woken := map[types.NamespacedName]struct{}{}
	var present report
	resuming := false
	for _, k := range keepers {
		// Before the cluster has answered, a keeper would only hold a list slot.
		if connection != nil && answers(snapshot.State) {
			k.connect(connection, now)
			k.resumeSilent()
		}
		v, ready := k.view(snapshot, connection, now)
		c.loop.due = sooner(c.loop.due, v.due())
		if k.kindIsObserved() {
			j := judge(v)
			resuming = resuming || j.resumes()
			k.publish(j, ready, woken)
		}
		if shown := watchedKind(v); reported(c.cluster.name, k.kindIsObserved(), shown) {
			present.kinds = append(present.kinds, shown)
		}
		present.apps += v.objects
	}
	c.shared.wakes.wake(c.bucket, slices.Collect(maps.Keys(woken)), true)
	c.report(present)
	switch {
	case !resuming:
		c.loop.resuming = time.Time{}
	case c.loop.resuming.IsZero():
		c.loop.resuming = now
	}
}

// resumesNow returns whether a watch has resumed for less than resumeFor, so that its cluster is
// checked again soon.
func (c *watched) resumesNow(now time.Time) bool {
	return !c.loop.resuming.IsZero() && now.Sub(c.loop.resuming) < resumeFor
}

// identify removes the observations of another cluster that had the same name.
func (c *watched) identify(uid string, keepers []*keeper) {
	if uid == "" {
		return
	}
	if c.loop.uid != "" && c.loop.uid != uid {
		c.shared.options.Logger.Info("the name belongs to another cluster now, its observations are removed", "cluster", c.cluster.name, "uid", uid)
		c.forget(keepers)
	}
	c.loop.uid = uid
}

// answers returns whether a cluster in the state answers.
func answers(s capstanv1.ConnectionState) bool {
	switch s {
	case capstanv1.ConnectionReady, capstanv1.ConnectionDegraded:
		return true
	case capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting, capstanv1.ConnectionUnreachable,
		capstanv1.ConnectionAuthFailed, capstanv1.ConnectionRemoved:
	}
	return false
}

// reported returns whether the Manager counts a kind. The dashboard and the reconcilers
// demand kinds of Cluster API in the management cluster whether or not its providers are
// installed there: one that is not installed does not degrade that cluster.
func reported(cluster multicluster.ClusterName, observed bool, shown capstanv1.WatchedKind) bool {
	return cluster != clusters.LocalName || observed || shown.Reason != ReasonNotInstalled
}

// report reports to the Manager what is watched, if it changed.
func (c *watched) report(present report) {
	slices.SortFunc(present.kinds, func(a, b capstanv1.WatchedKind) int { return strings.Compare(a.Kind, b.Kind) })
	if present.apps == c.loop.reported.apps && slices.Equal(present.kinds, c.loop.reported.kinds) {
		return
	}
	c.loop.reported = present
	c.shared.options.Clusters.ReportKinds(c.cluster.name, slices.Clone(present.kinds), present.apps)
}
