package promotions

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

const (
	// pageSize is the number of Promotions in one response, about 30 MB of JSON: few requests, and
	// each one ends long before an API server's limit for the time of a request (60 s).
	pageSize = 20000
	// sampleSize is the number of Promotions in the first response.
	sampleSize = 1000
	// maxSelected bounds the environments in a label selector, which is part of a URL.
	maxSelected = 40
)

// ListFunc requests a list of Promotions and returns the body of the answer, as JSON.
type ListFunc func(context.Context, metav1.ListOptions) (io.ReadCloser, error)

// Lister returns the ListFunc of each source that a cache passes to Stripper.Informer. The cache reads the
// given namespaces, or all of them if there are none. The client is one of the API group's version.
func Lister(c rest.Interface, namespaces []string) func(toolscache.ListerWatcher) ListFunc {
	in := func(namespace string) ListFunc {
		return func(ctx context.Context, options metav1.ListOptions) (io.ReadCloser, error) {
			return c.Get().NamespaceIfScoped(namespace, namespace != metav1.NamespaceAll).Resource("promotions").
				VersionedParams(&options, metav1.ParameterCodec).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
		}
	}
	switch len(namespaces) {
	case 0:
		return func(toolscache.ListerWatcher) ListFunc { return in(metav1.NamespaceAll) }
	case 1:
		return func(toolscache.ListerWatcher) ListFunc { return in(namespaces[0]) }
	}
	return func(source toolscache.ListerWatcher) ListFunc { return inNamespaceOf(source, in) }
}

// inNamespaceOf returns the ListFunc for the namespace of a source. A cache makes a source for each of several
// namespaces, and does not say which one it reads; a Promotion that the source lists does.
func inNamespaceOf(source toolscache.ListerWatcher, in func(namespace string) ListFunc) ListFunc {
	lists := toolscache.ToListerWithContext(source)
	var namespace string // It is written before there is anything to list in several requests at a time.
	return func(ctx context.Context, options metav1.ListOptions) (io.ReadCloser, error) {
		if namespace == "" {
			one := options
			one.Limit = 1
			answer, err := lists.ListWithContext(ctx, one)
			if err != nil {
				return nil, err
			}
			list, ok := answer.(*capstanv1.PromotionList)
			if !ok {
				return nil, fmt.Errorf("listing Promotions: %T in place of a list of them", answer)
			}
			if len(list.Items) == 0 {
				body, err := json.Marshal(list)
				return io.NopCloser(bytes.NewReader(body)), err
			}
			namespace = list.Items[0].Namespace
		}
		return in(namespace)(ctx, options)
	}
}

// Informer returns a constructor of informers for a cache (cache.Options.NewInformer). One of
// Promotions lists them by the ListFunc of its source, in large pages, and strips each Promotion as it is
// read. A streamed list (WATCH-LIST) has an event for each Promotion, which is decoded several
// times; client-go's own list keeps a whole response and all its Promotions in memory.
func (s *Stripper) Informer(listOf func(toolscache.ListerWatcher) ListFunc) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(source toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := o.(*capstanv1.Promotion); ok {
			list := listOf(source)
			source = toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
					return s.list(ctx, list, options)
				},
				WatchFuncWithContext: toolscache.ToListerWatcherWithContext(source).WatchWithContext,
			}, inPages{})
		}
		return toolscache.NewSharedIndexInformer(source, o, resync, indexers)
	}
}

// inPages makes a reflector list in place of streaming.
type inPages struct{}

// IsWatchListSemanticsUnSupported implements an interface of client-go.
func (inPages) IsWatchListSemanticsUnSupported() bool { return true }

// list reads the Promotions of the API server. If there are many, it reads them in two halves at a
// time: an API server uses one core for each request, and needs five times as long to write a
// Promotion as the hub to read it. Both halves are of the same version, so that one watch
// continues them. If they cannot be read, the list continues undivided: an API server that reads
// from etcd reads all Promotions to find those of a half with few, which may take it too long for
// one response. After an error in that, too, the reflector lists again.
func (s *Stripper) list(ctx context.Context, list ListFunc, options metav1.ListOptions) (runtime.Object, error) {
	// The newest, as a streamed list has it. API servers divide no other one into pages.
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	options.Limit, options.Continue = sampleSize, ""
	all, environments := &stripped{stripper: s}, map[string]int{}
	sample, err := readPage(ctx, list, options, func(p *capstanv1.Promotion) bool {
		environments[p.Labels[capstanv1.EnvironmentLabel]]++
		return all.add(p)
	})
	if err != nil {
		return nil, err
	}
	if sample.Continue != "" {
		if divided, err := s.listInHalves(ctx, list, sample, halves(environments)); err == nil {
			all = divided
		} else {
			options.Limit, options.Continue = pageSize, sample.Continue
			if err := readPages(ctx, list, options, all.add); err != nil {
				return nil, err
			}
		}
	}
	// Without Continue: a reflector would continue the list.
	return &internalversion.List{ListMeta: metav1.ListMeta{ResourceVersion: sample.ResourceVersion}, Items: all.lockedItems}, nil
}

// listInHalves reads the whole list that sample is the beginning of. Without selectors it is an error.
func (s *Stripper) listInHalves(ctx context.Context, list ListFunc, sample metav1.ListMeta, selectors []string) (*stripped, error) {
	if len(selectors) == 0 {
		return nil, errors.New("the list cannot be divided")
	}
	all := &stripped{stripper: s, lockedItems: make([]runtime.Object, 0, sampleSize+ptr.Deref(sample.RemainingItemCount, 0))}
	reading, ctx := errgroup.WithContext(ctx)
	for _, selector := range selectors {
		options := metav1.ListOptions{
			LabelSelector: selector, ResourceVersion: sample.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: pageSize,
		}
		reading.Go(func() error { return readPages(ctx, list, options, all.add) })
	}
	return all, reading.Wait()
}

// stripped are Promotions as a cache stores them.
type stripped struct {
	stripper *Stripper
	// mu guards lockedItems. Nothing else is done under it.
	mu          sync.Mutex
	lockedItems []runtime.Object
}

// add strips a Promotion and adds it. It reports whether that keeps the given one.
func (a *stripped) add(p *capstanv1.Promotion) (kept bool) {
	stored := a.stripper.Strip(p)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lockedItems = append(a.lockedItems, stored)
	return stored == client.Object(p)
}

// halves returns label selectors that divide Promotions by their environments: each Promotion,
// whatever labels it has, is selected by one of them. Each selects about as many as the other if the
// counted Promotions are like the rest. It returns nil if all counted ones would be in one half.
func halves(environments map[string]int) []string {
	byCount := slices.SortedFunc(maps.Keys(environments), func(a, b string) int {
		return cmp.Or(environments[b]-environments[a], strings.Compare(a, b))
	})
	var first []string
	inFirst, inSecond := 0, 0
	for _, environment := range byCount {
		if environment == "" || inFirst > inSecond || len(first) == maxSelected {
			inSecond += environments[environment]
		} else {
			inFirst += environments[environment]
			first = append(first, environment)
		}
	}
	if inFirst == 0 || inSecond == 0 {
		return nil
	}
	names := strings.Join(first, ",")
	return []string{capstanv1.EnvironmentLabel + " in (" + names + ")", capstanv1.EnvironmentLabel + " notin (" + names + ")"}
}

// readPages reads all pages of a list.
func readPages(ctx context.Context, list ListFunc, options metav1.ListOptions, each func(*capstanv1.Promotion) (kept bool)) error {
	for {
		page, err := readPage(ctx, list, options, each)
		if err != nil || page.Continue == "" {
			return err
		}
		options.Continue = page.Continue // It has the version.
		options.ResourceVersion, options.ResourceVersionMatch = "", ""
	}
}

func readPage(ctx context.Context, list ListFunc, options metav1.ListOptions, each func(*capstanv1.Promotion) (kept bool)) (metav1.ListMeta, error) {
	body, err := list(ctx, options)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	defer func() { _ = body.Close() }()
	read, err := decodeList(body, each)
	if err != nil {
		return read, fmt.Errorf("reading the list of Promotions: %w", err)
	}
	return read, nil
}

// page is a list without its Promotions.
type page struct {
	metav1.ListMeta `json:"metadata"`
	Items           items `json:"items"`
}

type items struct{}

// decodeList decodes a list from its JSON. It has one Promotion of the list in memory at a time,
// and uses its memory for the next one unless it is kept.
func decodeList(r io.Reader, each func(*capstanv1.Promotion) (kept bool)) (metav1.ListMeta, error) {
	var list page
	decoders := json.JoinUnmarshalers(tolerant, json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ *items) error { return decodeItems(d, each) }))
	// An API server writes neither a name twice nor invalid UTF-8. encoding/json accepts both.
	err := json.UnmarshalRead(r, &list, json.WithUnmarshalers(decoders), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err == nil && list.ResourceVersion == "" {
		err = errors.New("the list has no resourceVersion")
	}
	return list.ListMeta, err
}

func decodeItems(d *jsontext.Decoder, each func(*capstanv1.Promotion) (kept bool)) error {
	if begin, err := d.ReadToken(); err != nil {
		return err
	} else if begin.Kind() != jsontext.KindBeginArray {
		return fmt.Errorf("%v in place of an array", begin.Kind())
	}
	p := &capstanv1.Promotion{}
	for d.PeekKind() != jsontext.KindEndArray {
		if err := json.UnmarshalDecode(d, p); err != nil {
			return err
		}
		p.TypeMeta = metav1.TypeMeta{} // As in the events of a watch.
		if each(p) {
			p = &capstanv1.Promotion{}
		} else {
			*p = capstanv1.Promotion{}
		}
	}
	_, err := d.ReadToken()
	return err
}

// tolerant decodes what has former names without a second pass over its JSON, which UnmarshalJSON
// needs. Of managed fields, which no cache stores, it only reads whether there are any.
var tolerant = func() *json.Unmarshalers {
	type (
		status   capstanv1.PromotionStatus
		attempt  capstanv1.Attempt
		approval capstanv1.ApprovalRecord
	)
	return json.JoinUnmarshalers(
		json.UnmarshalFromFunc(func(d *jsontext.Decoder, s *capstanv1.PromotionStatus) error {
			defer s.TakeFormerNames()
			return json.UnmarshalDecode(d, (*status)(s))
		}),
		json.UnmarshalFromFunc(func(d *jsontext.Decoder, a *capstanv1.Attempt) error {
			defer a.TakeFormerNames()
			return json.UnmarshalDecode(d, (*attempt)(a))
		}),
		json.UnmarshalFromFunc(func(d *jsontext.Decoder, a *capstanv1.ApprovalRecord) error {
			defer a.TakeFormerNames()
			return json.UnmarshalDecode(d, (*approval)(a))
		}),
		json.UnmarshalFromFunc(func(d *jsontext.Decoder, m *[]metav1.ManagedFieldsEntry) error {
			if d.PeekKind() == jsontext.KindBeginArray {
				*m = someManagedFields
			}
			return d.SkipValue()
		}),
	)
}()

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
