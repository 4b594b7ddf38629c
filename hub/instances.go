package hub

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
)

// everywhere runs what it holds on every replica.
type everywhere struct{ manager.Runnable }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// addInstanceState has labels follow AWS' events, as soon as there is a source of them.
// The management cluster is watched for it on every replica, beside what the leader
// watches: a spot notice does not wait for a lease. told is told of what is labelled, and
// how queues are read.
func addInstanceState(mgr mcmanager.Manager, remote *watchers.Watcher, o Options, told *eventing) error {
	if o.AWS == nil {
		return nil
	}
	log := o.Logger.WithName("instancestate")
	local := mgr.GetLocalManager()
	connections, err := clusters.New(clusters.Options{
		Local: local.GetConfig(), Namespace: o.Namespace, LocalOnly: true,
		Timings: o.ClusterTimings, Clock: o.Clock, Logger: log.WithName("clusters"),
	})
	if err != nil {
		return fmt.Errorf("watching the management cluster: %w", err)
	}
	watching := watchers.New(watchers.Options{
		Clusters: connections, Index: index.New(), SourceNamespace: o.Namespace, Kinds: instanceKinds,
		Timings: o.WatcherTimings, Clock: o.Clock, Logger: log.WithName("watchers"),
	})
	connections.AddListener(watching)
	for _, runnable := range []manager.Runnable{connections, watching} {
		if err := local.Add(everywhere{runnable}); err != nil {
			return fmt.Errorf("wiring %T: %w", runnable, err)
		}
	}
	told.instances, err = instancestate.SetupWithManager(mgr, instancestate.Options{
		Local: watching, Remote: remote, AWS: o.AWS, Backends: told.registry, Tell: told.instance, SourceChanged: told.backends.Look,
		Recorder: local.GetEventRecorder("capstan"), Registerer: o.Registerer, Clock: o.Clock, Logger: log,
	})
	return err
}

// instanceKinds is how the watchers of instance state read a kind.
func instanceKinds(kind schema.GroupKind) watchers.Kind {
	k, _ := instancestate.Kind(kind) // It demands its own kinds only.
	return k
}

// both keeps of an object what either of two readers keeps of it.
func both(a, b watchers.Kind) watchers.Kind {
	reduceA, reduceB := a.Reduce, b.Reduce
	a.Reduce = func(u *unstructured.Unstructured) (client.Object, error) {
		kept, err := reduceA(u.DeepCopy())
		if err != nil {
			return nil, err
		}
		more, err := reduceB(u)
		if err != nil {
			return nil, err
		}
		into, one := kept.(*unstructured.Unstructured)
		from, other := more.(*unstructured.Unstructured)
		if !one || !other {
			return nil, fmt.Errorf("%T and %T cannot be put together", kept, more)
		}
		join(into.Object, from.Object)
		return into, nil
	}
	return a
}

// join what one map has into another; both are parts of one object.
func join(into, from map[string]any) {
	for key, value := range from {
		had, isMap := into[key].(map[string]any)
		if more, also := value.(map[string]any); isMap && also {
			join(had, more)
		} else {
			into[key] = value
		}
	}
}
