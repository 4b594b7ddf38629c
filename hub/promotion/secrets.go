package promotion

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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// secretWaits watches the metadata of those Secrets that failed promotions wait for,
// one by one and only as long as one waits: the right to watch a Secret can be given
// by its name, and no byte of it comes through.
//
// It is a source of the controller: its watches end with the controller's context.
//
// Locking: everything that changes is guarded by mu; informers are started and
// stopped without it.
type secretWaits struct {
	client metadata.Interface

	mu         sync.Mutex
	lockedRun  func(types.NamespacedName) (stop context.CancelFunc)
	lockedWant map[types.NamespacedName]types.NamespacedName // promotion → Secret
	lockedOpen map[types.NamespacedName]*secretWait
}

// secretWait is the watch of one Secret.
type secretWait struct {
	promotions map[types.NamespacedName]struct{}
	stop       context.CancelFunc // nil until it runs
}

var _ source.Source = &secretWaits{}

func newSecretWaits(c metadata.Interface) *secretWaits {
	return &secretWaits{client: c, lockedWant: map[types.NamespacedName]types.NamespacedName{}, lockedOpen: map[types.NamespacedName]*secretWait{}}
}

// Start implements source.Source.
func (s *secretWaits) Start(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	if s.client == nil {
		return nil
	}
	run := func(secret types.NamespacedName) context.CancelFunc {
		ctx, cancel := context.WithCancel(ctx)
		go s.watch(ctx, secret, q)
		return cancel
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedRun = run
	for secret, wait := range s.lockedOpen {
		wait.stop = run(secret) // It starts a goroutine and returns.
	}
	return nil
}

// want notes what a promotion waits for, which may be nothing (any more).
func (s *secretWaits) want(p *capstanv1.Promotion) {
	key := client.ObjectKeyFromObject(p)
	if p.Status.Phase != capstanv1.PhaseFailed || p.Status.Secret == nil {
		s.drop(key)
		return
	}
	secret := types.NamespacedName{Namespace: p.Namespace, Name: p.Status.Secret.Name}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockedWant[key] == secret {
		return
	}
	s.dropLocked(key)
	s.lockedWant[key] = secret
	wait := s.lockedOpen[secret]
	if wait == nil {
		wait = &secretWait{promotions: map[types.NamespacedName]struct{}{}}
		s.lockedOpen[secret] = wait
		if s.lockedRun != nil {
			wait.stop = s.lockedRun(secret)
		}
	}
	wait.promotions[key] = struct{}{}
}

// drop what a promotion waits for.
func (s *secretWaits) drop(promotion types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(promotion)
}

func (s *secretWaits) dropLocked(promotion types.NamespacedName) {
	secret, ok := s.lockedWant[promotion]
	if !ok {
		return
	}
	delete(s.lockedWant, promotion)
	wait := s.lockedOpen[secret]
	delete(wait.promotions, promotion)
	if len(wait.promotions) > 0 {
		return
	}
	delete(s.lockedOpen, secret)
	if wait.stop != nil {
		wait.stop()
	}
}

func (s *secretWaits) waiting(secret types.NamespacedName) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := s.lockedOpen[secret]
	if wait == nil {
		return nil
	}
	return slices.Collect(maps.Keys(wait.promotions))
}

// watch one Secret until the context ends. Whatever is seen only says that it is
// time to look: the promotion compares versions itself.
func (s *secretWaits) watch(ctx context.Context, secret types.NamespacedName, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, secret.Name).String()
	}
	informer := metadatainformer.NewFilteredMetadataInformer(s.client, corev1.SchemeGroupVersion.WithResource("secrets"), secret.Namespace, 0, cache.Indexers{}, only).Informer()
	wake := func(any) {
		for _, promotion := range s.waiting(secret) {
			q.Add(reconcile.Request{NamespacedName: promotion})
		}
	}
	said := "" // only the reflector's goroutine uses it
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if said != err.Error() {
			said = err.Error()
			log.FromContext(ctx).Error(err, "the metadata of a Secret cannot be watched: promotions that failed for it begin again only by hand; apply config/rbac/pipeline-secrets to the namespace", "secret", secret)
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
