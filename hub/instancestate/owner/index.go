package owner

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/internal/capa"
)

// Key of an object.
type Key struct {
	// Cluster that has the object; empty for the management cluster.
	Cluster string
	// Kind is one of AWSMachine, AWSMachinePool, AWSManagedMachinePool and ROSAMachinePool.
	Kind            schema.GroupKind
	Namespace, Name string
}

// Pool reports whether the object represents several instances.
func (k Key) Pool() bool { return k.Kind != capa.AWSMachine }

// Learns reports whether the pool has an Auto Scaling group that its object never names: that
// of an EKS node group. Its ARN is learned from events of its instances.
func (k Key) Learns() bool { return k.Kind == capa.AWSManagedMachinePool }

// Object represents an instance or a group.
type Object struct {
	Key
	// ClusterName is the name of its Cluster, in the same namespace.
	ClusterName string
	// Region that an annotation of the object itself names; empty when there is none.
	Region string
	// Instances are the ids of its instances.
	Instances []string
	// GroupARN of a pool, empty until its object names it, and GroupName.
	GroupARN, GroupName string
	// LearnedARN is the ARN of the group of an object that Learns, as events of its instances
	// named it. It says nothing about the object's account and region: senders of messages
	// choose it.
	LearnedARN string
}

// Place is the account and region of an object's instances; empty when not known.
type Place struct{ Account, Region string }

// Verdict is the result of Find for a fact.
type Verdict int

// Verdicts.
const (
	// Unknown: no object represents the instance or group, or not yet.
	Unknown Verdict = iota
	// Owned: there are objects to label.
	Owned
	// Foreign: there are objects, but the fact is of another account or region.
	Foreign
	// Unplaced: the account or region of an object cannot be read now, so it may own the fact.
	// The objects that are found own it too; for a group there are none.
	Unplaced
)

// Index has objects by their instances and groups. The zero value is empty.
type Index struct {
	mu          sync.RWMutex
	lockedState struct {
		objects map[Key]*Object
		// byInstance: id of an instance → its objects. byARN, byLearned and byName: ARN, learned
		// ARN and name of a group → its objects.
		byInstance, byARN, byLearned, byName map[string][]*Object
	}
}

// InstanceID returns the id of the instance in a provider id, such as
// aws:///eu-west-1a/i-0123456789abcdef0; empty when there is none.
func InstanceID(providerID string) string {
	id := providerID[strings.LastIndexByte(providerID, '/')+1:]
	if !strings.HasPrefix(providerID, "aws://") || !strings.HasPrefix(id, "i-") {
		return ""
	}
	return id
}

// Set adds or replaces an object.
func (x *Index) Set(o Object) {
	o.Instances = slices.Clip(slices.Clone(o.Instances))
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.lockedState
	if s.objects == nil {
		s.objects = map[Key]*Object{}
		s.byInstance, s.byARN = map[string][]*Object{}, map[string][]*Object{}
		s.byLearned, s.byName = map[string][]*Object{}, map[string][]*Object{}
	}
	x.drop(o.Key)
	s.objects[o.Key] = &o
	x.each(&o, func(in map[string][]*Object, key string) { in[key] = append(in[key], &o) })
}

// Delete removes an object.
func (x *Index) Delete(key Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(key)
}

// In returns the keys of all objects in a cluster.
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

// each calls do for each map and key that an object is indexed by.
func (x *Index) each(o *Object, do func(in map[string][]*Object, key string)) {
	for _, id := range o.Instances {
		do(x.lockedState.byInstance, id)
	}
	if o.GroupARN != "" {
		do(x.lockedState.byARN, o.GroupARN)
	}
	if o.LearnedARN != "" {
		do(x.lockedState.byLearned, o.LearnedARN)
	}
	if o.GroupName != "" {
		do(x.lockedState.byName, o.GroupName)
	}
}

// Find returns the objects to merge a fact into, in a fixed order. where returns the
// account and region of an object's instances, and false if they cannot be read now.
func (x *Index) Find(f message.Fact, where func(Object) (Place, bool)) ([]Object, Verdict) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	found, match := x.instance(f), certain
	if f.Kind.Group() {
		found, match = x.group(f)
	}
	if len(found) == 0 {
		return nil, Unknown
	}
	own, verdict := make([]Object, 0, len(found)), Owned
	for _, o := range found {
		place, readable := PlaceOf(o, where)
		if !readable {
			verdict = Unplaced
			continue
		}
		if account, region := place.Of(f); account && region {
			own = append(own, *o)
		}
	}
	switch {
	case verdict == Unplaced && (len(own) == 0 || f.Kind.Group()): // A group has one pool; which one is not known.
		return nil, Unplaced
	case len(own) == 0 && match == learned:
		return nil, Unknown // A message of another account taught it: it must not claim the group.
	case len(own) == 0:
		return nil, Foreign
	case len(own) > 1 && match != certain:
		return nil, Unknown // It is not known yet which of them is meant.
	}
	slices.SortFunc(own, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return own, verdict
}

// instance returns the objects of an instance: its machines or, when it has none, its pools.
func (x *Index) instance(f message.Fact) []*Object {
	all := x.lockedState.byInstance[f.InstanceID]
	machines := make([]*Object, 0, len(all))
	for _, o := range all {
		if !o.Pool() {
			machines = append(machines, o)
		}
	}
	if len(machines) > 0 {
		return machines
	}
	return all
}

// match is how the objects of a fact were found.
type match int

const (
	// certain: by an instance, or by the ARN that the object names. All objects are meant.
	certain match = iota
	// learned: by an ARN that events named.
	learned
	// named: by a name, which is unique only in an account and region.
	named
)

// group returns the objects of a group. The ARN in an object comes first, then the instance
// of the fact in a pool that Learns, then the learned ARN, then the name of pools whose ARN
// is not known to differ.
func (x *Index) group(f message.Fact) ([]*Object, match) {
	if all := x.lockedState.byARN[f.GroupARN]; len(all) > 0 {
		return all, certain
	}
	var learning []*Object
	for _, o := range x.lockedState.byInstance[f.InstanceID] {
		if o.Learns() {
			learning = append(learning, o)
		}
	}
	if len(learning) > 0 {
		return learning, certain
	}
	if all := x.lockedState.byLearned[f.GroupARN]; len(all) > 0 {
		return all, learned
	}
	var same []*Object
	for _, o := range x.lockedState.byName[f.GroupName] {
		if f.GroupARN == "" || o.GroupARN == "" {
			same = append(same, o)
		}
	}
	return same, named
}

// PlaceOf returns the place of an object: from its group's ARN if the object names it, else
// from where, which returns false if the place cannot be read now.
func PlaceOf(o *Object, where func(Object) (Place, bool)) (Place, bool) {
	if named, err := arn.Parse(o.GroupARN); err == nil {
		return Place{Account: named.AccountID, Region: named.Region}, true
	}
	return where(*o)
}

// Of reports whether a fact is of the account and of the region of a place. A fact without one of
// them is of another place, if that of the place is known.
func (p Place) Of(f message.Fact) (account, region bool) {
	return p.Account == "" || p.Account == f.Account, p.Region == "" || p.Region == f.Region
}
