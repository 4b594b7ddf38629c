package hub

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/watchers"
)

// addInstanceState has labels follow AWS' events, as soon as there is a source of them:
// in the management cluster on every replica, elsewhere on the leader. told is told of
// what is labelled, and how queues are read.
func addInstanceState(mgr mcmanager.Manager, watching, remote *watchers.Watcher, o Options, told *eventing) (err error) {
	if o.AWS == nil {
		return nil
	}
	local := mgr.GetLocalManager()
	told.instances, err = instancestate.SetupWithManager(mgr, instancestate.Options{
		Local: watching, Remote: remote, AWS: o.AWS, Backends: told.registry, Tell: told.instance, SourceChanged: told.backends.Look,
		Recorder: local.GetEventRecorder("capstan"), Registerer: o.Registerer, Clock: o.Clock, Logger: o.Logger.WithName("instancestate"),
	})
	return err
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
