package index

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Index associates clusters, applications and Pipelines. It is safe for concurrent use.
type Index struct {
	mu          sync.RWMutex
	lockedState state
}

type state struct {
	// uses: Pipeline → its Use.
	uses map[types.NamespacedName]Use
	// refs: cluster name → Pipelines that declare a reference of that name.
	refs map[string]keys
	// apps: cluster → kind → name → application. It only contains applications that a
	// Pipeline uses, and never an empty map.
	apps map[string]map[Kind]map[name]*application
	// fresh: kind in a cluster → its Freshness.
	fresh map[place]Freshness
	// stale: kind in a cluster → namespaces that are not fresh although the kind is.
	stale map[place]map[string]Freshness
	// objects and observations are how many applications there are, and how many of them
	// were observed.
	objects, observations int
}

// New makes an empty Index.
func New() *Index {
	return &Index{lockedState: state{
		uses:  map[types.NamespacedName]Use{},
		refs:  map[string]keys{},
		apps:  map[string]map[Kind]map[name]*application{},
		fresh: map[place]Freshness{},
		stale: map[place]map[string]Freshness{},
	}}
}

// SetPipeline replaces what a Pipeline uses. It returns the other Pipelines whose Rivals
// changed by it.
func (x *Index) SetPipeline(key types.NamespacedName, use Use) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	old, known := s.uses[key]
	if known && slices.Equal(old.Refs, use.Refs) && slices.Equal(old.Objects, use.Objects) && slices.Equal(old.Promoted, use.Promoted) {
		return nil
	}
	use = Use{Refs: slices.Clone(use.Refs), Objects: slices.Clone(use.Objects), Promoted: slices.Clone(use.Promoted)}
	before := s.rivals(key)
	// The new use is added before the old is removed, so that applications in both keep
	// their observations.
	s.uses[key] = use
	for _, ref := range use.Refs {
		s.refs[ref] = s.refs[ref].with(key)
	}
	for _, o := range use.Objects {
		s.use(o, key)
	}
	for _, ref := range old.Refs {
		if !slices.Contains(use.Refs, ref) {
			s.removeRef(ref, key)
		}
	}
	for _, o := range old.Objects {
		if !slices.Contains(use.Objects, o) {
			s.release(o, key)
		}
	}
	return changed(before, s.rivals(key))
}

// RemovePipeline removes a Pipeline, and the applications that no other Pipeline uses. It
// returns the other Pipelines whose Rivals changed by it.
func (x *Index) RemovePipeline(key types.NamespacedName) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	before := s.rivals(key)
	old := s.uses[key]
	delete(s.uses, key)
	for _, ref := range old.Refs {
		s.removeRef(ref, key)
	}
	for _, o := range old.Objects {
		s.release(o, key)
	}
	return changed(before, nil)
}

// Rivals returns the other Pipelines that promote revisions into an application into which
// this Pipeline does.
func (x *Index) Rivals(key types.NamespacedName) []Rival {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.lockedState.rivals(key)
}

// Observe records an observation and returns the Pipelines to wake. It returns none when
// nothing changed or no Pipeline uses the application. An equal observation keeps the
// time of the first.
func (x *Index) Observe(o Object, seen Observation) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.lockedState.app(o)
	if a == nil || (a.observed && a.last.equal(seen) && a.unread == nil) {
		return nil
	}
	if !a.observed {
		x.lockedState.observations++
	} else if a.last.equal(seen) {
		seen.At = a.last.At
	}
	a.last, a.observed, a.unread = seen, true, nil
	return slices.Clone(a.users)
}

// SetUnread sets why one application cannot be read, although its kind can, and returns the
// Pipelines to wake. The next observation of the application ends it.
func (x *Index) SetUnread(o Object, why Freshness) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.lockedState.app(o)
	if a == nil || (a.unread != nil && *a.unread == why) {
		return nil
	}
	a.unread = &why
	return slices.Clone(a.users)
}

// Last returns the last observation of an application, whether there is one, and its
// Freshness.
func (x *Index) Last(o Object) (Observation, bool, Freshness) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.lockedState.last(o)
}

// Any reports whether a condition, of what Last returns, holds for an application that a Pipeline
// uses. The condition must not call the Index.
func (x *Index) Any(key types.NamespacedName, holds func(Observation, bool, Freshness) bool) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.ContainsFunc(x.lockedState.uses[key].Objects, func(o Object) bool { return holds(x.lockedState.last(o)) })
}

// Count returns for how many of the applications that Pipelines use a condition, of what Last returns, holds. The
// condition must not call the Index.
func (x *Index) Count(holds func(Observation, bool, Freshness) bool) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := 0
	for cluster, kinds := range x.lockedState.apps {
		for kind, apps := range kinds {
			for at := range apps {
				if holds(x.lockedState.last(Object{Cluster: cluster, Kind: kind, Namespace: at.namespace, Name: at.name})) {
					n++
				}
			}
		}
	}
	return n
}

func (s *state) last(o Object) (Observation, bool, Freshness) {
	p := place{o.Cluster, o.Kind}
	fresh, set := s.fresh[p]
	if !set {
		fresh = Freshness{Reason: NotWatched, Message: "not observed yet"}
	}
	if stale, is := s.stale[p][o.Namespace]; is && fresh.Fresh {
		fresh = stale
	}
	a := s.app(o)
	if a == nil {
		return Observation{}, false, fresh
	}
	if a.unread != nil && fresh.Fresh {
		fresh = *a.unread
	}
	return a.last, a.observed, fresh
}

// SetFreshness sets the Freshness of a kind in a cluster and returns the Pipelines to wake,
// none when nothing changed.
func (x *Index) SetFreshness(cluster string, k Kind, f Freshness) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	p := place{cluster, k}
	if last, known := s.fresh[p]; known && last == f {
		return nil
	}
	s.fresh[p] = f
	return s.usersWhere(p, func(name) bool { return true })
}

// SetNamespaceFreshness sets the Freshness of a kind in one namespace, and returns the
// Pipelines to wake. It is for credentials that need one watch for each namespace: a
// problem in one namespace does not make the others stale. A namespace is fresh when its
// kind is fresh, and the namespace is fresh or was not set.
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
	return s.usersWhere(p, func(n name) bool { return n.namespace == namespace })
}

// Forget removes the observations of a kind in a cluster. It is called when another cluster
// got the name, or the kind is not watched any more.
func (x *Index) Forget(cluster string, k Kind) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	p := place{cluster, k}
	delete(s.fresh, p)
	delete(s.stale, p)
	for _, a := range s.apps[cluster][k] {
		if a.observed {
			s.observations--
		}
		*a = application{users: a.users}
	}
}

// PipelinesOfRef returns the Pipelines that declare a reference of a name, or use
// an application in the cluster of that name.
func (x *Index) PipelinesOfRef(ref string) []types.NamespacedName {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := &x.lockedState
	found := slices.Clone(s.refs[ref])
	for _, apps := range s.apps[ref] {
		for _, a := range apps {
			found = append(found, a.users...)
		}
	}
	return sorted(found)
}

// Stats returns the numbers of entries.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := &x.lockedState
	return Stats{Pipelines: len(s.uses), Objects: s.objects, Observations: s.observations}
}

func (s *state) removeRef(ref string, key types.NamespacedName) {
	if left := s.refs[ref].without(key); len(left) > 0 {
		s.refs[ref] = left
	} else {
		delete(s.refs, ref)
	}
}

// app returns an application; nil if no Pipeline uses it.
func (s *state) app(o Object) *application {
	return s.apps[o.Cluster][o.Kind][name{o.Namespace, o.Name}]
}

func (s *state) use(o Object, key types.NamespacedName) {
	a := s.app(o)
	if a == nil {
		a = &application{}
		s.insert(o, a)
	}
	a.users = a.users.with(key)
}

func (s *state) insert(o Object, a *application) {
	kinds := s.apps[o.Cluster]
	if kinds == nil {
		kinds = map[Kind]map[name]*application{}
		s.apps[o.Cluster] = kinds
	}
	if kinds[o.Kind] == nil {
		kinds[o.Kind] = map[name]*application{}
	}
	kinds[o.Kind][name{o.Namespace, o.Name}] = a
	s.objects++
}

func (s *state) release(o Object, key types.NamespacedName) {
	a := s.app(o)
	if a == nil {
		return
	}
	if a.users = a.users.without(key); len(a.users) == 0 {
		s.remove(o, a)
	}
}

func (s *state) remove(o Object, a *application) {
	kinds := s.apps[o.Cluster]
	delete(kinds[o.Kind], name{o.Namespace, o.Name})
	if len(kinds[o.Kind]) == 0 {
		delete(kinds, o.Kind)
	}
	if len(kinds) == 0 {
		delete(s.apps, o.Cluster)
	}
	s.objects--
	if a.observed {
		s.observations--
	}
}

// rivals returns the other Pipelines that promote into an application into which this one
// does. Most applications have one user.
func (s *state) rivals(key types.NamespacedName) []Rival {
	var found []Rival
	use := s.uses[key]
	for i, o := range use.Objects {
		users := s.users(o)
		if len(users) < 2 || !use.promotesAt(i) || slices.ContainsFunc(found, func(r Rival) bool { return r.Object == o }) {
			continue
		}
		for _, other := range users {
			if other != key && s.uses[other].promotes(o) {
				found = append(found, Rival{Object: o, Pipeline: other})
			}
		}
	}
	return found
}

// users returns the Pipelines that use an application.
func (s *state) users(o Object) keys {
	if a := s.app(o); a != nil {
		return a.users
	}
	return nil
}

// changed returns the Pipelines of rivals that are in one of two lists only.
func changed(before, after []Rival) []types.NamespacedName {
	had := make(map[Rival]bool, len(before))
	for _, r := range before {
		had[r] = true
	}
	var found keys
	for _, r := range after {
		if !had[r] {
			found = append(found, r.Pipeline)
		}
		delete(had, r)
	}
	for r := range had {
		found = append(found, r.Pipeline)
	}
	return sorted(found)
}

// usersWhere returns the Pipelines that use applications of a kind in a cluster, of those
// applications that concerned selects.
func (s *state) usersWhere(p place, concerned func(name) bool) []types.NamespacedName {
	var found keys
	for n, a := range s.apps[p.cluster][p.kind] {
		if concerned(n) {
			found = append(found, a.users...)
		}
	}
	return sorted(found)
}

// sorted sorts Pipelines and removes duplicates.
func sorted(all keys) []types.NamespacedName {
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

func compare(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
