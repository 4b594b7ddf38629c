package owners

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Ref names an object.
type Ref struct {
	// Cluster that the object lives in; empty for the management cluster.
	Cluster               string
	Kind, Namespace, Name string
}

// Object that stands for an instance or a group.
type Object struct {
	Ref
	// Pool says that it stands for a group.
	Pool bool
	// Account and Region of its cluster; empty while they are not known, and then
	// everything is taken as its own.
	Account, Region string
	// InstanceIDs, or what provider ids hold of them.
	InstanceIDs []string
	// GroupARN of a pool, once it is known, and GroupName.
	GroupARN, GroupName string
}

// Verdict on a fact.
type Verdict string

// Verdicts.
const (
	// Owned: there are objects to label.
	Owned Verdict = "owned"
	// Unknown: no object stands for it, or not yet.
	Unknown Verdict = "unknown"
	// Foreign: an object does, but the fact is of another account or region.
	Foreign Verdict = "foreign"
)

// Index of owners. The zero value is empty.
type Index struct {
	mu      sync.RWMutex
	objects map[Ref]Object
	// byInstance, byARN and byName are objects by what they stand for.
	byInstance, byARN, byName map[string]map[Ref]struct{}
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

// Set an object in the place of what was known of it. It returns the instance ids, ARNs
// and names of groups for which nothing stood before: facts may have waited for them.
func (x *Index) Set(o Object) (appeared []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.objects == nil {
		x.objects = map[Ref]Object{}
		x.byInstance, x.byARN, x.byName = map[string]map[Ref]struct{}{}, map[string]map[Ref]struct{}{}, map[string]map[Ref]struct{}{}
	}
	o.InstanceIDs = slices.Clone(o.InstanceIDs)
	for _, k := range x.keys(o) {
		if len(k.in[k.key]) == 0 {
			appeared = append(appeared, k.key)
		}
	}
	x.drop(o.Ref)
	x.objects[o.Ref] = o
	for _, k := range x.keys(o) {
		if k.in[k.key] == nil {
			k.in[k.key] = map[Ref]struct{}{}
		}
		k.in[k.key][o.Ref] = struct{}{}
	}
	return appeared
}

// Delete an object.
func (x *Index) Delete(ref Ref) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(ref)
}

func (x *Index) drop(ref Ref) {
	for _, k := range x.keys(x.objects[ref]) {
		if delete(k.in[k.key], ref); len(k.in[k.key]) == 0 {
			delete(k.in, k.key)
		}
	}
	delete(x.objects, ref)
}

// key of an object in one of the maps.
type key struct {
	in  map[string]map[Ref]struct{}
	key string
}

func (x *Index) keys(o Object) []key {
	var keys []key
	for _, id := range o.InstanceIDs {
		if id != "" {
			keys = append(keys, key{x.byInstance, id})
		}
	}
	if o.GroupARN != "" {
		keys = append(keys, key{x.byARN, o.GroupARN})
	}
	if o.GroupName != "" {
		keys = append(keys, key{x.byName, o.GroupName})
	}
	return keys
}

// Find the objects that a fact is to be told on, in a fixed order.
func (x *Index) Find(f message.Fact) ([]Object, Verdict) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	found := x.instance(f)
	if f.Kind.Group() {
		found = x.group(f)
	}
	if len(found) == 0 {
		return nil, Unknown
	}
	own := slices.DeleteFunc(found, func(o Object) bool { return foreign(o.Account, f.Account) || foreign(o.Region, f.Region) })
	if len(own) == 0 {
		return nil, Foreign
	}
	return own, Owned
}

// foreign tells whether what a fact says is not an owner's. A fact that does not say is
// not taken for another's when the owner knows: it could be anybody's.
func foreign(owner, said string) bool { return owner != "" && owner != said }

// instance's owners: its machines or, when it has none, its pools.
func (x *Index) instance(f message.Fact) []Object {
	all := x.sorted(x.byInstance[f.InstanceID])
	machines := slices.DeleteFunc(slices.Clone(all), func(o Object) bool { return o.Pool })
	if len(machines) > 0 {
		return machines
	}
	return all
}

// group's owners.
func (x *Index) group(f message.Fact) []Object {
	if f.GroupARN != "" && len(x.byARN[f.GroupARN]) > 0 {
		return x.sorted(x.byARN[f.GroupARN])
	}
	// By name: not a pool that is known to have another ARN.
	named := slices.DeleteFunc(x.sorted(x.byName[f.GroupName]), func(o Object) bool {
		return f.GroupARN != "" && o.GroupARN != ""
	})
	own := slices.DeleteFunc(slices.Clone(named), func(o Object) bool { return foreign(o.Account, f.Account) || foreign(o.Region, f.Region) })
	switch len(own) {
	case 0:
		return named
	case 1:
		return own
	}
	return nil // Which of them is meant cannot be told.
}

func (x *Index) sorted(refs map[Ref]struct{}) []Object {
	objects := make([]Object, 0, len(refs))
	for ref := range maps.Keys(refs) {
		objects = append(objects, x.objects[ref])
	}
	slices.SortFunc(objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return objects
}
