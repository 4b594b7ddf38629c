package watchers

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// InformerState is the state of one informer, or of a kind that has none, at one moment.
type InformerState struct {
	Cluster multicluster.ClusterName
	Kind    schema.GroupKind
	// Namespace that the informer reads; empty for all.
	Namespace string
	// Since is when its initial list began; zero before that, and for a kind without an informer.
	Since time.Time
	// Synced: its initial list is complete.
	Synced bool
	// Objects that it holds, and their Bytes in memory, which are an estimate.
	Objects, Bytes int64
	// Problem of its last call, or why the kind has no informer; empty for none.
	Problem string
}

// Informers returns the states of all informers, by cluster, kind and namespace.
func (w *Watcher) Informers() []InformerState {
	w.shared.mu.Lock()
	var all []InformerState
	for name, c := range w.lockedState.clusters {
		for gk, k := range c.lockedState.keepers {
			of := InformerState{Cluster: name, Kind: gk}
			if k.lockedState.run == nil {
				of.Problem = cmp.Or(k.subject.lockedState.problem.text(), "no connection, or the kind is being discovered")
				all = append(all, of)
				continue
			}
			for namespace, i := range k.lockedState.run.lockedState.informers {
				one := of
				one.Namespace, one.Since, one.Synced = namespace, i.lockedState.began, i.isSynced()
				one.Objects, one.Bytes, one.Problem = i.objects.Load(), i.held.Load(), i.lockedState.problem.text()
				all = append(all, one)
			}
		}
	}
	w.shared.mu.Unlock()
	slices.SortFunc(all, func(a, b InformerState) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Kind.String(), b.Kind.String()), cmp.Compare(a.Namespace, b.Namespace))
	})
	return all
}
