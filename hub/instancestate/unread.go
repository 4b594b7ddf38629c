package instancestate

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/watchers"
)

// kindsOf returns the kinds that may have an object for a fact.
func kindsOf(f message.Fact) []schema.GroupKind {
	if f.Kind.Group() {
		return []schema.GroupKind{capa.AWSMachinePool}
	}
	return labelled()
}

// unsynced returns why kinds of a cluster cannot be read, for example while their conversion
// webhook is unavailable. A kind that is not installed has no objects.
func unsynced(ctx context.Context, in client.Reader, kinds []schema.GroupKind) []*watchers.NotSyncedError {
	var found []*watchers.NotSyncedError
	for _, kind := range kinds {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind.WithVersion(capa.Version))
		var why *watchers.NotSyncedError
		// No object has an empty name: this only checks whether the kind can be read.
		if err := in.Get(ctx, client.ObjectKey{}, u); errors.As(err, &why) && !why.NotInstalled() {
			found = append(found, why)
		}
	}
	return found
}

// membersFor is how long the answer of members is used: most events of an account may be about
// instances of no object, and there may be hundreds of self-managed clusters.
const membersFor = time.Second

// members knows whether the objects of all self-managed clusters can be read.
type members struct {
	mu          sync.Mutex
	lockedState struct {
		// read is the answer, and at is when it was found.
		read bool
		at   time.Time
	}
}

// readable returns whether the objects of every self-managed cluster are in memory. They are not
// while one of the clusters does not answer, or while a new leader still connects to it. On a
// standby they are not unless there is no such cluster.
func (m *members) readable(ctx context.Context, r *Labeler) bool {
	now := r.Clock.Now()
	if read, recent := m.last(now); recent {
		return read
	}
	read := r.membersRead(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lockedState.read, m.lockedState.at = read, now
	return read
}

// last returns the last answer, and whether it is used.
func (m *members) last(now time.Time) (read, recent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lockedState.read, !m.lockedState.at.IsZero() && now.Sub(m.lockedState.at) < membersFor
}

func (r *Labeler) membersRead(ctx context.Context) bool {
	list := newList(capa.Cluster)
	var why *watchers.NotSyncedError
	err := r.reader("").List(ctx, list, client.MatchingLabels{clusters.SelfManagedLabel: "true"})
	if errors.As(err, &why) {
		return why.NotInstalled()
	}
	for i := range list.Items {
		if list.Items[i].GetDeletionTimestamp() != nil {
			continue // The hub leaves it.
		}
		ref := clusters.Ref{Kind: pipelinesv1.ClusterKindCluster, Namespace: list.Items[i].GetNamespace(), Name: list.Items[i].GetName()}
		if len(unsynced(ctx, r.reader(string(ref.ClusterName())), labelled())) > 0 {
			return false
		}
	}
	return err == nil
}
