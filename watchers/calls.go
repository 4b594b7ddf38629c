package watchers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/capstan-hub/capstan/clusters/transport"
)

// The calls to a cluster. Their answers are read piece by piece, and each piece is
// bounded before it is decoded: 64 MiB of "{},{},…" would be gigabytes of maps, and a
// cluster's tenant shall not have the hub's memory.

// request of the kind, of an informer's scope.
func (r *run) request(namespace string) *rest.Request {
	return r.calls.Get().NamespaceIfScoped(namespace, namespace != metav1.NamespaceAll).Resource(r.resource.Resource).
		SetHeader("Accept", runtime.ContentTypeJSON)
}

// list a scope in one answer. Each item is reduced before the next is read.
func (r *run) list(ctx context.Context, namespace string, o metav1.ListOptions) (*metav1.List, error) {
	o.Limit = 0 // client-go would gather pages for as long as there are some.
	body, err := r.request(namespace).VersionedParams(&o, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return nil, unquoted(err)
	}
	defer body.Close()
	list := &metav1.List{}
	list.ListMeta, err = decodeList(body, func(raw []byte) error {
		if len(list.Items) >= r.w.o.MaxObjects {
			return errTooMany
		}
		u, err := decodeObject(raw)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, runtime.RawExtension{Object: r.reduce(u)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// get one object.
func (r *run) get(ctx context.Context, want wanted) (*unstructured.Unstructured, error) {
	body, err := r.request(want.namespace).Name(want.name).Stream(ctx)
	if err != nil {
		return nil, unquoted(err)
	}
	defer body.Close()
	raw, err := readObject(body)
	if err != nil {
		return nil, err
	}
	return decodeObject(raw)
}

// ask makes one call with a deadline, and decodes its small answer.
func (k *keeper) ask(ctx context.Context, request *rest.Request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, k.w.o.Timings.Call)
	defer cancel()
	body, err := request.SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return unquoted(err)
	}
	defer body.Close()
	raw, err := readObject(body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("the answer is no JSON: %w", err)
	}
	return nil
}

// readObject reads what is one object.
func readObject(body io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(body, maxObject+1))
	if err == nil && len(raw) > maxObject {
		err = transport.ErrTooLarge
	}
	return raw, err
}

func decodeObject(raw []byte) (*unstructured.Unstructured, error) {
	if len(raw) > maxObject {
		return nil, transport.ErrTooLarge
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &u.Object); err != nil {
		return nil, fmt.Errorf("an object is no JSON: %w", err)
	}
	return u, nil
}

// decodeList hands out the items of a list one by one, as they are read.
func decodeList(body io.Reader, item func(raw []byte) error) (metav1.ListMeta, error) {
	var about metav1.ListMeta
	d := json.NewDecoder(body)
	if err := expect(d, json.Delim('{')); err != nil {
		return about, err
	}
	isList := false
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return about, noList(err)
		}
		switch name {
		case "metadata":
			err = d.Decode(&about)
		case "items":
			isList = true
			err = decodeItems(d, item)
		default:
			err = d.Decode(&json.RawMessage{})
		}
		if err != nil {
			return about, noList(err)
		}
	}
	switch {
	case !isList:
		return about, errNoList
	case about.Continue != "": // Nobody asked for pages.
		return about, transport.ErrTooLarge
	}
	return about, expect(d, json.Delim('}'))
}

// decodeItems reads an array, or null.
func decodeItems(d *json.Decoder, item func(raw []byte) error) error {
	begin, err := d.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('[') {
		return errNoList
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if err := item(raw); err != nil {
			return err
		}
	}
	return expect(d, json.Delim(']'))
}

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = errNoList
	}
	return noList(err)
}
