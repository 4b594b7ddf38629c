package owner

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Key of an object.
type Key struct {
	// Cluster that the object lives in; empty for the management cluster.
	Cluster string
	// Pool says that it is an AWSMachinePool, not an AWSMachine.
	Pool            bool
	Namespace, Name string
}

// Object that stands for an instance or a group.
type Object struct {
	Key
	// ClusterName is the Cluster that it belongs to, in its namespace.
	ClusterName string
	// Region that an annotation of the object itself names; empty when there is none.
	Region string
	// Instances are the ids of its instances.
	Instances []string
	// GroupARN of a pool, once it is known, and GroupName.
	GroupARN, GroupName string
}

// Place is where an object's instances are; what is not known is empty.
type Place struct{ Account, Region string }

// Verdict on a fact.
type Verdict int

// Verdicts.
const (
	// Unknown: no object stands for it, or not yet.
	Unknown Verdict = iota
	// Owned: there are objects to label.
	Owned
	// Foreign: an object does, and the fact is of another account or region.
	Foreign
)

// Index of objects by what they stand for. The zero value is empty.
type Index struct {
	mu          sync.RWMutex
	lockedState struct {
		objects map[Key]*Object
		// byInstance, byARN and byName: id, ARN and name of a group → who stands for it.
		byInstance, byARN, byName map[string][]*Object
	}
}

// InstanceID that a provider id names, such as aws:///eu-west-1a/i-0123456789abcdef0;
// empty when it names none.
func InstanceID(providerID string) string {
	id := providerID[strings.LastIndexByte(providerID, '/')+1:]
	if !strings.HasPrefix(providerID, "aws://") || !strings.HasPrefix(id, "i-") {
		return ""
	}
	return id
}

// Set an object in the place of what was known of it.
func (x *Index) Set(o Object) {
	o.Instances = slices.Clip(slices.Clone(o.Instances))
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	if s.objects == nil {
		s.objects = map[Key]*Object{}
		s.byInstance, s.byARN, s.byName = map[string][]*Object{}, map[string][]*Object{}, map[string][]*Object{}
	}
	x.drop(o.Key)
	s.objects[o.Key] = &o
	x.each(&o, func(in map[string][]*Object, key string) { in[key] = append(in[key], &o) })
}

// Delete an object.
func (x *Index) Delete(key Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(key)
}

// In are the keys of all objects in a cluster.
func (x *Index) In(cluster string) []Key {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var keys []Key
	for key := range x.lockedState.objects {
		if key.Cluster == cluster {
			keys = append(keys, key)
		}
	}
	return keys
}

func (x *Index) drop(key Key) {
	o := x.lockedState.objects[key]
	if o == nil {
		return
	}
	x.each(o, func(in map[string][]*Object, key string) {
		rest := slices.DeleteFunc(in[key], func(other *Object) bool { return other == o })
		if len(rest) == 0 {
			delete(in, key)
		} else {
			in[key] = rest
		}
	})
	delete(x.lockedState.objects, key)
}

// each thing that an object stands for.
func (x *Index) each(o *Object, do func(in map[string][]*Object, key string)) {
	for _, id := range o.Instances {
		do(x.lockedState.byInstance, id)
	}
	if o.GroupARN != "" {
		do(x.lockedState.byARN, o.GroupARN)
	}
	if o.GroupName != "" {
		do(x.lockedState.byName, o.GroupName)
	}
}

// Find the objects that a fact is to be told on, in a fixed order; where says in which
// account and region an object's instances are.
func (x *Index) Find(f message.Fact, where func(Object) Place) ([]Object, Verdict) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	found := x.instance(f)
	if f.Kind.Group() {
		found = x.group(f)
	}
	if len(found) == 0 {
		return nil, Unknown
	}
	own := make([]Object, 0, len(found))
	for _, o := range found {
		if place := placeOf(o, where); !foreign(place.Account, f.Account) && !foreign(place.Region, f.Region) {
			own = append(own, *o)
		}
	}
	switch {
	case len(own) == 0:
		return nil, Foreign
	case len(own) > 1 && f.Kind.Group() && !known(own, f.GroupARN):
		return nil, Unknown // Which of them is meant cannot be told yet.
	}
	slices.SortFunc(own, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return own, Owned
}

// instance's owners: its machines or, when it has none, its pools.
func (x *Index) instance(f message.Fact) []*Object {
	all := x.lockedState.byInstance[f.InstanceID]
	machines := make([]*Object, 0, len(all))
	for _, o := range all {
		if !o.Pool {
			machines = append(machines, o)
		}
	}
	if len(machines) > 0 {
		return machines
	}
	return all
}

// group's owners: by its ARN, else pools of its name that are not known to have another.
func (x *Index) group(f message.Fact) []*Object {
	if all := x.lockedState.byARN[f.GroupARN]; len(all) > 0 {
		return all
	}
	var named []*Object
	for _, o := range x.lockedState.byName[f.GroupName] {
		if f.GroupARN == "" || o.GroupARN == "" {
			named = append(named, o)
		}
	}
	return named
}

// known says that the group was found by its ARN.
func known(found []Object, arn string) bool { return arn != "" && found[0].GroupARN == arn }

// placeOf an object: its group's ARN says it, if it is known.
func placeOf(o *Object, where func(Object) Place) Place {
	if parts := strings.SplitN(o.GroupARN, ":", 6); len(parts) == 6 {
		return Place{Account: parts[4], Region: parts[3]}
	}
	return where(*o)
}

// foreign tells whether what a fact says is not an owner's. A fact that does not say is
// foreign to an owner who knows: it could be anybody's.
func foreign(owner, said string) bool { return owner != "" && owner != said }
