package promotions

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// paged lists 5 Promotions in pages of 2, whatever size is requested, and fails once at the page
// with the number failAt. A real API server fails in the middle of a list when etcd was compacted,
// which a test cannot time.
type paged struct {
	failAt  atomic.Int64
	begun   atomic.Int64
	watches chan *watch.FakeWatcher
}

func (s *paged) source() *toolscache.ListWatch {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if options.Limit == 0 || options.ResourceVersion != "" {
				return nil, apierrors.NewBadRequest("an API server does not divide this list into pages")
			}
			if options.SendInitialEvents != nil {
				return nil, apierrors.NewBadRequest("a list that is streamed")
			}
			first, _ := strconv.Atoi(options.Continue)
			if first == 0 {
				s.begun.Add(1)
			}
			if number := int64(first/2 + 1); s.failAt.CompareAndSwap(number, 0) {
				return nil, apierrors.NewResourceExpired("the token of the page is too old")
			}
			page := &capstanv1.PromotionList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}
			for n := first; n < min(first+2, 5); n++ {
				p := settled(int64(n))
				if n == 3 {
					p.Status.Phase = capstanv1.PhaseFailed
				}
				page.Items = append(page.Items, *p)
			}
			if first+2 < 5 {
				page.Continue = strconv.Itoa(first + 2)
			}
			return page, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil {
				return nil, apierrors.NewBadRequest("a list that is streamed")
			}
			w := watch.NewFake()
			s.watches <- w
			return w, nil
		},
	}
}

// An informer has every Promotion of a list in several pages, packed if it is settled, also if
// one page cannot be read at first, and then what the watch delivers.
func TestPromotionsAreListedInPages(t *testing.T) {
	g := NewWithT(t)
	s, from := NewStripper(clock.RealClock{}), &paged{watches: make(chan *watch.FakeWatcher, 1)}
	from.failAt.Store(2)
	informer := s.Informer(from.source(), &capstanv1.Promotion{}, 0, toolscache.Indexers{})
	g.Expect(informer.SetTransform(func(o any) (any, error) {
		p, ok := s.Transform(o)
		g.Expect(ok).To(BeTrue(), "%T", o)
		return p, nil
	})).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	defer func() { cancel(); <-ended }()

	g.Eventually(informer.HasSynced).WithTimeout(30 * time.Second).Should(BeTrue())
	g.Expect(from.begun.Load()).To(BeEquivalentTo(2), "a list whose second page fails begins again")
	store := informer.GetStore()
	g.Expect(store.List()).To(HaveLen(5))
	for n := range 5 {
		o, exists, err := store.GetByKey(client.ObjectKeyFromObject(settled(int64(n))).String())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(exists).To(BeTrue(), "the Promotion with number %d", n)
		_, isPacked := o.(*packed)
		g.Expect(isPacked).To(Equal(n != 3), "a settled one is packed, number %d", n)
		p, _ := Whole(o.(client.Object))
		g.Expect(p.Spec.Number).To(BeEquivalentTo(n))
	}

	var w *watch.FakeWatcher
	g.Eventually(from.watches).Should(Receive(&w))
	w.Add(settled(6))
	g.Eventually(store.List).Should(HaveLen(6))
}

func TestOtherKindsAreListedAsBefore(t *testing.T) {
	g := NewWithT(t)
	s := NewStripper(clock.RealClock{})
	_, ok := s.Transform(&metav1.PartialObjectMetadata{})
	g.Expect(ok).To(BeFalse())
	listed := make(chan metav1.ListOptions, 1)
	informer := s.Informer(&toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return &metav1.PartialObjectMetadataList{}, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			select {
			case listed <- options:
			default:
			}
			return watch.NewFake(), nil
		},
	}, &metav1.PartialObjectMetadata{}, 0, toolscache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	defer func() { cancel(); <-ended }()
	var options metav1.ListOptions
	g.Eventually(listed).Should(Receive(&options))
	g.Expect(options.SendInitialEvents).NotTo(BeNil(), "their lists are streamed")
}
