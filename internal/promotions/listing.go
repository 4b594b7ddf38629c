package promotions

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// pageSize is the number of Promotions in a page of a list: about 3 MB of JSON.
const pageSize = 1000

// Informer makes an informer for a cache (cache.Options.NewInformer). One of Promotions lists
// them in pages and strips each page before it reads the next one. A streamed list (WATCH-LIST)
// would decode each Promotion in an event of its own, which takes twice the CPU time; a list in
// one response would need memory for all of them.
func (s *Stripper) Informer(source toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	if _, ok := o.(*capstanv1.Promotion); ok {
		inner := toolscache.ToListerWatcherWithContext(source)
		source = toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return s.list(ctx, inner, options)
			},
			WatchFuncWithContext: inner.WatchWithContext,
		}, inPages{})
	}
	return toolscache.NewSharedIndexInformer(source, o, resync, indexers)
}

// inPages makes a reflector list in place of streaming.
type inPages struct{}

// IsWatchListSemanticsUnSupported implements an interface of client-go.
func (inPages) IsWatchListSemanticsUnSupported() bool { return true }

// list reads all pages. The list that it returns is complete: a reflector must not continue it.
// An error of any page fails the list, and the reflector begins again.
func (s *Stripper) list(ctx context.Context, source toolscache.ListerWithContext, options metav1.ListOptions) (runtime.Object, error) {
	// API servers divide only the newest list into pages, not one that may be older (version 0).
	// It is never older than what the informer has.
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	options.Limit, options.Continue = pageSize, ""
	all := &internalversion.List{}
	for {
		read, err := source.ListWithContext(ctx, options)
		if err != nil {
			return nil, err
		}
		page, ok := read.(*capstanv1.PromotionList)
		if !ok {
			return nil, fmt.Errorf("a list of Promotions is %T", read)
		}
		for _, p := range page.Items { // A copy: a pointer into the page would keep all of it.
			all.Items = append(all.Items, s.Strip(&p))
		}
		if page.Continue == "" {
			all.ResourceVersion = page.ResourceVersion
			return all, nil
		}
		options.Continue = page.Continue
	}
}

// Transform is Strip for a cache (cache.TransformFunc). It returns false for another kind.
func (s *Stripper) Transform(o any) (client.Object, bool) {
	switch o := o.(type) {
	case *capstanv1.Promotion:
		return s.Strip(o), true
	case *packed: // Of a list, which strips them.
		return o, true
	default:
		return nil, false
	}
}
