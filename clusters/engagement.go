package clusters

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/capstan-hub/capstan/internal/backoff"
)

// Retries of an Engage that failed.
const (
	engageRetry    = time.Second
	engageRetryMax = 5 * time.Minute
)

// engagement is the use of one connection by the Aware, while the cluster is self-managed.
type engagement struct {
	connection *Connection
	// ctx ends with the engagement, and with the epoch of the connection.
	ctx context.Context //nolint:containedctx // It is what the Aware receives.
	end context.CancelFunc
	// built returns the cluster.Cluster, which its first call makes.
	built func() (cluster.Cluster, error)
}

// reconcileEngagement engages the cluster with the Aware once for each epoch, when the state
// passes requests for the first time while the cluster is self-managed. The engagement lasts
// through outages. It ends with the epoch, or when the cluster is not self-managed any more.
func (k *keeper) reconcileEngagement(selfManaged bool) {
	state, connection := k.stateAndConnection()
	present := k.engagement()
	if present != nil && (!selfManaged || present.connection != connection || present.ctx.Err() != nil) {
		k.setEngagement(nil)
		present.end()
		present = nil
	}
	if present != nil || !selfManaged || connection == nil || !passes(state) || k.m.aware == nil || !k.m.acts() {
		return
	}
	e := &engagement{connection: connection}
	e.ctx, e.end = context.WithCancel(connection.ctx)
	e.built = sync.OnceValues(func() (cluster.Cluster, error) { return k.m.build(e.ctx, connection) })
	k.setEngagement(e)
	// An Engage that blocks does not block the keeper.
	k.m.goroutines.spawn(func(context.Context) {
		wait := backoff.NewSequence(engageRetry, engageRetryMax)
		for e.ctx.Err() == nil {
			err := k.engage(e)
			if err == nil {
				return
			}
			k.log.Error(err, "cluster cannot be engaged", "epoch", connection.epoch)
			select {
			case <-e.ctx.Done():
			case <-k.m.clock.After(wait.Wait()):
			}
		}
	})
}

// engage passes the cluster to the Aware, unless the engagement has ended. The calls for two
// engagements do not overlap, so the Aware never receives an older one after a newer one.
func (k *keeper) engage(e *engagement) error {
	k.engaging.Lock()
	defer k.engaging.Unlock()
	if e.ctx.Err() != nil {
		return nil
	}
	c, err := e.built()
	if err != nil {
		return err
	}
	return k.m.aware.Engage(e.ctx, k.name, c)
}

// engagement returns the present engagement; nil if there is none.
func (k *keeper) engagement() *engagement {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lockedState.engagement
}

func (k *keeper) setEngagement(e *engagement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lockedState.engagement = e
}
