package watchers

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// judge tells the index what can be relied upon, and adds to woken whom that, and
// the initial lists, concern. Called by the loop.
func (k *keeper) judge(s clusters.Snapshot, connection *clusters.Connection, now time.Time, woken map[types.NamespacedName]struct{}) {
	add := func(pipelines []types.NamespacedName) {
		for _, p := range pipelines {
			woken[p] = struct{}{}
		}
	}
	trouble, namespaces, ready := k.verdict(s, connection, now)
	// Before the kind: a namespace that is not fresh shall not seem to be.
	for namespace, p := range namespaces {
		k.stale[namespace] = struct{}{}
		add(k.w.o.Index.SetNamespaceFreshness(string(k.c.name), k.indexKind(), namespace, p.freshness()))
	}
	for namespace := range k.stale {
		if _, still := namespaces[namespace]; !still {
			delete(k.stale, namespace)
			add(k.w.o.Index.SetNamespaceFreshness(string(k.c.name), k.indexKind(), namespace, index.Freshness{Fresh: true}))
		}
	}
	add(k.w.o.Index.SetFreshness(string(k.c.name), k.indexKind(), trouble.freshness()))
	for _, i := range ready {
		add(i.takeInitial())
	}
}

func (p problem) freshness() index.Freshness {
	return index.Freshness{Fresh: p.reason == "", Reason: p.reason, Message: p.message}
}

// verdict is what is wrong with the kind, what with single namespaces, and which
// informers are ready.
func (k *keeper) verdict(s clusters.Snapshot, connection *clusters.Connection, now time.Time) (problem, map[string]problem, []*informer) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	var ready []*informer
	namespaces := map[string]problem{}
	whole := k.lockedProblem
	if r := k.lockedRun; r == nil || r.lockedScopes == scopesUnknown {
		if whole.reason == "" {
			whole = k.lockedSyncing("", k.lockedBegan, now)
		}
	} else {
		whole = problem{}
		for namespace, i := range r.lockedInformers {
			if i.lockedReady {
				ready = append(ready, i)
			}
			p := k.lockedTrouble(namespace, i, now)
			switch {
			case r.lockedScopes == scopeAll:
				whole = p
			case p.reason != "":
				namespaces[namespace] = p
			}
		}
		switch r.lockedScopes {
		case scopeAll:
			if len(r.lockedInformers) == 0 {
				whole = k.lockedSyncing("", k.lockedBegan, now)
			}
		case scopeNamespaces:
			for want := range k.lockedWant {
				if r.lockedInformers[want.namespace] == nil {
					namespaces[want.namespace] = k.lockedSyncing(want.namespace, time.Time{}, now)
				}
			}
		case scopesUnknown:
		}
	}
	if p := connectionTrouble(k.c, s); p.reason != "" {
		return p, namespaces, ready
	}
	if whole.reason != "" {
		return whole, namespaces, ready
	}
	if connection == nil || now.Sub(connection.LastContact()) >= k.w.o.Timings.FreshFor {
		return problem{ReasonSilent, fmt.Sprintf("%s was not heard of for %s", k.c.forPeople, k.w.o.Timings.FreshFor)}, namespaces, ready
	}
	return problem{}, namespaces, ready
}

// lockedTrouble is what is wrong with an informer.
func (k *keeper) lockedTrouble(namespace string, i *informer, now time.Time) problem {
	switch {
	case k.lockedFails(i, now):
		return i.lockedProblem
	case !i.lockedReady:
		return k.lockedSyncing(namespace, i.began, now)
	case i.stream.Behind() >= k.w.o.Timings.FreshFor:
		// After an outage, until the watch has caught up.
		return problem{ReasonResuming, fmt.Sprintf("the watch of %s in %s has not caught up yet", k.kind.GroupKind, k.c.forPeople)}
	}
	return problem{}
}

// lockedFails is whether an informer's calls fail. One that is ready may fail for
// FreshFor, as the connection may be silent; what is forbidden is so at once.
func (k *keeper) lockedFails(i *informer, now time.Time) bool {
	return i.lockedProblem.reason != "" &&
		(!i.lockedReady || i.lockedProblem.reason == ReasonForbidden || now.Sub(i.lockedFailing) >= k.w.o.Timings.FreshFor)
}

// lockedSyncing is that the initial list is not whole yet, which is no trouble for a
// while.
func (k *keeper) lockedSyncing(namespace string, began, now time.Time) problem {
	where := k.c.forPeople
	if namespace != "" {
		where = fmt.Sprintf("namespace %s of %s", namespace, where)
	}
	if slow := k.w.o.Timings.SlowList; !began.IsZero() && now.Sub(began) > slow {
		return problem{ReasonSlow, fmt.Sprintf("the initial list of %s in %s takes longer than %s", k.kind.GroupKind, where, slow)}
	}
	return problem{ReasonNotSynced, fmt.Sprintf("the initial list of %s in %s is under way", k.kind.GroupKind, where)}
}

// lockedSynced is whether every informer of the run is ready.
func (r *run) lockedSynced() bool {
	if r == nil || r.lockedScopes == scopesUnknown || len(r.lockedInformers) == 0 {
		return false
	}
	for _, i := range r.lockedInformers {
		if !i.lockedReady {
			return false
		}
	}
	return true
}

// lockedReport is what the connections are told: a kind that was synced and cannot be
// watched any more is not synced.
func (k *keeper) lockedReport(now time.Time) capstanv1.WatchedKind {
	shown := capstanv1.WatchedKind{Kind: k.kind.GroupKind.String(), Synced: k.lockedRun.lockedSynced()}
	p := k.lockedProblem
	if r := k.lockedRun; r != nil {
		shown.Version = r.lockedVersion
		if r.lockedScopes != scopesUnknown {
			p = problem{}
		}
		least := ""
		for namespace, i := range r.lockedInformers {
			if k.lockedFails(i, now) && (p.reason == "" || namespace < least) {
				p, least, shown.Synced = i.lockedProblem, namespace, false
			}
		}
	}
	if !shown.Synced {
		shown.Reason, shown.Message = p.reason, p.message
		if shown.Reason == "" {
			shown.Reason = clusters.ReasonSyncing
		}
	}
	return shown
}

// lockedApps counts the applications that somebody follows.
func (k *keeper) lockedApps() int {
	if k.kind.Observe == nil {
		return 0
	}
	n := 0
	for want, i := range k.lockedWant {
		if want.name != "" && len(i.owners) > 0 {
			n++
		}
	}
	return n
}
