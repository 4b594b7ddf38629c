package secrets

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Watches of the Secrets that objects of one controller want.
type Watches struct {
	client  metadata.Interface
	without string

	mu         sync.Mutex
	lockedRun  func(types.NamespacedName) (stop context.CancelFunc)
	lockedWant map[types.NamespacedName]types.NamespacedName // object → Secret
	lockedOpen map[types.NamespacedName]*watch
}

// watch of one Secret.
type watch struct {
	objects map[types.NamespacedName]struct{}
	stop    context.CancelFunc // nil until it runs
}

var _ source.Source = &Watches{}

// New makes Watches; with a nil client nobody is ever woken. without says what it means,
// and how to mend it, when a Secret cannot be watched.
func New(c metadata.Interface, without string) *Watches {
	return &Watches{
		client: c, without: without,
		lockedWant: map[types.NamespacedName]types.NamespacedName{}, lockedOpen: map[types.NamespacedName]*watch{},
	}
}

// Start implements source.Source.
func (w *Watches) Start(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	if w.client == nil {
		return nil
	}
	run := func(secret types.NamespacedName) context.CancelFunc {
		ctx, cancel := context.WithCancel(ctx)
		go w.watch(ctx, secret, q)
		return cancel
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lockedRun = run
	for secret, one := range w.lockedOpen {
		one.stop = run(secret) // It starts a goroutine and returns.
	}
	return nil
}

// Want has an object woken by a Secret, and by no other.
func (w *Watches) Want(object, secret types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lockedWant[object] == secret {
		return
	}
	w.dropLocked(object)
	w.lockedWant[object] = secret
	one := w.lockedOpen[secret]
	if one == nil {
		one = &watch{objects: map[types.NamespacedName]struct{}{}}
		w.lockedOpen[secret] = one
		if w.lockedRun != nil {
			one.stop = w.lockedRun(secret)
		}
	}
	one.objects[object] = struct{}{}
}

// Drop what an object wants.
func (w *Watches) Drop(object types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropLocked(object)
}

func (w *Watches) dropLocked(object types.NamespacedName) {
	secret, ok := w.lockedWant[object]
	if !ok {
		return
	}
	delete(w.lockedWant, object)
	one := w.lockedOpen[secret]
	delete(one.objects, object)
	if len(one.objects) > 0 {
		return
	}
	delete(w.lockedOpen, secret)
	if one.stop != nil {
		one.stop()
	}
}

// who wants a Secret.
func (w *Watches) who(secret types.NamespacedName) []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.lockedOpen[secret]
	if one == nil {
		return nil
	}
	return slices.Collect(maps.Keys(one.objects))
}

// watch one Secret until the context ends.
func (w *Watches) watch(ctx context.Context, secret types.NamespacedName, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, secret.Name).String()
	}
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, corev1.SchemeGroupVersion.WithResource("secrets"), secret.Namespace, 0, cache.Indexers{}, only).Informer()
	wake := func(any) {
		for _, object := range w.who(secret) {
			q.Add(reconcile.Request{NamespacedName: object})
		}
	}
	said := "" // only the reflector's goroutine uses it
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if said != err.Error() {
			said = err.Error()
			log.FromContext(ctx).Error(err, "the metadata of a Secret cannot be watched", "secret", secret, "without", w.without)
		}
	})
	if err == nil {
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }, DeleteFunc: wake})
	}
	if err != nil { // an informer that was started before: not this one
		log.FromContext(ctx).Error(err, "the metadata of a Secret cannot be watched", "secret", secret)
		return
	}
	informer.RunWithContext(ctx)
}
