package watchers

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// How the loop judges a keeper: it takes a view, and publishes the judgement.

// view returns the input of the judgement, and the ready informers.
func (k *keeper) view(snapshot clusters.Snapshot, connection *clusters.Connection, now time.Time) (v view, ready []*informer) {
	v = view{now: now, place: k.subject.place(""), timings: k.subject.shared.options.Timings, connection: snapshot}
	if connection != nil {
		v.connected, v.lastContact = true, connection.LastContact()
	}
	k.subject.shared.mu.Lock()
	defer k.subject.shared.mu.Unlock()
	v.began, v.problem, v.retryAt = k.lockedState.began, k.subject.lockedState.problem, k.subject.lockedState.retryAt
	if k.kindIsObserved() {
		v.objects = k.subject.lockedState.demand.objects()
	}
	r := k.lockedState.run
	if r == nil {
		return v, nil
	}
	v.moving, v.scopes, v.version = r.connection != connection, r.lockedState.scopes, r.lockedState.version
	v.informers = make([]informerView, 0, len(r.lockedState.informers))
	for namespace, i := range r.lockedState.informers {
		s := &i.lockedState
		if s.ready {
			ready = append(ready, i)
		}
		v.informers = append(v.informers, informerView{
			namespace: namespace, began: s.began, ready: s.ready, problem: s.problem, failing: s.failing, behind: i.stream.Behind(),
		})
	}
	slices.SortFunc(v.informers, func(a, b informerView) int { return strings.Compare(a.namespace, b.namespace) })
	if v.scopes == scopeNamespaces {
		for want := range k.subject.lockedState.demand {
			v.wanted = append(v.wanted, want.namespace)
		}
	}
	return v, ready
}

// kindIsObserved returns whether the kind is in the index.
func (k *keeper) kindIsObserved() bool { return k.subject.kind.Observe != nil }

// publish writes the freshness to the index. It adds to woken the Pipelines that the change,
// and the initial lists, concern. Called by the loop.
func (k *keeper) publish(j judgement, ready []*informer, woken map[types.NamespacedName]struct{}) {
	add := func(pipelines []types.NamespacedName) {
		for _, p := range pipelines {
			woken[p] = struct{}{}
		}
	}
	x, cluster, kind := k.subject.shared.options.Index, string(k.subject.cluster.name), k.subject.indexKind()
	// Before the kind: a namespace that is not fresh must never appear to be.
	for namespace, p := range j.namespaces {
		k.loop.stale[namespace] = struct{}{}
		add(x.SetNamespaceFreshness(cluster, kind, namespace, freshness(p)))
	}
	for namespace := range k.loop.stale {
		if _, still := j.namespaces[namespace]; !still {
			delete(k.loop.stale, namespace)
			add(x.SetNamespaceFreshness(cluster, kind, namespace, index.Freshness{Fresh: true}))
		}
	}
	add(x.SetFreshness(cluster, kind, freshness(j.whole)))
	for _, i := range ready {
		add(i.initial.take())
	}
}

// freshness converts a problem to the form of the index.
func freshness(p problem) index.Freshness {
	return index.Freshness{Fresh: p.reason == "", Reason: p.reason, Message: p.message}
}
