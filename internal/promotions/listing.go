package promotions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// pageSize is the number of Promotions in one response, about 30 MB of JSON: few requests, and
// each one ends long before an API server's limit for the time of a request (60 s).
const pageSize = 20000

// ListFunc requests a list of Promotions and returns the body of the answer, as JSON.
type ListFunc func(context.Context, metav1.ListOptions) (io.ReadCloser, error)

// Lister returns a ListFunc for a namespace, or for all of them if it is empty. The client is one
// of the API group's version.
func Lister(c rest.Interface, namespace string) ListFunc {
	return func(ctx context.Context, options metav1.ListOptions) (io.ReadCloser, error) {
		return c.Get().NamespaceIfScoped(namespace, namespace != "").Resource("promotions").
			VersionedParams(&options, metav1.ParameterCodec).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	}
}

// Informer returns a constructor of informers for a cache (cache.Options.NewInformer). One of
// Promotions lists them by the function, in large pages, and strips each Promotion as it is
// read. A streamed list (WATCH-LIST) has an event for each Promotion, which is decoded several
// times; client-go's own list keeps a whole response and all its Promotions in memory.
func (s *Stripper) Informer(list ListFunc) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(source toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := o.(*capstanv1.Promotion); ok {
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

// list reads all pages of a list. After an error in any of them the reflector lists again.
func (s *Stripper) list(ctx context.Context, list ListFunc, options metav1.ListOptions) (runtime.Object, error) {
	// The newest, as a streamed list has it. API servers divide no other one into pages.
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	options.Limit, options.Continue = pageSize, ""
	all := &internalversion.List{}
	for {
		page, err := readPage(ctx, list, options, func(p *capstanv1.Promotion) {
			all.Items = append(all.Items, s.Strip(p))
		})
		if err != nil {
			return nil, err
		}
		if options.Continue = page.Continue; options.Continue == "" {
			all.ResourceVersion = page.ResourceVersion
			return all, nil // A reflector continues a list that has Continue.
		}
	}
}

func readPage(ctx context.Context, list ListFunc, options metav1.ListOptions, each func(*capstanv1.Promotion)) (metav1.ListMeta, error) {
	body, err := list(ctx, options)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	defer func() { _ = body.Close() }()
	page, err := decodeList(body, each)
	if err != nil {
		return page, fmt.Errorf("reading the list of Promotions: %w", err)
	}
	return page, nil
}

// decodeList decodes a list from its JSON. It has one Promotion of the list in memory at a time.
func decodeList(r io.Reader, each func(*capstanv1.Promotion)) (metav1.ListMeta, error) {
	d := json.NewDecoder(r)
	var list metav1.ListMeta
	err := object(d, func(key string) error {
		switch key {
		case "metadata":
			return d.Decode(&list)
		case "items":
			return items(d, each)
		default:
			return d.Decode(&json.RawMessage{})
		}
	})
	switch {
	case errors.Is(err, io.EOF):
		return list, io.ErrUnexpectedEOF
	case err != nil:
		return list, err
	case list.ResourceVersion == "":
		return list, errors.New("the list has no resourceVersion")
	default:
		return list, nil
	}
}

// object reads an object. value reads the value of a key.
func object(d *json.Decoder, value func(key string) error) error {
	if err := expect(d, json.Delim('{')); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err == nil {
			err = value(fmt.Sprint(key))
		}
		if err != nil {
			return err
		}
	}
	return expect(d, json.Delim('}'))
}

// items reads the array of Promotions.
func items(d *json.Decoder, each func(*capstanv1.Promotion)) error {
	if err := expect(d, json.Delim('[')); err != nil {
		return err
	}
	for d.More() {
		p := &capstanv1.Promotion{}
		if err := d.Decode(p); err != nil {
			return err
		}
		p.TypeMeta = metav1.TypeMeta{} // As in the events of a watch.
		each(p)
	}
	return expect(d, json.Delim(']'))
}

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = fmt.Errorf("%v in place of %v", got, want)
	}
	return err
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
