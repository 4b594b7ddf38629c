package view

import (
	"cmp"
	"slices"
	"time"
)

// Object is an object of the management cluster that names a cluster.
type Object struct {
	// Cluster is its own key.
	Cluster Cluster
	// Of is the Cluster that a GitopsCluster references, which need not exist; zero for each
	// other object.
	Of Cluster
	// Labels are shared with the cache and must not be changed.
	Labels   map[string]string
	Created  time.Time
	Deleting bool
}

// compare orders clusters by kind, namespace and name. The management cluster is the first.
func (c Cluster) compare(other Cluster) int {
	return cmp.Or(cmp.Compare(c.Kind, other.Kind), cmp.Compare(c.Namespace, other.Namespace), cmp.Compare(c.Name, other.Name))
}

// object returns the object of a cluster; false when there is none, or it was not read.
func (f *Facts) object(c Cluster) (Object, bool) {
	i, found := slices.BinarySearchFunc(f.Objects, c, func(o Object, c Cluster) int { return o.Cluster.compare(c) })
	if !found {
		return Object{}, false
	}
	return f.Objects[i], true
}

// actual returns the Cluster that a GitopsCluster references, and c itself for each other
// cluster. It is c itself, too, when the Cluster does not exist: c is the only one to show then.
func (f *Facts) actual(c Cluster) Cluster {
	o, found := f.object(c)
	if !found || o.Of.Local() {
		return c
	}
	if _, exists := f.object(o.Of); !exists {
		return c
	}
	return o.Of
}
