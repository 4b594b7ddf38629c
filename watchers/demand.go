package watchers

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wanted is a demand within one kind of one cluster: an object, all objects of a namespace
// (no name), or all objects.
type wanted struct{ namespace, name string }

// demandSet holds what is demanded of one kind of one cluster, and what was demanded and
// still lingers. It is plain data: the caller holds the lock.
type demandSet map[wanted]*interest

// interest holds the sorted owners of a demand, and since when there is none.
type interest struct {
	owners []string
	since  time.Time
}

// add adds an owner.
func (d demandSet) add(want wanted, owner string) {
	i := d[want]
	if i == nil {
		i = &interest{}
		d[want] = i
	}
	if at, had := slices.BinarySearch(i.owners, owner); !had {
		i.owners = slices.Insert(i.owners, at, owner)
	}
}

// release removes an owner. The linger begins when the last one leaves.
func (d demandSet) release(want wanted, owner string, now time.Time) {
	i := d[want]
	if at, had := slices.BinarySearch(i.owners, owner); had {
		i.owners = slices.Delete(i.owners, at, at+1)
	}
	if len(i.owners) == 0 {
		i.since = now
	}
}

// sweep drops demands that have had no owner for the linger. It returns whether it dropped one,
// and when the next linger ends; zero if none has begun.
func (d demandSet) sweep(now time.Time, linger time.Duration) (dropped bool, next time.Time) {
	for want, i := range d {
		if len(i.owners) > 0 {
			continue
		}
		if end := i.since.Add(linger); end.After(now) {
			next = sooner(next, end)
			continue
		}
		delete(d, want)
		dropped = true
	}
	return dropped, next
}

// has returns whether an object is demanded.
func (d demandSet) has(namespace, name string) bool {
	_, named := d[wanted{namespace, name}]
	_, space := d[wanted{namespace, ""}]
	_, all := d[wanted{}]
	return named || space || all
}

// namespaces returns the namespaces in which objects are demanded, sorted.
func (d demandSet) namespaces() []string {
	var found []string
	for want := range d {
		if want.namespace != metav1.NamespaceAll && !slices.Contains(found, want.namespace) {
			found = append(found, want.namespace)
		}
	}
	slices.Sort(found)
	return found
}

// in returns the demands that concern an informer's namespace ("" for all): named are of
// single objects, wide of a whole namespace or of all.
func (d demandSet) in(namespace string) (named, wide []wanted) {
	for want := range d {
		switch {
		case namespace != metav1.NamespaceAll && want.namespace != namespace:
		case want.name == "":
			wide = append(wide, want)
		default:
			named = append(named, want)
		}
	}
	return named, wide
}

// objects counts the objects that have an owner.
func (d demandSet) objects() int {
	n := 0
	for want, i := range d {
		if want.name != "" && len(i.owners) > 0 {
			n++
		}
	}
	return n
}
