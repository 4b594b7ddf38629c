package instancestate

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		return grouped()
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

// unreadEvery is how long the answer of unread is used, and how often it is checked for the status
// of sources. Most events of an account may be about instances of no object, and there may be
// hundreds of self-managed clusters.
const unreadEvery = time.Second

// unread knows which objects cannot be read that events may be about, or that place them.
type unread struct {
	mu          sync.Mutex
	lockedState struct {
		unreadState
		at time.Time
	}
}

// unreadState is what cannot be read, as messages for users; empty when there is nothing.
type unreadState struct {
	// local: kinds of the management cluster. Events of their objects wait in the queues.
	local string
	// member: a self-managed cluster whose objects are not in memory, because it does not answer
	// or a new leader still connects to it; on a standby, every such cluster. Events of instances
	// without an object wait in the queues.
	member string
}

// state returns what cannot be read, at most unreadEvery ago.
func (u *unread) state(ctx context.Context, r *Labeler) unreadState {
	now := r.Clock.Now()
	last, recent := u.last(now)
	if recent {
		return last
	}
	next := r.unreadNow(ctx, last)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lockedState.unreadState, u.lockedState.at = next, now
	return next
}

func (u *unread) last(now time.Time) (last unreadState, recent bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lockedState.unreadState, !u.lockedState.at.IsZero() && now.Sub(u.lockedState.at) < unreadEvery
}

// unreadNow returns what cannot be read now. A kind that is being listed again has no reason yet:
// that of before stays.
func (r *Labeler) unreadNow(ctx context.Context, before unreadState) unreadState {
	var s unreadState
	for _, why := range unsynced(ctx, r.reader(""), append(labelled(), capa.PlaceKinds()...)) {
		if s.local = why.Message; why.Reason != "" {
			break
		}
		s.local = before.local
	}
	s.member = r.unreadMember(ctx)
	return s
}

func (r *Labeler) unreadMember(ctx context.Context) string {
	list := newList(capa.Cluster)
	var why *watchers.NotSyncedError
	switch err := r.reader("").List(ctx, list, client.MatchingLabels{clusters.SelfManagedLabel: "true"}); {
	case errors.As(err, &why) && why.NotInstalled():
		return ""
	case err != nil:
		return err.Error()
	}
	var found []string
	for i := range list.Items {
		if list.Items[i].GetDeletionTimestamp() != nil {
			continue // The hub leaves it.
		}
		ref := clusters.Ref{Kind: pipelinesv1.ClusterKindCluster, Namespace: list.Items[i].GetNamespace(), Name: list.Items[i].GetName()}
		if len(unsynced(ctx, r.reader(string(ref.ClusterName())), labelled())) > 0 {
			found = append(found, ref.String())
		}
	}
	if len(found) == 0 {
		return ""
	}
	text := "the machines of the self-managed " + slices.Min(found) // The list has no order.
	if more := len(found) - 1; more > 0 {
		text += fmt.Sprintf(" and of %d other clusters", more)
	}
	return text + " are not read; its ClusterConnection says why"
}

// watchUnread reconciles the sources when what cannot be read has changed, until the context ends.
func (r *Labeler) watchUnread(ctx context.Context) {
	ticker := r.Clock.NewTicker(unreadEvery)
	defer ticker.Stop()
	before := unreadState{}
	for {
		if now := r.unread.state(ctx, r); now != before {
			before = now
			r.sources.enqueueRunning()
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
	}
}
