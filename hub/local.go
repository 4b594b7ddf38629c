package hub

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
)

// everywhere runs what it holds on every replica.
type everywhere struct{ manager.Runnable }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// watchLocal watches the management cluster on every replica, beside what the leader
// watches: a spot notice does not wait for a lease, and a standby shows machines, too.
// What is demanded is read; nothing is until then.
func watchLocal(mgr manager.Manager, o Options) (*watchers.Watcher, error) {
	log := o.Logger.WithName("local")
	connections, err := clusters.New(clusters.Options{
		Local: mgr.GetConfig(), Namespace: o.Namespace, LocalOnly: true,
		Timings: o.ClusterTimings, Clock: o.Clock, Logger: log.WithName("clusters"),
	})
	if err != nil {
		return nil, fmt.Errorf("watching the management cluster: %w", err)
	}
	watching := watchers.New(watchers.Options{
		Clusters: connections, Index: index.New(), SourceNamespace: o.Namespace, Kinds: localKinds,
		Timings: o.WatcherTimings, Clock: o.Clock, Logger: log.WithName("watchers"),
	})
	connections.AddListener(watching)
	for _, runnable := range []manager.Runnable{connections, watching} {
		if err := mgr.Add(everywhere{runnable}); err != nil {
			return nil, fmt.Errorf("wiring %T: %w", runnable, err)
		}
	}
	return watching, nil
}
