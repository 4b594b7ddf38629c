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

// dependency is an input of a node group's annotations: an object, which may not exist, or the
// catalogue's data of a region.
type dependency struct {
	cluster multicluster.ClusterName
	kind    schema.GroupKind
	client.ObjectKey
	region string
}

// dependents records the inputs of each reconciliation. When an input changes or appears, only
// the node groups that have read it are reconciled. So the order in which objects are created
// does not matter, and no list is searched.
type dependents struct {
	mu          sync.Mutex
	lockedState struct {
		// of: dependency → the requests that have read it.
		of map[dependency]map[mcreconcile.Request]struct{}
		// on: request → what it has read.
		on map[mcreconcile.Request]map[dependency]struct{}
	}
}

func newDependents() *dependents {
	d := &dependents{}
	d.lockedState.of = map[dependency]map[mcreconcile.Request]struct{}{}
	d.lockedState.on = map[mcreconcile.Request]map[dependency]struct{}{}
	return d
}

// concerned returns the requests that have read a dependency.
func (d *dependents) concerned(by dependency) []mcreconcile.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.lockedState.of[by]))
}

// note records that a request is about to read a dependency. Callers note before they read, so
// that no change in between is missed.
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

// keep removes the dependencies of a request that are not in read; all of them when read is
// empty.
func (d *dependents) keep(who mcreconcile.Request, read map[dependency]struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &d.lockedState
	for at := range s.on[who] {
		if _, still := read[at]; still {
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

// drop forgets the requests of a cluster, and returns them.
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

// reading is the reader of one reconciliation. It records the dependencies. One goroutine uses
// it.
type reading struct {
	client.Reader
	d    *dependents
	who  mcreconcile.Request
	read map[dependency]struct{}
}

// begin returns the reader of one reconciliation, on top of a reader of the cluster.
func (d *dependents) begin(who mcreconcile.Request, reader client.Reader) *reading {
	return &reading{Reader: reader, d: d, who: who, read: map[dependency]struct{}{}}
}

// Get implements client.Reader.
func (l *reading) Get(ctx context.Context, at client.ObjectKey, into client.Object, options ...client.GetOption) error {
	l.note(dependency{cluster: l.who.ClusterName, kind: into.GetObjectKind().GroupVersionKind().GroupKind(), ObjectKey: at})
	return l.Reader.Get(ctx, at, into, options...)
}

// region records a query to the catalogue.
func (l *reading) region(region string) { l.note(dependency{region: region}) }

func (l *reading) note(at dependency) {
	l.read[at] = struct{}{}
	l.d.note(l.who, at)
}

// end removes the dependencies of earlier reconciliations that this one did not read.
func (l *reading) end() { l.d.keep(l.who, l.read) }
