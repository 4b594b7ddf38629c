package annotator

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// dependency is something that a node group's annotations were made of: an object,
// there or not, or what the catalogue knows of a region.
type dependency struct {
	cluster multicluster.ClusterName
	kind    schema.GroupKind
	client.ObjectKey
	region string
}

// dependents remembers what each reconciliation looked at, so that a change of it, or
// its appearance, leads to those concerned alone: the order in which objects are
// created does not matter, and no list is gone through.
type dependents struct {
	mu          sync.Mutex
	lockedState struct {
		// of: dependency → who looked at it.
		of map[dependency]map[mcreconcile.Request]struct{}
		// on: who → what was looked at.
		on map[mcreconcile.Request]map[dependency]struct{}
	}
}

func newDependents() *dependents {
	d := &dependents{}
	d.lockedState.of = map[dependency]map[mcreconcile.Request]struct{}{}
	d.lockedState.on = map[mcreconcile.Request]map[dependency]struct{}{}
	return d
}

// concerned are those who looked.
func (d *dependents) concerned(by dependency) []mcreconcile.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.lockedState.of[by]))
}

// note that somebody is about to look. It comes before the look: a change in between
// is not missed.
func (d *dependents) note(who mcreconcile.Request, at dependency) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &d.lockedState
	if s.of[at] == nil {
		s.of[at] = map[mcreconcile.Request]struct{}{}
	}
	s.of[at][who] = struct{}{}
	if s.on[who] == nil {
		s.on[who] = map[dependency]struct{}{}
	}
	s.on[who][at] = struct{}{}
}

// keep forgets what somebody looked at before and does not any more; all of it when
// nothing is to be kept.
func (d *dependents) keep(who mcreconcile.Request, looked map[dependency]struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &d.lockedState
	for at := range s.on[who] {
		if _, still := looked[at]; still {
			continue
		}
		delete(s.on[who], at)
		if delete(s.of[at], who); len(s.of[at]) == 0 {
			delete(s.of, at)
		}
	}
	if len(s.on[who]) == 0 {
		delete(s.on, who)
	}
}

// drop forgets everybody of a cluster, and returns them.
func (d *dependents) drop(cluster multicluster.ClusterName) []mcreconcile.Request {
	var all []mcreconcile.Request
	d.mu.Lock()
	for who := range d.lockedState.on {
		if who.ClusterName == cluster {
			all = append(all, who)
		}
	}
	d.mu.Unlock()
	for _, who := range all {
		d.keep(who, nil)
	}
	return all
}

// look is one reconciliation's reading. One goroutine uses it.
type look struct {
	client.Reader
	d      *dependents
	who    mcreconcile.Request
	looked map[dependency]struct{}
}

// begin a look through a reader of the cluster.
func (d *dependents) begin(who mcreconcile.Request, reader client.Reader) *look {
	return &look{Reader: reader, d: d, who: who, looked: map[dependency]struct{}{}}
}

// Get implements client.Reader.
func (l *look) Get(ctx context.Context, at client.ObjectKey, into client.Object, options ...client.GetOption) error {
	l.note(dependency{cluster: l.who.ClusterName, kind: into.GetObjectKind().GroupVersionKind().GroupKind(), ObjectKey: at})
	return l.Reader.Get(ctx, at, into, options...)
}

// region notes a look at the catalogue.
func (l *look) region(region string) { l.note(dependency{region: region}) }

func (l *look) note(at dependency) {
	l.looked[at] = struct{}{}
	l.d.note(l.who, at)
}

// end the look.
func (l *look) end() { l.d.keep(l.who, l.looked) }
