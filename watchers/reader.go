package watchers

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// ErrNotSynced is returned by a Reader for a kind that is not demanded, or whose
// initial list is not whole: its absence in the store would tell nothing.
var ErrNotSynced = errors.New("the kind is not synced")

// Reader reads one kind of a cluster from the watchers' stores. It never asks the
// cluster.
type Reader struct {
	watcher *Watcher
	cluster multicluster.ClusterName
	kind    schema.GroupKind
}

// Reader of a kind in a cluster.
func (w *Watcher) Reader(cluster multicluster.ClusterName, kind schema.GroupKind) *Reader {
	return &Reader{watcher: w, cluster: cluster, kind: kind}
}

// Get copies a stored object into one of the type that the kind is reduced to.
// Errors: ErrNotSynced, and NotFound as an API server's.
func (r *Reader) Get(_ context.Context, want client.ObjectKey, into client.Object) error {
	found := errNone
	err := r.each(func(o client.Object) bool {
		if o.GetNamespace() != want.Namespace || o.GetName() != want.Name {
			return true
		}
		found = copyInto(o, into)
		return false
	})
	switch {
	case err != nil:
		return err
	case errors.Is(found, errNone):
		return apierrors.NewNotFound(schema.GroupResource{Group: r.kind.Group, Resource: r.kind.Kind}, want.String())
	default:
		return found
	}
}

var errNone = errors.New("none")

// List returns copies of the stored objects that the options select by namespace
// and labels. Error: ErrNotSynced.
func (r *Reader) List(_ context.Context, options ...client.ListOption) ([]client.Object, error) {
	var o client.ListOptions
	o.ApplyOptions(options)
	var all []client.Object
	err := r.each(func(s client.Object) bool {
		if (o.Namespace == "" || s.GetNamespace() == o.Namespace) && (o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(s.GetLabels()))) {
			all = append(all, s.DeepCopyObject().(client.Object)) //nolint:forcetypeassert // A copy has its original's type.
		}
		return true
	})
	return all, err
}

// each calls do for stored objects until it says no.
func (r *Reader) each(do func(client.Object) bool) error {
	r.watcher.mu.Lock()
	var informers []*informer
	synced := false
	if c := r.watcher.lockedState.clusters[r.cluster]; c != nil && c.kinds[r.kind] != nil {
		synced = c.kinds[r.kind].lockedSynced
		for _, i := range c.kinds[r.kind].lockedInformers {
			informers = append(informers, i)
		}
	}
	r.watcher.mu.Unlock()
	if !synced {
		return fmt.Errorf("%s in %s: %w", r.kind, r.cluster, ErrNotSynced)
	}
	for _, i := range informers {
		for _, item := range i.shared.GetStore().List() {
			if o, ok := item.(storedObject); ok && !isKey(o) && !do(o) {
				return nil
			}
		}
	}
	return nil
}

func copyInto(from, into client.Object) error {
	if u, ok := from.(*unstructured.Unstructured); ok {
		if v, ok := into.(*unstructured.Unstructured); ok {
			u.DeepCopyInto(v)
			return nil
		}
	}
	f, t := reflect.ValueOf(from.DeepCopyObject()), reflect.ValueOf(into)
	if f.Type() != t.Type() {
		return fmt.Errorf("%T is stored, not %T", from, into)
	}
	t.Elem().Set(f.Elem())
	return nil
}
