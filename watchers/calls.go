package watchers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/clusters/transport"
	"github.com/capstan-hub/capstan/watchers/decode"
)

// The calls to a cluster. Their answers are read piece by piece, and each piece is
// bounded before it is decoded: 64 MiB of "{},{},…" would be gigabytes of maps, and a
// cluster's tenant must not exhaust the hub's memory.

// resource is the version and resource with which a cluster serves a kind.
type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

// caller reads the objects of one resource of one cluster.
type caller struct {
	client   rest.Interface
	resource resource
	limits   limits
	// keep are the fields that reduce reads.
	keep decode.Fields
	// reduce makes the stored form of an object.
	reduce func(*unstructured.Unstructured) client.Object
	// pace of the events of watches; nil for no limit.
	pace *pace
}

// request returns a GET request for the kind, in an informer's namespace or in all.
func (c *caller) request(namespace string) *rest.Request {
	return c.client.Get().NamespaceIfScoped(namespace, namespace != metav1.NamespaceAll).Resource(c.resource.Resource).
		SetHeader("Accept", runtime.ContentTypeJSON)
}

// list lists a namespace or all in one answer. It reduces each item before it reads the
// next.
func (c *caller) list(ctx context.Context, namespace string, o metav1.ListOptions) (*metav1.List, error) {
	o.Limit = 0 // client-go would read all pages.
	body, err := c.request(namespace).VersionedParams(&o, metav1.ParameterCodec).Stream(transport.WithMaxAnswer(ctx, c.limits.listed))
	if err != nil {
		return nil, unquoted(err)
	}
	defer body.Close()
	list := &metav1.List{}
	counted := tally{limits: c.limits}
	list.ListMeta, err = decode.List(body, func(raw []byte) error {
		u, err := decode.Object(raw, c.keep)
		if err != nil {
			return err
		}
		o := c.reduce(u)
		if err := counted.add(o, len(raw)); err != nil {
			return err
		}
		list.Items = append(list.Items, runtime.RawExtension{Object: o})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// get reads one object.
func (c *caller) get(ctx context.Context, want wanted) (*unstructured.Unstructured, error) {
	body, err := c.request(want.namespace).Name(want.name).Stream(ctx)
	if err != nil {
		return nil, unquoted(err)
	}
	defer body.Close()
	raw, err := decode.Body(body)
	if err != nil {
		return nil, err
	}
	return decode.Object(raw, c.keep)
}

// newWatch makes a watch of an answer, which begins with an initial list if initial is true. It
// owns the body. refuse is called when the cluster exceeds a limit.
func (c *caller) newWatch(body io.ReadCloser, initial bool, refuse func(error)) watch.Interface {
	a := &arrivals{reduce: c.reduce, pace: c.pace}
	if initial {
		a.listed = &tally{limits: c.limits}
	}
	return decode.NewWatch(body, c.keep, a.accept, func(err error) {
		if exceeds(err) {
			refuse(err)
		}
	})
}

// fetch makes one call with a timeout, and decodes its small answer.
func fetch(ctx context.Context, timeout time.Duration, request *rest.Request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := request.SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return unquoted(err)
	}
	defer body.Close()
	raw, err := decode.Body(body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("the answer is not valid JSON: %w", err)
	}
	return nil
}
