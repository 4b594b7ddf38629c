package watchers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// ErrNotSynced is returned by a Reader for a kind that is not demanded, or whose
// initial list is not whole: its absence in the store would tell nothing.
var ErrNotSynced = errors.New("the kind is not synced")

// NotSyncedError says why, where that is known.
type NotSyncedError struct {
	Kind    schema.GroupKind
	Cluster multicluster.ClusterName
	// Demanded is whether it will be, by itself or when it is mended.
	Demanded bool
	// Reason is one of this package's, and Message tells people how to mend it; both
	// are empty while the kind is being listed.
	Reason, Message string
}

// Error implements error.
func (e *NotSyncedError) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("%s in %q: %v", e.Kind, e.Cluster, ErrNotSynced)
}

// Is makes errors.Is(err, ErrNotSynced) true.
func (e *NotSyncedError) Is(target error) bool { return target == ErrNotSynced }

// NotInstalled reports whether the cluster does not serve the kind, so that it has no object
// of it.
func (e *NotSyncedError) NotInstalled() bool { return e.Reason == ReasonNotInstalled }

// Reader reads what is stored of a cluster, and never asks the cluster. Get and
// List give copies. List knows InNamespace and label selectors. What was demanded
// by name or namespace is all that is found.
//
// Errors: *NotSyncedError, of class ErrNotSynced, and NotFound as an API server's.
func (w *Watcher) Reader(cluster multicluster.ClusterName) client.Reader {
	return &reader{watcher: w, cluster: cluster}
}

type reader struct {
	watcher *Watcher
	cluster multicluster.ClusterName
}

// Get implements client.Reader.
func (r *reader) Get(_ context.Context, at client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, r.watcher.o.Scheme)
	if err != nil {
		return fmt.Errorf("kind of %T: %w", into, err)
	}
	informers, err := r.informers(gvk.GroupKind(), at.Namespace)
	if err != nil {
		return err
	}
	for _, i := range informers {
		if o := i.stored(wanted{at.Namespace, at.Name}); o != nil && keyOf(o) == nil {
			return copyInto(o, into)
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, at.String())
}

// List implements client.Reader.
func (r *reader) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	if o.FieldSelector != nil || o.Limit != 0 {
		return errors.New("watchers' stores know no field selectors and no limits")
	}
	gvk, err := apiutil.GVKForObject(list, r.watcher.o.Scheme)
	if err != nil {
		return fmt.Errorf("kind of %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	informers, err := r.informers(gvk.GroupKind(), o.Namespace)
	if err != nil {
		return err
	}
	var all []runtime.Object
	for _, i := range informers {
		i.each(func(s client.Object) bool {
			if keyOf(s) != nil || (o.Namespace != "" && s.GetNamespace() != o.Namespace) ||
				(o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(s.GetLabels()))) {
				return true
			}
			var item client.Object
			if item, err = newItem(list, gvk, r.watcher.o.Scheme); err == nil {
				err = copyInto(s, item)
			}
			all = append(all, item)
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	if err := meta.SetList(list, all); err != nil {
		return fmt.Errorf("filling %T: %w", list, err)
	}
	return nil
}

// newItem makes an empty element of a list.
func newItem(list client.ObjectList, gvk schema.GroupVersionKind, scheme *runtime.Scheme) (client.Object, error) {
	if _, ok := list.(*unstructured.UnstructuredList); ok {
		return &unstructured.Unstructured{}, nil
	}
	made, err := scheme.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("making an element of %T: %w", list, err)
	}
	o, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", made)
	}
	return o, nil
}

// informers are those that hold a kind, in a namespace or in all.
func (r *reader) informers(gk schema.GroupKind, namespace string) ([]*informer, error) {
	w := r.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	err := &NotSyncedError{Kind: gk, Cluster: r.cluster}
	c := w.lockedState.clusters[r.cluster]
	if c == nil || c.lockedKinds[gk] == nil {
		return nil, err
	}
	err.Demanded = true
	why := c.lockedKinds[gk].lockedProblem
	run := c.lockedKinds[gk].lockedRun
	if run == nil || len(run.lockedInformers) == 0 {
		err.Reason, err.Message = why.reason, why.message
		return nil, err
	}
	var found []*informer
	for at, i := range run.lockedInformers {
		if at != "" && namespace != "" && at != namespace {
			continue
		}
		if !i.lockedReady { // What kept the run before from listing does not hold any more.
			err.Reason, err.Message = i.lockedProblem.reason, i.lockedProblem.message
			return nil, err
		}
		found = append(found, i)
	}
	if len(found) == 0 {
		err.Message = fmt.Sprintf("%s of namespace %s are not read: the hub is kept to other namespaces", gk, namespace)
		return nil, err
	}
	return found, nil
}

// copyInto copies a stored object, from unstructured to a Go type if need be.
func copyInto(from, into client.Object) error {
	u, ok := from.(*unstructured.Unstructured)
	if !ok {
		f, t := reflect.ValueOf(from.DeepCopyObject()), reflect.ValueOf(into)
		if f.Type() != t.Type() {
			return fmt.Errorf("%T is stored, not %T", from, into)
		}
		t.Elem().Set(f.Elem())
		return nil
	}
	if v, ok := into.(*unstructured.Unstructured); ok {
		u.DeepCopyInto(v)
		return nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		return fmt.Errorf("reading %s as %T: %w", u.GetKind(), into, err)
	}
	return nil
}
