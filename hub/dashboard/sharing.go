package dashboard

import (
	"context"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// hubsEvery is how often the other hubs are read: the delay of their links.
const hubsEvery = 6 * leaseEvery

// Sharing is what a hub that shares the management cluster with others knows of them.
type Sharing struct {
	// Name of this hub.
	Name string
	// Conflict returns why this replica does not lead: another hub serves a namespace of this one, or this one may not
	// read whether one does; "" if there is no such reason. It must not block.
	Conflict func() string
	// Others reads the other hubs, from the API server.
	Others func(context.Context) ([]view.Hub, error)
}

// followHubs reads the other hubs at intervals. If that fails, the last ones stay.
func (s *source) followHubs(ctx context.Context) error {
	if s.sharing == nil {
		return nil
	}
	for {
		call, cancel := context.WithTimeout(ctx, leaseTimeout)
		others, err := s.sharing.Others(call)
		cancel()
		if err == nil {
			s.mu.Lock()
			s.lockedHubs = others
			s.mu.Unlock()
		}
		timer := s.clock.NewTimer(hubsEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}
