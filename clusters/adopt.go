package clusters

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// adopt makes keepers for the ClusterConnections of an earlier hub. Those that are not
// demanded any more become Unused after Timings.Linger, or are deleted with their cluster.
// It calls listed once, after the first attempt to list them: the writer then knows what it
// need not write, and does not wait if they cannot be listed.
func (m *Manager) adopt(ctx context.Context, listed func()) {
	var adopting, first sync.WaitGroup
	for _, namespace := range m.objects.in(pipelinesv1.ClusterKindCluster) {
		first.Add(1)
		adopting.Go(func() { m.adoptIn(ctx, namespace, sync.OnceFunc(first.Done)) })
	}
	first.Wait()
	listed()
	adopting.Wait()
}

// adoptIn adopts those of a namespace. It calls listed after the first attempt to list them.
func (m *Manager) adoptIn(ctx context.Context, namespace string, listed func()) {
	defer listed()
	var list capstanv1.ClusterConnectionList
	wait := backoff.NewSequence(writeRetry, writeRetryMax)
	for {
		call, cancel := context.WithTimeout(ctx, m.timings.HubTimeout)
		err := m.hub.List(call, &list, client.InNamespace(namespace), client.MatchingLabels{managedByLabel: managedBy})
		cancel()
		if err == nil {
			break
		}
		if !wait.Begun() && ctx.Err() == nil {
			m.log.Error(err, "ClusterConnections cannot be listed")
		}
		listed()
		select {
		case <-ctx.Done():
			return
		case <-m.clock.After(wait.Wait()):
		}
	}
	for i := range list.Items {
		object := &list.Items[i]
		ref := RefOf(&object.Spec.ClusterRef, object.Namespace)
		if ref.Namespace != object.Namespace || connectionName(ref) != object.Name {
			continue
		}
		if k := m.ensureKeeper(ref.ClusterName()); k != nil {
			kept := object.DeepCopy() // Not the whole list.
			kept.ManagedFields = nil
			m.writer.adopt(ref.ClusterName(), kept)
			k.adopt(kept.Status.State)
			m.wake(k)
		}
	}
}

// adopt notes the state that an earlier hub has left.
func (k *keeper) adopt(state capstanv1.ConnectionState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lockedState.worked = passes(state)
}

// ensureKeeper finds or makes a keeper. It returns nil for a malformed name.
func (m *Manager) ensureKeeper(name multicluster.ClusterName) *keeper {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keeperLocked(name)
}
