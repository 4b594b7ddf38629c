package watchers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// key is what is stored of an object that is not demanded: namespace, name, UID and
// resourceVersion.
type key struct {
	metav1.ObjectMeta
	// unreadable: it is demanded, and Reduce could not read it.
	unreadable bool
}

var _ client.Object = &key{}

func newKey(o metav1.Object) *key {
	return &key{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}}
}

// GetObjectKind implements runtime.Object.
func (k *key) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (k *key) DeepCopyObject() runtime.Object {
	c := *k
	return &c
}

// keyOf returns the object as a key; nil if it is not only a key, or is nil.
func keyOf(o client.Object) *key {
	k, _ := o.(*key)
	return k
}

// isUnread returns whether only the key of an object is stored, because it was not demanded
// when it was stored.
func isUnread(o client.Object) bool {
	k := keyOf(o)
	return k != nil && !k.unreadable
}
