package hub

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/hub/eventing/backend"
	"github.com/capstan-hub/capstan/hub/instancestate"
)

// queueReadings gives the event backends the state of their queues. It closes a cycle: the
// backends are made first, with this, because instance state needs their types and their
// publisher. Instance state reads the queues, and is set before the manager starts either
// of them.
type queueReadings struct {
	from *instancestate.Labeler
}

// of returns the reading of the queue of an EventingBackend; false if it is not read.
func (r *queueReadings) of(name types.NamespacedName) (backend.Reading, bool) {
	if r.from == nil {
		return backend.Reading{}, false
	}
	s, known := r.from.Source(name)
	return backend.Reading{Config: s.Config, Ready: s.Ready, Message: s.Message, Note: s.Note, Delivery: s.Delivery}, known
}

// addInstanceState labels instances from the events of AWS, as soon as there is a queue for
// them: in the management cluster on every replica, in self-managed clusters on the leader.
func addInstanceState(s *stack, events *eventing, o Options) (err error) {
	if o.AWS == nil {
		return nil
	}
	local := s.manager.GetLocalManager()
	events.queues.from, err = instancestate.SetupWithManager(s.manager, instancestate.Options{
		Watchers: s.watchers, AWS: o.AWS, Backends: events.registry, Publish: events.instance, SourceChanged: events.reconciler.Enqueue,
		Recorder: local.GetEventRecorder(reporter), Registerer: o.Registerer, Clock: o.Clock, Logger: o.Logger.WithName("instancestate"),
	})
	if err != nil {
		return err
	}
	for _, register := range o.Handlers {
		if err := register(events.queues.from); err != nil {
			return fmt.Errorf("registering a handler of instance events: %w", err)
		}
	}
	return nil
}
