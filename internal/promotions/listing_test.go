package promotions

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
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

// answers are the bodies of answers to requests for lists, one after the other.
type answers struct {
	bodies   []string
	requests atomic.Int64
	options  chan metav1.ListOptions
	watches  chan *watch.FakeWatcher
}

func (a *answers) list(_ context.Context, options metav1.ListOptions) (io.ReadCloser, error) {
	a.options <- options
	n := int(a.requests.Add(1))
	return io.NopCloser(strings.NewReader(a.bodies[min(n, len(a.bodies))-1])), nil
}

// source is the one that a cache passes, whose list is not used.
func (a *answers) source() *toolscache.ListWatch {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, apierrors.NewBadRequest("a list of the cache's own")
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil {
				return nil, apierrors.NewBadRequest("a list that is streamed")
			}
			w := watch.NewFake()
			a.watches <- w
			return w, nil
		},
	}
}

// run runs an informer until the test ends.
func run(t *testing.T, informer toolscache.SharedIndexInformer) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// listOf returns the JSON of a page with Promotions. The one with number 3 has failed.
func listOf(g Gomega, continues string, numbers ...int64) string {
	list := capstanv1.PromotionList{ListMeta: metav1.ListMeta{ResourceVersion: "100", Continue: continues}}
	for _, number := range numbers {
		p := settled(number)
		p.TypeMeta = metav1.TypeMeta{APIVersion: capstanv1.GroupVersion.String(), Kind: capstanv1.PromotionKind}
		if number == 3 {
			p.Status.Phase = capstanv1.PhaseFailed
		}
		list.Items = append(list.Items, *p)
	}
	raw, err := json.Marshal(list)
	g.Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// An informer has every Promotion of a list of two pages, packed if it is settled, also if an
// answer ends in the middle, and then what the watch delivers. TestLedger of test/bench lists
// from an API server; that one cuts no answer when a test needs it.
func TestPromotionsAreStrippedWhileTheyAreListed(t *testing.T) {
	g := NewWithT(t)
	first, second := listOf(g, "next", 0, 1, 2), listOf(g, "", 3, 4)
	a := &answers{bodies: []string{first, second[:len(second)*2/3], first, second}, options: make(chan metav1.ListOptions, 10), watches: make(chan *watch.FakeWatcher, 1)}
	s := NewStripper(clock.RealClock{})
	informer := s.Informer(a.list)(a.source(), &capstanv1.Promotion{}, 0, toolscache.Indexers{})
	g.Expect(informer.SetTransform(func(o any) (any, error) {
		p, ok := s.Transform(o)
		g.Expect(ok).To(BeTrue(), "%T", o)
		return p, nil
	})).To(Succeed())
	run(t, informer)

	g.Eventually(informer.HasSynced).WithTimeout(30 * time.Second).Should(BeTrue())
	g.Expect(a.requests.Load()).To(BeEquivalentTo(4), "after an answer that is cut, the list begins again")
	for i := range 4 {
		options := <-a.options
		g.Expect(options.ResourceVersion).To(BeEmpty(), "the newest list")
		g.Expect(options.Limit).To(BeEquivalentTo(pageSize))
		g.Expect(options.Continue).To(Equal([]string{"", "next"}[i%2]))
	}
	store := informer.GetStore()
	g.Expect(store.List()).To(HaveLen(5))
	for number := range int64(5) {
		want := settled(number)
		o, exists, err := store.GetByKey(client.ObjectKeyFromObject(want).String())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(exists).To(BeTrue(), "the Promotion with number %d", number)
		_, isPacked := o.(*packed)
		g.Expect(isPacked).To(Equal(number != 3), "a settled one is packed, number %d", number)
		p, _ := Whole(o.(client.Object))
		g.Expect(p.Spec).To(Equal(want.Spec))
		g.Expect(p.TypeMeta).To(BeZero())
	}

	var w *watch.FakeWatcher
	g.Eventually(a.watches).Should(Receive(&w))
	w.Add(settled(6))
	g.Eventually(store.List).Should(HaveLen(6))
}

func TestWhatIsNoWholeListIsAnError(t *testing.T) {
	g := NewWithT(t)
	whole := listOf(g, "", 1, 2)
	count := 0
	_, err := decodeList(strings.NewReader(whole), func(*capstanv1.Promotion) bool { count++; return false })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(count).To(Equal(2))
	for end := range len(whole) {
		_, err := decodeList(strings.NewReader(whole[:end]), func(*capstanv1.Promotion) bool { return false })
		g.Expect(err).To(MatchError(io.ErrUnexpectedEOF), "after %d bytes", end)
	}
	for body, want := range map[string]string{
		"<html>":               "invalid character",
		"[]":                   "unmarshal JSON array",
		`{"kind":"Status"}`:    "no resourceVersion",
		`{"items":{}}`:         "{ in place of an array",
		`{"items":[{"spec":7}`: "unmarshal JSON number",
	} {
		_, err := decodeList(strings.NewReader(body), func(*capstanv1.Promotion) bool { return false })
		g.Expect(err).To(MatchError(ContainSubstring(want)), body)
	}
}

// A list has what encoding/json reads, also of Promotions that an earlier version wrote.
func TestAListIsDecodedAsByEncodingJSON(t *testing.T) {
	g := NewWithT(t)
	fill := filler()
	list := capstanv1.PromotionList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}
	for range 300 {
		var p capstanv1.Promotion
		fill.Fill(&p)
		if len(p.ManagedFields) > 0 {
			p.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"f:spec":{".":{}}}`)}}
		}
		list.Items = append(list.Items, p)
	}
	raw, err := json.Marshal(list)
	g.Expect(err).NotTo(HaveOccurred())
	var want capstanv1.PromotionList
	g.Expect(json.Unmarshal(raw, &want)).To(Succeed())

	var got []capstanv1.Promotion
	meta, err := decodeList(bytes.NewReader(raw), func(p *capstanv1.Promotion) bool {
		got = append(got, *p)
		return len(got)%2 == 0
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(meta).To(Equal(want.ListMeta))
	g.Expect(got).To(HaveLen(len(want.Items)))
	former := 0
	for i, p := range want.Items {
		p.TypeMeta, p.ManagedFields = metav1.TypeMeta{}, nil
		g.Expect(got[i]).To(Equal(p))
		if HasFormerNames(&p) {
			former++
		}
	}
	g.Expect(former).To(BeNumerically(">", 50))
}

func TestOtherKindsAreListedAsBefore(t *testing.T) {
	g := NewWithT(t)
	a, s := &answers{}, NewStripper(clock.RealClock{})
	_, ok := s.Transform(&metav1.PartialObjectMetadata{})
	g.Expect(ok).To(BeFalse())
	streamed := make(chan bool, 10)
	run(t, s.Informer(a.list)(&toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &metav1.PartialObjectMetadataList{}, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			streamed <- options.SendInitialEvents != nil
			return watch.NewFake(), nil
		},
	}, &metav1.PartialObjectMetadata{}, 0, toolscache.Indexers{}))
	g.Eventually(streamed).Should(Receive(BeTrue()))
	g.Expect(a.requests.Load()).To(BeZero())
}
