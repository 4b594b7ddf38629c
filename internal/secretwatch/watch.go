package secretwatch

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// newWatch makes a watch. It makes no call.
func newWatch(c metadata.Interface, at target) *watch {
	only := func(o *metav1.ListOptions) {
		if at.Name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, at.Name).String()
		}
	}
	informer := metadatainformer.NewFilteredMetadataInformer(c, corev1.SchemeGroupVersion.WithResource("secrets"), at.Namespace, 0, cache.Indexers{}, only).Informer()
	return &watch{informer: informer, synced: informer.HasSyncedChecker()}
}

// run runs a watch until the context ends.
func (w *Watches[W]) run(ctx context.Context, at target, one *watch) {
	log := w.options.Logger.WithValues("namespace", at.Namespace)
	if at.Name != "" {
		log = log.WithValues("secret", at.Name)
	}
	const failed = "the metadata of Secrets cannot be watched"
	last := "" // only the reflector's goroutine uses it
	err := one.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if last != err.Error() {
			last = err.Error()
			log.Error(err, failed, "consequence", w.options.Consequence)
		}
	})
	if err == nil {
		err = one.informer.SetTransform(reduce)
	}
	if err == nil {
		_, err = one.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    w.changed,
			UpdateFunc: func(_, o any) { w.changed(o) },
			DeleteFunc: w.changed,
		})
	}
	if err != nil { // Only an informer that was started before returns one.
		log.Error(err, failed, "consequence", w.options.Consequence)
		return
	}
	if w.options.WakeWhenListed {
		w.goroutines.Go(func() {
			select {
			case <-ctx.Done():
			case <-one.synced.Done():
				w.wake(w.waitersIn(at))
			}
		})
	}
	one.informer.RunWithContext(ctx)
}

// changed wakes the waiters of a Secret that was added, updated or deleted.
func (w *Watches[W]) changed(o any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
	if err != nil {
		return
	}
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	w.wake(w.waitersOf(types.NamespacedName{Namespace: namespace, Name: name}))
}

func (w *Watches[W]) wake(waiters []W) {
	for _, waiter := range waiters {
		w.options.Wake(waiter)
	}
}

// version returns the resourceVersion of a stored Secret.
func (o *watch) version(secret types.NamespacedName) (version string, known bool) {
	item, exists, err := o.informer.GetStore().GetByKey(secret.String())
	if err != nil || !exists {
		return "", err == nil
	}
	object, ok := item.(metav1.Object)
	if !ok {
		return "", false
	}
	return object.GetResourceVersion(), true
}

// reduce keeps name, UID and resourceVersion.
func reduce(o any) (any, error) {
	object, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: object.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: object.Name, Namespace: object.Namespace, UID: object.UID, ResourceVersion: object.ResourceVersion,
	}}, nil
}
