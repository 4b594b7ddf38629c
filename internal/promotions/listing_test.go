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
	// cut returns whether a response ends early; nil for none.
	cut      func(metav1.ListOptions) bool
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
	if a.cut != nil && a.cut(options) {
		body = body[:len(body)*2/3]
	}
	return io.NopCloser(strings.NewReader(body)), nil
}

func (a *server) listOf(toolscache.ListerWatcher) ListFunc { return a.list }

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

// listOf returns the JSON of a page with Promotions. The one with number 3 has failed, and the one
// with number 4 has the label of another environment.
func listOf(g Gomega, continues string, numbers ...int64) string {
	list := capstanv1.PromotionList{ListMeta: metav1.ListMeta{ResourceVersion: "100", Continue: continues}}
	for _, number := range numbers {
		p := settled(number)
		p.TypeMeta = metav1.TypeMeta{APIVersion: capstanv1.GroupVersion.String(), Kind: capstanv1.PromotionKind}
		switch number {
		case 3:
			p.Status.Phase = capstanv1.PhaseFailed
		case 4:
			p.Labels[capstanv1.EnvironmentLabel] = "staging"
		}
		list.Items = append(list.Items, *p)
	}
	raw, err := json.Marshal(list)
	g.Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

const (
	inFirst  = capstanv1.EnvironmentLabel + " in (prod)"
	inSecond = capstanv1.EnvironmentLabel + " notin (prod)"
)

// many are five Promotions as the API server lists many: a first response of two, then all in two
// halves, or the rest.
func many(g Gomega) *server {
	return &server{pages: map[string][]string{
		"":       {listOf(g, "1", 0, 4), listOf(g, "2", 1, 2), listOf(g, "", 3)},
		inFirst:  {listOf(g, "1", 0, 1), listOf(g, "2", 2), listOf(g, "", 3)},
		inSecond: {listOf(g, "", 4)},
	}, watches: make(chan *watch.FakeWatcher, 1)}
}

// TestNamespaceOfASource: the Promotions of each of several namespaces are listed from that namespace, in one small
// request and then as those of one namespace; an empty one is listed by its source alone.
func TestNamespaceOfASource(t *testing.T) {
	g := NewWithT(t)
	var asked []string
	in := func(namespace string) ListFunc {
		return func(context.Context, metav1.ListOptions) (io.ReadCloser, error) {
			asked = append(asked, namespace)
			return io.NopCloser(strings.NewReader(listOf(g, "", 0, 1))), nil
		}
	}
	var stored capstanv1.PromotionList
	stored.ResourceVersion = "7"
	source := &toolscache.ListWatch{ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
		g.Expect(options.Limit).To(BeEquivalentTo(1))
		return stored.DeepCopy(), nil
	}}
	list := inNamespaceOf(source, in)
	read := func() (metav1.ListMeta, int) {
		count := 0
		meta, err := readPage(t.Context(), list, metav1.ListOptions{Limit: sampleSize}, func(*capstanv1.Promotion) bool { count++; return false })
		g.Expect(err).NotTo(HaveOccurred())
		return meta, count
	}
	meta, count := read()
	g.Expect(meta.ResourceVersion).To(Equal("7"))
	g.Expect(count).To(BeZero())
	g.Expect(asked).To(BeEmpty())

	stored.Items = []capstanv1.Promotion{{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "p"}}}
	_, count = read()
	g.Expect(count).To(Equal(2))
	_, _ = read()
	g.Expect(asked).To(Equal([]string{"team-a", "team-a"}))
}

// An informer has every Promotion of a list that is read in halves of several pages, packed if it is
// settled, and then what the watch delivers. TestLedger of test/bench lists from an API server.
func TestPromotionsAreStrippedWhileTheyAreListed(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(30 * time.Second) // The machine may be busy.
	a, s := many(g), NewStripper(clock.RealClock{})
	informer := s.Informer(a.listOf)(a.source(), &capstanv1.Promotion{}, 0, toolscache.Indexers{})
	g.Expect(informer.SetTransform(func(o any) (any, error) {
		p, ok := s.Transform(o)
		g.Expect(ok).To(BeTrue(), "%T", o)
		return p, nil
	})).To(Succeed())
	run(t, informer)

	g.Eventually(informer.HasSynced).Should(BeTrue())
	a.mu.Lock()
	g.Expect(a.requests[0]).To(Equal(metav1.ListOptions{Limit: sampleSize}), "the newest list")
	version := metav1.ListOptions{ResourceVersion: "100", ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: pageSize}
	first, second := version, version
	first.LabelSelector, second.LabelSelector = inFirst, inSecond
	g.Expect(a.requests[1:]).To(ConsistOf(first, second,
		metav1.ListOptions{LabelSelector: inFirst, Limit: pageSize, Continue: "1"},
		metav1.ListOptions{LabelSelector: inFirst, Limit: pageSize, Continue: "2"}))
	a.mu.Unlock()
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

// If the halves cannot be read, the list continues undivided. If it ends early, too, that is an
// error, and a reflector lists again.
func TestAListThatIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		cut  func(metav1.ListOptions) bool
		fail bool
	}{
		"a half":               {cut: func(o metav1.ListOptions) bool { return o.LabelSelector == inSecond }},
		"the end of a half":    {cut: func(o metav1.ListOptions) bool { return o.LabelSelector == inFirst && o.Continue == "2" }},
		"the first response":   {cut: func(o metav1.ListOptions) bool { return o.Limit == sampleSize }, fail: true},
		"a half, and the rest": {cut: func(o metav1.ListOptions) bool { return o.Limit == pageSize }, fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := many(g)
			a.cut = c.cut
			all, err := NewStripper(clock.RealClock{}).list(t.Context(), a.list, metav1.ListOptions{})
			if c.fail {
				g.Expect(err).To(MatchError(io.ErrUnexpectedEOF))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			var numbers []int64
			for _, o := range all.(*internalversion.List).Items {
				p, _ := Whole(o.(client.Object))
				numbers = append(numbers, p.Spec.Number)
			}
			g.Expect(numbers).To(Equal([]int64{0, 4, 1, 2, 3}))
			g.Expect(a.requests[len(a.requests)-1]).To(Equal(metav1.ListOptions{Limit: pageSize, Continue: "2"}))
		})
	}
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
		"three":             {map[string]int{"dev": 5, "staging": 3, "prod": 2}, []string{"dev"}},
		"equal":             {map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, []string{"a", "c"}},
		"without the label": {map[string]int{"": 9, "prod": 1}, []string{"prod"}},
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
	for _, environments := range []map[string]int{{}, {"": 3}, {"prod": 7}} {
		g.Expect(halves(environments)).To(BeEmpty(), "%v", environments)
	}
	long := map[string]int{}
	for i := range 1000 {
		long[strings.Repeat("x", 60)+strconv.Itoa(i)] = 1
	}
	g.Expect(len(halves(long)[0])).To(BeNumerically("<", 4000), "a selector is part of a URL")
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
	g.SetDefaultEventuallyTimeout(30 * time.Second) // The machine may be busy.
	a, s := &server{}, NewStripper(clock.RealClock{})
	_, ok := s.Transform(&metav1.PartialObjectMetadata{})
	g.Expect(ok).To(BeFalse())
	streamed := make(chan bool, 10)
	run(t, s.Informer(a.listOf)(&toolscache.ListWatch{
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
