package pipeline

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/watchers"
)

// What a warm standby does for Pipelines, and how it begins to lead. Decision 0055 says why.

// standFor is how long after the beginning of its lead a process trusts what it can neither see nor contradict:
// the stored status of a target that it has not observed yet stands, and an observation of a watch that differs
// from the stored status is confirmed by a read. What a watch that is further behind shows is not fresh.
const standFor = watchers.DefaultFreshFor

// leads returns whether this process decides, writes and promotes.
func (r *Reconciler) leads() bool { return r.led.Load() != nil }

// tookOver returns whether this process began to lead less than standFor ago.
func (r *Reconciler) tookOver() bool {
	led := r.led.Load()
	return led != nil && r.Clock.Since(*led) < standFor
}

// takeOver begins the lead when the process is elected: every Pipeline is reconciled, after those with live
// changes, and so are those that do not exist and that open PromotionRequests name.
func (r *Reconciler) takeOver(ctx context.Context, waker *Waker) error {
	select {
	case <-r.Elected:
	case <-ctx.Done():
		return nil
	}
	now := r.Clock.Now()
	r.led.Store(&now)
	var all pipelinesv1.PipelineList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing Pipelines: %w", err) // The cache is synced: it only fails at the end.
	}
	var requests capstanv1.PromotionRequestList
	if err := r.Client.List(ctx, &requests, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing PromotionRequests: %w", err)
	}
	keys := make([]types.NamespacedName, 0, len(all.Items))
	for i := range all.Items {
		keys = append(keys, client.ObjectKeyFromObject(&all.Items[i]))
	}
	for i := range requests.Items {
		if of := &requests.Items[i]; open(of) {
			keys = append(keys, types.NamespacedName{Namespace: of.Namespace, Name: of.Spec.Pipeline})
		}
	}
	waker.Wake(keys, true)
	return nil
}

// follow passes the demand of a Pipeline to the index and the watchers, on a standby. It writes nothing.
func (r *Reconciler) follow(ctx context.Context, key types.NamespacedName, p *pipelinesv1.Pipeline) error {
	err := r.Client.Get(ctx, key, p)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("reading Pipeline %s: %w", key, err)
	case p.DeletionTimestamp.IsZero() && p.ServedInFull():
		r.demand(p)
		return nil
	}
	r.forget(key)
	return nil
}

// confirm makes the observations not fresh on which a process that has just begun to lead may not act: its watch
// may be behind that of the leader before, which has acted on what it saw. These are the observations that differ
// from the stored status. They are read again, and the Pipeline is reconciled when they were. This reconcile acts on
// none of them, whatever is observed meanwhile.
//
// One whose watch was listed since this process leads needs no other read: so it is after a start without a standby.
func (r *Reconciler) confirm(p *pipelinesv1.Pipeline, at [][]place, seen observations) {
	if !r.WarmStandby || !r.tookOver() {
		return
	}
	for i := range seen {
		env := &p.Spec.Environments[i]
		last := p.Status.Environments[env.Name]
		if last == nil {
			last = &pipelinesv1.EnvironmentStatus{}
		}
		stored := storedTargets(p, env, last)
		for j := range seen[i] {
			if s := &seen[i][j]; s.target.Fresh && !s.obs.Since.After(*r.led.Load()) && !shows(stored(j), last.Agreed, s.target) {
				o := at[i][j].object
				r.Watchers.Confirm(watchers.Demand{
					Cluster: multicluster.ClusterName(o.Cluster), Kind: schema.GroupKind{Group: o.Kind.Group, Kind: o.Kind.Kind}, Namespace: o.Namespace, Name: o.Name,
				})
				// Not what the index has now: it is marked only while a run watches the kind, and what the watch delivers
				// ends the mark. The Pipeline is reconciled again within slowestHold, though it may not be woken.
				*s = observed(o, s.obs, s.known, watchers.Confirming)
			}
		}
	}
}

// shows returns whether a target runs what the stored status shows: of itself or, if the status of a fleet
// does not list it, of the environment.
func shows(stored *pipelinesv1.TargetStatus, agreed *pipelinesv1.AgreedRevision, t quorum.Target) bool {
	if stored == nil {
		return agreed != nil && t.Ready && revision.Same(t.Revision, agreed.Revision)
	}
	return stored.Ready == t.Ready && stored.Revision == t.Revision && (t.Ready || stored.Progressing == t.Progressing)
}

// stands returns whether the stored status stands where this process has not observed targets yet: shortly after it
// began to lead, a status that only says so would be written for each Pipeline. A status of another generation of
// the spec never stands.
func (r *Reconciler) stands(p *pipelinesv1.Pipeline, seen []observation) bool {
	return earlyOf(seen) > 0 && p.Status.ObservedGeneration == p.Generation && r.tookOver()
}

// standing returns the environments whose stored status stands: those of which a target is not observed yet. What
// their status shows decides nothing.
func (r *Reconciler) standing(p *pipelinesv1.Pipeline, seen observations) []string {
	var all []string
	for i := range seen {
		if r.stands(p, seen[i]) {
			all = append(all, p.Spec.Environments[i].Name)
		}
	}
	return all
}

// Warm returns nil when this process has observed what Pipelines use, as far as it can be observed, and could take
// over from the leader without a gap.
func (r *Reconciler) Warm() error {
	if !r.demanded.Load() {
		return errors.New("the Pipelines, or the clusters that they name, were not read yet")
	}
	if left := r.Index.Count(isEarly); left > 0 {
		return fmt.Errorf("%d of %d applications of Pipelines were not observed yet", left, r.Index.Stats().Objects)
	}
	return nil
}

// everyReplica is a manager.Runnable that every replica runs.
type everyReplica func(context.Context)

// Start implements manager.Runnable.
func (f everyReplica) Start(ctx context.Context) error {
	f(ctx)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }
