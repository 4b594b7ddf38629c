package hub

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
)

// stack holds the connections to clusters, the watchers over them, and the index of their
// observations. There is one in a process, for the management cluster and all others, so
// that no kind of a cluster is watched twice.
//
// On a replica that does not lead, it has only the management cluster, unless the standby is
// warm: a spot notice must not wait for a lease, and a standby shows machines, too. The leader
// adds the workload clusters.
type stack struct {
	// manager runs the controllers that act in workload clusters. Connections engage it; it
	// does not start anything.
	manager     mcmanager.Manager
	connections *clusters.Manager
	watchers    *watchers.Watcher
	index       *index.Index
}

// stackOptions are the options in which hubs and standalone annotators differ.
type stackOptions struct {
	// managementOnly connects to no other cluster, and runs nothing before the election.
	managementOnly bool
	// readings of the kinds that are not applications.
	readings []reading
	// index for the observations.
	index *index.Index
	// wake receives the Pipelines to reconcile, and listener the changes of clusters; nil for
	// none.
	wake     func(pipelines []types.NamespacedName, initial bool)
	listener clusters.Listener
}

// newStack makes the stack and adds it to the manager. Connections and watchers are complete
// when it returns, and the manager starts them later.
func newStack(mgr manager.Manager, o Options, s stackOptions) (*stack, error) {
	connect := clusters.Options{
		Local:      mgr.GetConfig(),
		Namespaces: o.Namespaces,
		LocalOnly:  s.managementOnly,

		SecretNamespaces: o.ClusterSecretNamespaces,
		ReadOnly:         o.DryRun,
		Dials:            o.ClusterDials,
		AllowLoopback:    o.AllowLoopback,
		Proxy:            o.ClusterProxy,
		Registerer:       o.Registerer,
		Timings:          o.ClusterTimings,
		Clock:            o.Clock,
		Logger:           o.Logger.WithName("clusters"),
	}
	if !s.managementOnly {
		connect.Elected, connect.WarmStandby, connect.Recorder = mgr.Elected(), o.WarmStandby, mgr.GetEventRecorder(reporter)
	}
	connections, err := clusters.New(connect)
	if err != nil {
		return nil, fmt.Errorf("wiring clusters: %w", err)
	}
	watching := watchers.New(watchers.Options{
		Clusters:        connections,
		Index:           s.index,
		Kinds:           kinds(s.readings),
		Wake:            s.wake,
		SourcesIn:       connections.SelfManaged,
		Namespaces:      o.Namespaces,
		EveryReplica:    !s.managementOnly,
		MaxLocalObjects: o.ManagementMaxObjects,
		Lists:           o.ClusterLists,
		Registerer:      o.Registerer,
		Timings:         o.WatcherTimings,
		Clock:           o.Clock,
		Logger:          o.Logger.WithName("watchers"),
	})
	// Two cycles force the setters of connections, and they are closed here. The watchers
	// need the connections to watch over, and the connections notify the watchers. The
	// multicluster manager takes the connections as its provider, and the connections
	// engage it.
	connections.AddListener(watching)
	if s.listener != nil {
		connections.AddListener(s.listener)
	}
	multi, err := mcmanager.WithMultiCluster(mgr, connections)
	if err != nil {
		return nil, fmt.Errorf("wiring the multicluster manager: %w", err)
	}
	connections.SetAware(multi)
	for _, runnable := range []manager.Runnable{connections, watching} {
		if err := mgr.Add(runnable); err != nil {
			return nil, fmt.Errorf("wiring %T: %w", runnable, err)
		}
	}
	return &stack{manager: multi, connections: connections, watchers: watching, index: s.index}, nil
}
