package hub

import (
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
