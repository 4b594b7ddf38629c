package secretwatch

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Source feeds one controller with the objects whose Secret changed. Each Secret is
// watched by its name. An object that wants a Secret before the controller starts is
// woken after it has started.
type Source struct {
	*Watches[types.NamespacedName]
	queue requests
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

var _ source.Source = &Source{}

// NewSource makes a Source; with a nil client no object is woken. consequence is logged when
// a Secret cannot be watched: it says what does not work and how to fix it.
func NewSource(c metadata.Interface, consequence string) *Source {
	s := &Source{}
	s.Watches = New(Options[types.NamespacedName]{Client: c, Scope: ByName, Consequence: consequence, Wake: func(object types.NamespacedName) {
		s.queue.Add(reconcile.Request{NamespacedName: object})
	}})
	return s
}

// Start implements source.Source. The watches end with the context.
func (s *Source) Start(ctx context.Context, q requests) error {
	s.queue = q
	s.Watches.Start(ctx)
	return nil
}
