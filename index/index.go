package index

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Index is the association of clusters, applications and Pipelines.
type Index struct {
	mu          sync.RWMutex
	lockedState state
}

type state struct {
	// uses: Pipeline → what it uses.
	uses map[types.NamespacedName]Use
	// users: application → Pipelines that use it. Never holds an empty one.
	users map[Object]keys
	// refs: cluster name → Pipelines that declare a reference of that name.
	refs map[string]keys
	// objects: cluster → kind → applications that are used there. Never holds an
	// empty map.
	objects map[string]map[Kind]map[Object]struct{}
	// last: application → what was last seen. Only of applications in users.
	last map[Object]Observation
	// fresh: kind in a cluster → whether last can be relied upon.
	fresh map[place]Freshness
	// stale: kind in a cluster → namespaces that are not fresh where the kind is.
	stale map[place]map[string]Freshness
}

// New makes an empty Index.
func New() *Index {
	return &Index{lockedState: state{
		uses:    map[types.NamespacedName]Use{},
		users:   map[Object]keys{},
		refs:    map[string]keys{},
		objects: map[string]map[Kind]map[Object]struct{}{},
		last:    map[Object]Observation{},
		fresh:   map[place]Freshness{},
		stale:   map[place]map[string]Freshness{},
	}}
}

// SetPipeline replaces what a Pipeline uses.
func (x *Index) SetPipeline(key types.NamespacedName, use Use) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	old, known := s.uses[key]
	if known && slices.Equal(old.Refs, use.Refs) && slices.Equal(old.Objects, use.Objects) {
		return
	}
	use = Use{Refs: slices.Clone(use.Refs), Objects: slices.Clone(use.Objects)}
	// Added before the old is removed: what stays in use keeps its observation.
	s.uses[key] = use
	for _, ref := range use.Refs {
		add(s.refs, ref, key)
	}
	for _, o := range use.Objects {
		s.use(o, key)
	}
	for _, ref := range old.Refs {
		if !slices.Contains(use.Refs, ref) {
			remove(s.refs, ref, key)
		}
	}
	for _, o := range old.Objects {
		if !slices.Contains(use.Objects, o) {
			s.release(o, key)
		}
	}
}

// RemovePipeline forgets a Pipeline, and what nobody else uses.
func (x *Index) RemovePipeline(key types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	old := s.uses[key]
	delete(s.uses, key)
	for _, ref := range old.Refs {
		remove(s.refs, ref, key)
	}
	for _, o := range old.Objects {
		s.release(o, key)
	}
}

// Observe records an observation and returns the Pipelines to wake: none when
// nothing changed, or nobody uses the application. An equal observation keeps the
// time of the first.
func (x *Index) Observe(o Object, seen Observation) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	users := s.users[o]
	if len(users) == 0 {
		return nil
	}
	if last, known := s.last[o]; known && last.equal(seen) {
		return nil
	}
	s.last[o] = seen
	return slices.Clone(users)
}

// Last returns what was last seen of an application, whether anything was, and
// whether it can be relied upon now.
func (x *Index) Last(o Object) (Observation, bool, Freshness) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := &x.lockedState
	seen, known := s.last[o]
	p := place{o.Cluster, o.Kind}
	fresh, spoken := s.fresh[p]
	if !spoken {
		fresh = Freshness{Reason: NotWatched, Message: "not observed yet"}
	}
	if stale, is := s.stale[p][o.Namespace]; is && fresh.Fresh {
		fresh = stale
	}
	return seen, known, fresh
}

// SetFreshness records whether observations of a kind in a cluster can be relied
// upon, and returns the Pipelines to wake: none when nothing changed.
func (x *Index) SetFreshness(cluster string, k Kind, f Freshness) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	p := place{cluster, k}
	if last, known := s.fresh[p]; known && last == f {
		return nil
	}
	s.fresh[p] = f
	return s.usersWhere(p, func(Object) bool { return true })
}

// SetNamespaceFreshness records the same of one namespace, where namespaces are
// watched one by one: what the credentials do not allow in one is not held against
// the others. A namespace is fresh when it is said to be, or nothing is said of it,
// and its kind is.
func (x *Index) SetNamespaceFreshness(cluster string, k Kind, namespace string, f Freshness) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	p := place{cluster, k}
	last, was := s.stale[p][namespace]
	switch {
	case f.Fresh && !was, was && last == f:
		return nil
	case f.Fresh:
		delete(s.stale[p], namespace)
		if len(s.stale[p]) == 0 {
			delete(s.stale, p)
		}
	default:
		if s.stale[p] == nil {
			s.stale[p] = map[string]Freshness{}
		}
		s.stale[p][namespace] = f
	}
	return s.usersWhere(p, func(o Object) bool { return o.Namespace == namespace })
}

// Forget drops what was seen of a kind in a cluster: another cluster took its
// name, or it is watched no more.
func (x *Index) Forget(cluster string, k Kind) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	p := place{cluster, k}
	delete(s.fresh, p)
	delete(s.stale, p)
	for o := range s.objects[cluster][k] {
		delete(s.last, o)
	}
}

// PipelinesOfRef returns the Pipelines that declare a reference of a name, or use
// an application in the cluster of that name.
func (x *Index) PipelinesOfRef(ref string) []types.NamespacedName {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := &x.lockedState
	found := slices.Clone(s.refs[ref])
	for _, objects := range s.objects[ref] {
		for o := range objects {
			found = append(found, s.users[o]...)
		}
	}
	return sorted(found)
}

// Stats counts what the index holds.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := &x.lockedState
	return Stats{Pipelines: len(s.uses), Objects: len(s.users), Observations: len(s.last)}
}

func (s *state) use(o Object, key types.NamespacedName) {
	add(s.users, o, key)
	kinds := s.objects[o.Cluster]
	if kinds == nil {
		kinds = map[Kind]map[Object]struct{}{}
		s.objects[o.Cluster] = kinds
	}
	if kinds[o.Kind] == nil {
		kinds[o.Kind] = map[Object]struct{}{}
	}
	kinds[o.Kind][o] = struct{}{}
}

func (s *state) release(o Object, key types.NamespacedName) {
	remove(s.users, o, key)
	if len(s.users[o]) > 0 {
		return
	}
	delete(s.last, o)
	kinds := s.objects[o.Cluster]
	delete(kinds[o.Kind], o)
	if len(kinds[o.Kind]) == 0 {
		delete(kinds, o.Kind)
	}
	if len(kinds) == 0 {
		delete(s.objects, o.Cluster)
	}
}

// usersWhere are the Pipelines that use applications of a kind in a cluster.
func (s *state) usersWhere(p place, concerned func(Object) bool) []types.NamespacedName {
	var found keys
	for o := range s.objects[p.cluster][p.kind] {
		if concerned(o) {
			found = append(found, s.users[o]...)
		}
	}
	return sorted(found)
}

func add[K comparable](sets map[K]keys, k K, key types.NamespacedName) {
	if at, had := slices.BinarySearchFunc(sets[k], key, compare); !had {
		sets[k] = slices.Insert(sets[k], at, key)
	}
}

func remove[K comparable](sets map[K]keys, k K, key types.NamespacedName) {
	if at, had := slices.BinarySearchFunc(sets[k], key, compare); had {
		sets[k] = slices.Delete(sets[k], at, at+1)
	}
	if len(sets[k]) == 0 {
		delete(sets, k)
	}
}

// sorted makes a set of what may hold Pipelines more than once.
func sorted(all keys) []types.NamespacedName {
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

func compare(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
