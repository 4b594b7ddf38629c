package decode

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/capstan-hub/capstan/clusters/transport"
)

// errTooMany is an error of a caller.
var errTooMany = errors.New("too many")

func decoder(text string) *events {
	body := io.NopCloser(strings.NewReader(text))
	return &events{
		body: body, reader: bufio.NewReader(body), ended: func(error) {},
		accept: func(_ watch.EventType, u *unstructured.Unstructured, _ int) (runtime.Object, error) { return u, nil },
	}
}

// TestEventsAreDecoded: in the form that API servers write, and in other valid forms.
func TestEventsAreDecoded(t *testing.T) {
	web := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","generation":9007199254740993},"data":{"text":"\",\"object\":{}"}}`
	for _, tc := range []struct {
		name, text string
		kind       watch.EventType
		err        string
	}{
		{"as written", `{"type":"ADDED","object":` + web + "}\n", watch.Added, ""},
		{"with spaces", ` { "type" : "MODIFIED", "object" : ` + web + " }\r\n", watch.Modified, ""},
		{"with more behind it", `{"type":"ADDED","object":` + web + `,"more":{}}` + "\n", watch.Added, ""},
		{"the other way round", `{"object":` + web + `,"type":"DELETED"}` + "\n", watch.Deleted, ""},
		{"after empty lines", "\n\n" + `{"type":"ADDED","object":` + web + "}\n", watch.Added, ""},
		{"cut off", `{"type":"ADDED","object":` + web, "", io.ErrUnexpectedEOF.Error()},
		{"at the end", "", "", io.EOF.Error()},
		{"garbage", "<html>\n", "", "not valid JSON"},
		{"half an object", `{"type":"ADDED","object":{"a":}}` + "\n", "", "not valid JSON"},
		{"another type", `{"type":"SHRUNK","object":{}}` + "\n", "", "unknown type"},
		{"too large", `{"type":"ADDED","object":{"a":"` + strings.Repeat("x", maxEvent) + `"}}` + "\n", "", "larger than 4 MiB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			kind, o, err := decoder(tc.text).Decode()
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(kind).To(Equal(tc.kind))
			u, ok := o.(*unstructured.Unstructured)
			g.Expect(ok).To(BeTrue())
			g.Expect(u.GetName()).To(Equal("web"))
			g.Expect(u.GetGeneration()).To(BeEquivalentTo(9007199254740993), "numbers are whole")
		})
	}
}

// TestErrorEvents are Statuses, so that a reflector knows one that has expired.
func TestErrorEvents(t *testing.T) {
	g := NewWithT(t)
	kind, o, err := decoder(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}` + "\n").Decode()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kind).To(Equal(watch.Error))
	status, ok := o.(*metav1.Status)
	g.Expect(ok).To(BeTrue())
	g.Expect(status.Reason).To(Equal(metav1.StatusReasonExpired))
}

// FuzzEvents: no bytes from a cluster crash the decoder, or result in an invalid object.
func FuzzEvents(f *testing.F) {
	f.Add(`{"type":"ADDED","object":{"metadata":{"name":"web"}}}` + "\n")
	f.Add(`{"type":"ERROR","object":{"code":410}}` + "\n")
	f.Add("{\"type\":\"\n")
	f.Add(`{"type":"BOOKMARK","object":null}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		e := decoder(text)
		for range 3 {
			kind, o, err := e.Decode()
			if err != nil {
				return
			}
			if o == nil || kind == "" {
				t.Fatalf("neither an event nor an error: %q", text)
			}
			if u, ok := o.(*unstructured.Unstructured); ok {
				_ = u.GetName() + u.GetResourceVersion()
			}
		}
	})
}

// BenchmarkEvents of 8 KiB each.
func BenchmarkEvents(b *testing.B) {
	line := fmt.Sprintf(`{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"},"data":{"text":%q}}}`+"\n", strings.Repeat("v", 8<<10))
	b.SetBytes(int64(len(line)))
	var o runtime.Object
	for b.Loop() {
		var err error
		if _, o, err = decodeEvent([]byte(line), nil); err != nil {
			b.Fatal(err)
		}
	}
	_ = o
}

// TestListsAreDecoded item by item, and bounded.
func TestListsAreDecoded(t *testing.T) {
	large := `{"metadata":{"name":"` + strings.Repeat("x", MaxObject) + `"}}`
	for _, tc := range []struct {
		name, text string
		items      int
		err        string
	}{
		{"two", `{"kind":"L","metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":2}]}`, 2, ""},
		{"metadata behind", `{"items":[{"a":1}],"metadata":{"resourceVersion":"7"}}`, 1, ""},
		{"none", `{"items":[],"metadata":{"resourceVersion":"7"}}`, 0, ""},
		{"null", `{"items":null,"metadata":{"resourceVersion":"7"}}`, 0, ""},
		{"a page", `{"metadata":{"resourceVersion":"7","continue":"more"},"items":[{}]}`, 0, transport.ErrTooLarge.Error()},
		{"a large object", `{"metadata":{"resourceVersion":"7"},"items":[` + large + `]}`, 0, transport.ErrTooLarge.Error()},
		{"too many", `{"metadata":{"resourceVersion":"7"},"items":[` + strings.Repeat("{},", 10) + `{}]}`, 0, errTooMany.Error()},
		{"not a list", `{"kind":"Status"}`, 0, ErrNoList.Error()},
		{"items that are none", `{"items":{}}`, 0, ErrNoList.Error()},
		{"an array", `[]`, 0, ErrNoList.Error()},
		{"cut off", `{"items":[{"a":1},`, 0, ErrNoList.Error()},
		{"garbage", `<html>`, 0, ErrNoList.Error()},
		{"nothing", ``, 0, ErrNoList.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			items := 0
			about, err := List(strings.NewReader(tc.text), func(raw []byte) error {
				if items++; items > 10 {
					return errTooMany
				}
				_, err := Object(raw, nil)
				return err
			})
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(items).To(Equal(tc.items))
			g.Expect(about.ResourceVersion).To(Equal("7"))
		})
	}
}

// TestLongIdentitiesAreRefused: the identity of every object is stored. An API server accepts
// no longer ones.
func TestLongIdentitiesAreRefused(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, tc := range []struct {
		field string
		most  int
	}{{"name", maxName}, {"namespace", maxName}, {"uid", maxUID}, {"resourceVersion", maxVersion}} {
		t.Run(tc.field, func(t *testing.T) {
			g := NewWithT(t)
			object := func(n int) []byte { return fmt.Appendf(nil, `{"metadata":{%q:%q}}`, tc.field, long(n)) }
			_, err := Object(object(tc.most), nil)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = Object(object(tc.most+1), nil)
			g.Expect(err).To(MatchError(ErrIdentity))
			e := decoder(fmt.Sprintf(`{"type":"MODIFIED","object":%s}`+"\n", object(tc.most+1)))
			var refused error
			e.ended = func(err error) { refused = err }
			_, _, err = e.Decode()
			g.Expect(err).To(HaveOccurred())
			g.Expect(refused).To(MatchError(ErrIdentity))
		})
	}
	_, err := List(strings.NewReader(`{"metadata":{"resourceVersion":"`+long(maxVersion+1)+`"},"items":[]}`), nil)
	NewWithT(t).Expect(err).To(MatchError(ErrIdentity))
}

// endless is an answer that never ends.
type endless struct{ read int }

func (e *endless) Read(into []byte) (int, error) {
	for i := range into {
		into[i] = 'x'
	}
	e.read += len(into)
	return len(into), nil
}

// TestListPiecesAreBounded: no part of a list is held that is larger than an object may be.
func TestListPiecesAreBounded(t *testing.T) {
	for name, begin := range map[string]string{"an item": `{"items":["`, "metadata": `{"metadata":{"continue":"`, "another field": `{"more":"`, "a name": `{"`} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			rest := &endless{}
			_, err := List(&joined{strings.NewReader(begin), rest}, func([]byte) error { return nil })
			g.Expect(err).To(HaveOccurred())
			g.Expect(Exceeds(err)).To(BeTrue())
			g.Expect(rest.read).To(BeNumerically("<=", maxPiece))
		})
	}
}

type joined struct {
	first *strings.Reader
	then  *endless
}

func (j *joined) Read(into []byte) (int, error) {
	if j.first.Len() > 0 {
		return j.first.Read(into)
	}
	return j.then.Read(into)
}
