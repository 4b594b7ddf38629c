package promotions

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// server answers requests for lists. It divides a list as an API server does.
type server struct {
	// pages are the bodies of the pages of a list, by label selector.
	pages map[string][]string
	// cut is how many requests get a response that ends early, from the fourth one on.
	cut      int
	mu       sync.Mutex
	requests []metav1.ListOptions
	watches  chan *watch.FakeWatcher
}

func (a *server) list(_ context.Context, options metav1.ListOptions) (io.ReadCloser, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, options)
	page := 0
	if options.Continue != "" {
		if options.ResourceVersion != "" || options.ResourceVersionMatch != "" {
			return nil, apierrors.NewBadRequest("a continued list with a version")
		}
		var err error
		if page, err = strconv.Atoi(options.Continue); err != nil {
			return nil, err
		}
	}
	body := a.pages[options.LabelSelector][page]
	if n := len(a.requests) - 4; n >= 0 && n < a.cut {
		body = body[:len(body)*2/3]
	}
	return io.NopCloser(strings.NewReader(body)), nil
}

// source is the one that a cache passes, whose list is not used.
func (a *server) source() *toolscache.ListWatch {
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

// An informer has every Promotion of a list that is read in halves of several pages, packed if it is
// settled, also if an answer ends in the middle, and then what the watch delivers. TestLedger of
// test/bench lists from an API server; that one cuts no answer when a test needs it.
func TestPromotionsAreStrippedWhileTheyAreListed(t *testing.T) {
	g := NewWithT(t)
	first, second := capstanv1.EnvironmentLabel+" in (prod)", capstanv1.EnvironmentLabel+" notin (prod)"
	a := &server{
		pages: map[string][]string{
			"":     {listOf(g, "1", 0, 1, 2)},
			first:  {listOf(g, "1", 0, 1), listOf(g, "2", 2), listOf(g, "", 3)},
			second: {listOf(g, "", 4)},
		},
		cut: 1, watches: make(chan *watch.FakeWatcher, 1),
	}
	s := NewStripper(clock.RealClock{})
	informer := s.Informer(a.list)(a.source(), &capstanv1.Promotion{}, 0, toolscache.Indexers{})
	g.Expect(informer.SetTransform(func(o any) (any, error) {
		p, ok := s.Transform(o)
		g.Expect(ok).To(BeTrue(), "%T", o)
		return p, nil
	})).To(Succeed())
	run(t, informer)

	g.Eventually(informer.HasSynced).WithTimeout(30 * time.Second).Should(BeTrue())
	a.mu.Lock()
	requests := a.requests[len(a.requests)-5:]
	g.Expect(len(a.requests)).To(BeNumerically(">", 5), "after an answer that is cut, the list begins again")
	a.mu.Unlock()
	g.Expect(requests[0]).To(Equal(metav1.ListOptions{Limit: sampleSize}), "the newest list")
	version := metav1.ListOptions{ResourceVersion: "100", ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: pageSize}
	inFirst, inSecond := version, version
	inFirst.LabelSelector, inSecond.LabelSelector = first, second
	g.Expect(requests[1:]).To(ConsistOf(inFirst, inSecond,
		metav1.ListOptions{LabelSelector: first, Limit: pageSize, Continue: "1"},
		metav1.ListOptions{LabelSelector: first, Limit: pageSize, Continue: "2"}))
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

// Few Promotions are listed by one request.
func TestFewPromotionsAreOneRequest(t *testing.T) {
	g := NewWithT(t)
	a := &server{pages: map[string][]string{"": {listOf(g, "", 0, 1, 2)}}}
	all, err := NewStripper(clock.RealClock{}).list(t.Context(), a.list, metav1.ListOptions{ResourceVersion: "0"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all.(*internalversion.List).Items).To(HaveLen(3))
	g.Expect(all.(*internalversion.List).ResourceVersion).To(Equal("100"))
	g.Expect(a.requests).To(ConsistOf(metav1.ListOptions{Limit: sampleSize}))
}

// Each set of labels is selected by exactly one half, and known environments are divided evenly.
func TestHalves(t *testing.T) {
	for name, c := range map[string]struct {
		environments map[string]int
		first        []string
	}{
		"three":                 {map[string]int{"dev": 5, "staging": 3, "prod": 2}, []string{"dev"}},
		"equal":                 {map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, []string{"a", "c"}},
		"one":                   {map[string]int{"prod": 7}, []string{"prod"}},
		"without the label":     {map[string]int{"": 9, "prod": 1}, []string{"prod"}},
		"none":                  {map[string]int{}, nil},
		"none has an own label": {map[string]int{"": 3}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			selected := map[string][]string{}
			for _, text := range halves(c.environments) {
				selector, err := labels.Parse(text)
				g.Expect(err).NotTo(HaveOccurred())
				for _, environment := range append(slices.Collect(maps.Keys(c.environments)), "", "another") {
					set := labels.Set{capstanv1.EnvironmentLabel: environment}
					if environment == "" {
						set = nil
					}
					if selector.Matches(set) {
						selected[environment] = append(selected[environment], text)
					}
				}
			}
			var first []string
			for environment, by := range selected {
				if len(slices.Compact(by)) != 1 {
					t.Errorf("environment %q is selected by %q", environment, by)
				}
				if strings.Contains(by[0], " in (") {
					first = append(first, environment)
				}
			}
			g.Expect(selected).To(HaveKey("another"))
			g.Expect(first).To(ConsistOf(c.first))
		})
	}

	g := NewWithT(t)
	many := map[string]int{}
	for i := range 1000 {
		many[strings.Repeat("x", 60)+strconv.Itoa(i)] = 1
	}
	g.Expect(len(halves(many)[0])).To(BeNumerically("<", 4000), "a selector is part of a URL")
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
		p.TypeMeta = metav1.TypeMeta{}
		if len(p.ManagedFields) > 0 {
			p.ManagedFields = someManagedFields
		}
		g.Expect(got[i]).To(Equal(p))
		if HasFormerNames(&p) {
			former++
		}
	}
	g.Expect(former).To(BeNumerically(">", 50))
}

func TestOtherKindsAreListedAsBefore(t *testing.T) {
	g := NewWithT(t)
	a, s := &server{}, NewStripper(clock.RealClock{})
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
	g.Expect(a.requests).To(BeEmpty())
}
