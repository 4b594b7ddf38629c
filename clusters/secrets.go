package clusters

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// secretWatches watch the metadata of Secrets, in those namespaces that hold a
// demanded cluster and no others, so that a Role in each is right enough. No byte
// of a Secret's data comes through them.
type secretWatches struct {
	client metadata.Interface
	log    logr.Logger
	// wake is told of a cluster whose Secret may have changed.
	wake func(multicluster.ClusterName)
	// spawn runs a goroutine of the Manager; false when it has ended.
	spawn func(func(context.Context)) bool

	mu          sync.Mutex
	lockedState struct {
		namespaces map[string]*secretWatch
		wanted     map[multicluster.ClusterName]types.NamespacedName
		wanters    map[types.NamespacedName]map[multicluster.ClusterName]struct{}
	}
}

// secretWatch is the watch of one namespace.
type secretWatch struct {
	informer cache.SharedIndexInformer
	synced   cache.DoneChecker
	stop     func() // closes stopped
	stopped  chan struct{}
	users    int // clusters; guarded by secretWatches.mu
}

func newSecretWatches(client metadata.Interface, log logr.Logger, wake func(multicluster.ClusterName), spawn func(func(context.Context)) bool) *secretWatches {
	s := &secretWatches{client: client, log: log, wake: wake, spawn: spawn}
	s.lockedState.namespaces = map[string]*secretWatch{}
	s.lockedState.wanted = map[multicluster.ClusterName]types.NamespacedName{}
	s.lockedState.wanters = map[types.NamespacedName]map[multicluster.ClusterName]struct{}{}
	return s
}

// want makes a Secret the one that a cluster is woken for. Idempotent.
func (s *secretWatches) want(cluster multicluster.ClusterName, secret types.NamespacedName) {
	s.mu.Lock()
	if s.lockedState.wanted[cluster] == secret {
		s.mu.Unlock()
		return
	}
	s.unwantLocked(cluster)
	s.lockedState.wanted[cluster] = secret
	if s.lockedState.wanters[secret] == nil {
		s.lockedState.wanters[secret] = map[multicluster.ClusterName]struct{}{}
	}
	s.lockedState.wanters[secret][cluster] = struct{}{}
	watch := s.lockedState.namespaces[secret.Namespace]
	fresh := watch == nil
	if fresh {
		watch = s.newWatch(secret.Namespace)
		s.lockedState.namespaces[secret.Namespace] = watch
	}
	watch.users++
	s.mu.Unlock()
	if fresh {
		s.spawn(func(ctx context.Context) { s.run(ctx, watch, secret.Namespace) })
	}
}

// unwant ends a cluster's interest. Idempotent.
func (s *secretWatches) unwant(cluster multicluster.ClusterName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwantLocked(cluster)
}

func (s *secretWatches) unwantLocked(cluster multicluster.ClusterName) {
	secret, ok := s.lockedState.wanted[cluster]
	if !ok {
		return
	}
	delete(s.lockedState.wanted, cluster)
	delete(s.lockedState.wanters[secret], cluster)
	if len(s.lockedState.wanters[secret]) == 0 {
		delete(s.lockedState.wanters, secret)
	}
	watch := s.lockedState.namespaces[secret.Namespace]
	watch.users--
	if watch.users == 0 {
		delete(s.lockedState.namespaces, secret.Namespace)
		watch.stop()
	}
}

// version is the resource version of a wanted Secret, "" if it does not exist;
// known is false while the watch of its namespace has not listed.
func (s *secretWatches) version(secret types.NamespacedName) (version string, known bool) {
	s.mu.Lock()
	watch := s.lockedState.namespaces[secret.Namespace]
	s.mu.Unlock()
	if watch == nil || !cache.IsDone(watch.synced) {
		return "", false
	}
	item, exists, err := watch.informer.GetStore().GetByKey(secret.String())
	if err != nil || !exists {
		return "", err == nil
	}
	object, ok := item.(metav1.Object)
	if !ok {
		return "", false
	}
	return object.GetResourceVersion(), true
}

// newWatch makes the watch of a namespace; it does no I/O.
func (s *secretWatches) newWatch(namespace string) *secretWatch {
	informer := metadatainformer.NewFilteredMetadataInformer(s.client, corev1.SchemeGroupVersion.WithResource("secrets"), namespace, 0, cache.Indexers{}, nil).Informer()
	stopped := make(chan struct{})
	return &secretWatch{informer: informer, synced: informer.HasSyncedChecker(), stopped: stopped, stop: sync.OnceFunc(func() { close(stopped) })}
}

func (s *secretWatches) run(ctx context.Context, watch *secretWatch, namespace string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said := "" // only the reflector's goroutine uses it
	err := watch.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if said != err.Error() {
			said = err.Error()
			s.log.Error(err, "metadata of Secrets cannot be watched: changed kubeconfigs are only noticed when a cluster rejects the old ones; give the hub list and watch on secrets in this namespace", "namespace", namespace)
		}
	})
	if err == nil {
		err = watch.informer.SetTransform(reduceSecret)
	}
	if err == nil {
		notify := func(o any) { s.notify(o) }
		_, err = watch.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    notify,
			UpdateFunc: func(_, o any) { notify(o) },
			DeleteFunc: notify,
		})
	}
	if err != nil { // an informer that was started before: not this one
		s.log.Error(err, "metadata of Secrets cannot be watched", "namespace", namespace)
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch.informer.RunWithContext(ctx)
	}()
	select {
	case <-ctx.Done():
	case <-watch.stopped:
	case <-watch.synced.Done():
		// Those whose Secret does not exist hear it now.
		for _, cluster := range s.wantersIn(namespace) {
			s.wake(cluster)
		}
	}
	select {
	case <-ctx.Done():
	case <-watch.stopped:
	}
	cancel()
	<-ended
}

func (s *secretWatches) wantersIn(namespace string) []multicluster.ClusterName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []multicluster.ClusterName
	for cluster, secret := range s.lockedState.wanted {
		if secret.Namespace == namespace {
			found = append(found, cluster)
		}
	}
	return found
}

func (s *secretWatches) notify(o any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
	if err != nil {
		return
	}
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	s.mu.Lock()
	wanters := slices.Collect(maps.Keys(s.lockedState.wanters[types.NamespacedName{Namespace: namespace, Name: name}]))
	s.mu.Unlock()
	for _, cluster := range wanters {
		s.wake(cluster)
	}
}

// reduceSecret keeps name and resource version.
func reduceSecret(o any) (any, error) {
	object, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: object.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: object.Name, Namespace: object.Namespace, UID: object.UID, ResourceVersion: object.ResourceVersion,
	}}, nil
}
