package watchers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// key is what is stored of an object that nobody demands: namespace, name, UID and
// resourceVersion.
type key struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// unreadable: it is demanded, and Reduce could not read it.
	unreadable bool
}

var _ client.Object = &key{}

// DeepCopyObject implements runtime.Object.
func (k *key) DeepCopyObject() runtime.Object {
	c := *k
	return &c
}

// keyOf is the object as a key; nil if it is whole, or none.
func keyOf(o client.Object) *key {
	k, _ := o.(*key)
	return k
}

// reduce makes what is stored of an object: of one that nobody demands, its key.
func (k *keeper) reduce(u *unstructured.Unstructured) client.Object {
	namespace, name := u.GetNamespace(), u.GetName()
	short := &key{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
	}}
	switch {
	case !k.wants(namespace, name):
		return short
	case k.kind.Reduce == nil:
		u.SetManagedFields(nil)
		return u
	}
	o, err := k.kind.Reduce(u)
	if err != nil {
		k.w.o.Logger.V(1).Info("object cannot be read", "cluster", k.c.name, "kind", k.kind.GroupKind.String(),
			"namespace", namespace, "name", name, "error", err.Error())
		short.unreadable = true
		return short
	}
	return o
}

// stored is what the informer holds of an object; nil for nothing.
func (i *informer) stored(want wanted) client.Object {
	at := want.name
	if want.namespace != "" {
		at = want.namespace + "/" + want.name
	}
	item, _, _ := i.shared.GetStore().GetByKey(at)
	o, _ := item.(client.Object)
	return o
}

// each calls do for each object held until it says no; false if it did.
func (i *informer) each(do func(client.Object) bool) bool {
	for _, item := range i.shared.GetStore().List() {
		if o, ok := item.(client.Object); ok && !do(o) {
			return false
		}
	}
	return true
}

// lacks tells whether something is stored as its key of which all is demanded.
func (i *informer) lacks(wide []wanted) bool {
	if len(wide) == 0 {
		return false
	}
	return !i.each(func(o client.Object) bool {
		k := keyOf(o)
		if k == nil || k.unreadable {
			return true
		}
		for _, want := range wide {
			if want.namespace == "" || want.namespace == o.GetNamespace() {
				return false
			}
		}
		return true
	})
}
