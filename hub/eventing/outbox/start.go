package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// credentialCheckInterval is the time between two checks for credentials that expire soon.
const credentialCheckInterval = 30 * time.Second

// Informers is the part of a manager's cache that the outbox uses.
type Informers interface {
	GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Start publishes events until the context ends. It is run once, while the process leads.
func (b *Outbox) Start(ctx context.Context) error {
	if b.publisher == nil {
		return errors.New("the outbox has no publisher: call PublishTo before Start")
	}
	prompt, paced := newQueue(b.options.Clock), newQueue(b.options.Clock)
	b.mu.Lock()
	b.lockedState.prompt, b.lockedState.paced = prompt, paced
	b.mu.Unlock()
	var workers sync.WaitGroup
	pace := rate.NewLimiter(recordRate, recordBurst)
	for range recorders {
		workers.Go(func() { b.record(ctx, prompt, nil) })
		workers.Go(func() { b.record(ctx, paced, pace) })
	}
	defer workers.Wait()
	defer prompt.ShutDown()
	defer paced.ShutDown()
	// Backends come first: the records refer to them.
	for _, o := range []client.Object{&eventingv1.EventingBackend{}, &capstanv1.ClusterConnection{}, &capstanv1.Promotion{}} {
		stop, err := b.watch(ctx, o)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		defer stop()
	}
	if ctx.Err() != nil {
		return nil
	}
	b.begin()
	ticker := b.options.Clock.NewTicker(credentialCheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			b.checkCredentials()
		case <-ctx.Done():
			b.mu.Lock()
			b.lockedState.leading = false
			b.mu.Unlock()
			b.flush(ctx)
			return nil
		}
	}
}

// begin starts to lead, when all objects were seen.
func (b *Outbox) begin() {
	b.publishing.Lock()
	defer b.publishing.Unlock()
	now := b.options.Clock.Now()
	b.mu.Lock()
	b.lockedState.leading = true
	b.holdAllLocked(now)
	b.mu.Unlock()
	b.publisher.Resync()
}

// watch observes the objects of a kind. It returns when all existing objects were observed.
func (b *Outbox) watch(ctx context.Context, o client.Object) (stop func(), err error) {
	informer, err := b.options.Cache.GetInformer(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", o, err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if o, ok := o.(client.Object); ok {
				b.observe(o)
			}
		},
		UpdateFunc: func(before, o any) {
			if o, ok := o.(client.Object); ok {
				if before, ok := before.(client.Object); ok {
					b.recall(before, o)
				}
				b.observe(o)
			}
		},
		DeleteFunc: func(o any) {
			if deleted, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = deleted.Obj
			}
			if o, ok := o.(client.Object); ok {
				b.forget(o)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", o, err)
	}
	toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced)
	return func() {
		if err := informer.RemoveEventHandler(registration); err != nil {
			b.options.Logger.Error(err, "ending a watch failed")
		}
	}, nil
}

// whole returns an object of a cache's event. The cache may have packed a Promotion.
func whole(o client.Object) client.Object {
	if p, is := promotions.Whole(o); is {
		return p
	}
	return o
}

// checkCredentials publishes the events about credentials that expire soon.
func (b *Outbox) checkCredentials() {
	now := b.options.Clock.Now()
	b.mu.Lock()
	var due []key
	for k, e := range b.lockedState.entries {
		if c := e.credentials; !c.WarnAt.IsZero() && !now.Before(c.WarnAt) {
			due = append(due, k)
		}
	}
	b.mu.Unlock()
	for _, k := range due {
		b.recheck(k)
	}
}
