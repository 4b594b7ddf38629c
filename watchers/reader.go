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

// ErrNotSynced is returned by a Reader for a kind that is not demanded, or whose initial
// list is not complete. An object that is not stored may exist then.
var ErrNotSynced = errors.New("the kind is not synced")

// NotSyncedError says why a kind is not synced, if that is known.
type NotSyncedError struct {
	Kind    schema.GroupKind
	Cluster multicluster.ClusterName
	// Demanded is whether it will be synced: automatically, or when a user has fixed Reason.
	Demanded bool
	// Reason is one of this package's reasons, and Message says how to fix it. Both are
	// empty while the kind is being listed.
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

// Reader returns a reader of the stored objects of a cluster. It never calls the cluster.
// Get and List return copies. List supports InNamespace and label selectors. The reader
// finds only objects that were demanded by name or namespace.
//
// Errors: *NotSyncedError, which is an ErrNotSynced, and NotFound as from an API server.
func (w *Watcher) Reader(cluster multicluster.ClusterName) client.Reader {
	return &reader{watcher: w, cluster: cluster}
}

type reader struct {
	watcher *Watcher
	cluster multicluster.ClusterName
}

// Get implements client.Reader.
func (r *reader) Get(_ context.Context, at client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, r.watcher.shared.options.Scheme)
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
		return errors.New("the stores of watchers support no field selectors and no limits")
	}
	gvk, err := apiutil.GVKForObject(list, r.watcher.shared.options.Scheme)
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
			if item, err = newItem(list, gvk, r.watcher.shared.options.Scheme); err == nil {
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
		return nil, fmt.Errorf("%T is not a client.Object", made)
	}
	return o, nil
}

// informers returns the informers that hold a kind, in a namespace or in all.
func (r *reader) informers(gk schema.GroupKind, namespace string) ([]*informer, error) {
	r.watcher.shared.mu.Lock()
	defer r.watcher.shared.mu.Unlock()
	found, err := r.watcher.informersLocked(r.cluster, gk, namespace)
	if err != nil {
		return nil, err // A nil *NotSyncedError would be an error.
	}
	return found, nil
}

// informersLocked returns the informers of a cluster that hold a kind, in a namespace or in all.
func (w *Watcher) informersLocked(name multicluster.ClusterName, gk schema.GroupKind, namespace string) ([]*informer, *NotSyncedError) {
	err := &NotSyncedError{Kind: gk, Cluster: name}
	c := w.lockedState.clusters[name]
	if c == nil || c.lockedState.keepers[gk] == nil {
		return nil, err
	}
	err.Demanded = true
	k := c.lockedState.keepers[gk]
	why := k.subject.lockedState.problem
	run := k.lockedState.run
	if run == nil || len(run.lockedState.informers) == 0 {
		err.Reason, err.Message = why.reason, why.message
		return nil, err
	}
	var found []*informer
	for at, i := range run.lockedState.informers {
		if at != "" && namespace != "" && at != namespace {
			continue
		}
		if s := i.lockedState; !s.ready { // The problem of the last run does not apply any more.
			err.Reason, err.Message = s.problem.reason, s.problem.message
			return nil, err
		}
		found = append(found, i)
	}
	if len(found) == 0 {
		err.Message = fmt.Sprintf("%s of namespace %s are not read: the hub is restricted to other namespaces", gk, namespace)
		return nil, err
	}
	return found, nil
}

// copyInto copies a stored object, from unstructured to a Go type if necessary.
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
