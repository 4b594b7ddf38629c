package watchers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/clusters/transport"
)

const (
	// maxObject is the largest accepted object, in bytes. An API server accepts none that is
	// larger than 3 MiB.
	maxObject = 4 << 20
	// maxEvent is the largest accepted event, in bytes.
	maxEvent = maxObject + 1<<10
	// keptBuffer is the largest buffer that an idle watch may keep, in bytes.
	keptBuffer = 64 << 10
)

// errEventTooLarge: an event is larger than maxEvent.
var errEventTooLarge = errors.New("an event of the watch is larger than 4 MiB")

// errNoList: the answer to a list is not a list.
var errNoList = errors.New("the answer is not a list")

// noList makes an error of JSON an errNoList, and returns other errors unchanged.
func noList(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &kind) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", errNoList, err)
	}
	return err
}

// events decodes the events of a watch.
//
// client-go's decoder reads each event about eight times (to find its end and its kind,
// and those of the object in it, each with a check of the whole). This takes most of the
// time of a cold start of a thousand clusters. This decoder reads each event twice: an API
// server ends each event with a newline, and begins it with its type.
//
// It also reduces each object, and counts the initial list: what client-go stores of it is
// counted by no one else before the list is complete.
type events struct {
	body   io.ReadCloser
	reader *bufio.Reader
	line   []byte
	// keep are the fields that reduce reads.
	keep fields
	// reduce makes the stored form of an object.
	reduce func(*unstructured.Unstructured) client.Object
	// listed counts the initial list; nil after it, and for a watch without one.
	listed *tally
	// pace of the events after the initial list.
	pace *pace
	// refuse is called when the cluster exceeds a limit.
	refuse func(error)
}

var _ watch.Decoder = &events{}

// newWatch makes a watch of an answer, which begins with an initial list if initial is true. It
// owns the body. refuse is called when the cluster exceeds a limit.
func (c *caller) newWatch(body io.ReadCloser, initial bool, refuse func(error)) watch.Interface {
	e := &events{body: body, reader: bufio.NewReader(body), keep: c.keep, reduce: c.reduce, pace: c.pace, refuse: refuse}
	if initial {
		e.listed = &tally{limits: c.limits}
	}
	return watch.NewStreamWatcher(e, apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "WatchDecoding"))
}

// Close implements watch.Decoder.
func (e *events) Close() { _ = e.body.Close() }

// Decode implements watch.Decoder.
func (e *events) Decode() (watch.EventType, runtime.Object, error) {
	for {
		line, err := e.next()
		if err == nil {
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			var kind watch.EventType
			var o runtime.Object
			if kind, o, err = decodeEvent(line, e.keep); err == nil {
				if o, err = e.accept(kind, o, len(line)); err == nil {
					return kind, o, nil
				}
			}
		}
		if exceeds(err) {
			e.refuse(err)
		}
		return "", nil, err
	}
}

// accept reduces the object of an event, and applies the limits.
func (e *events) accept(kind watch.EventType, o runtime.Object, read int) (runtime.Object, error) {
	u, ok := o.(*unstructured.Unstructured)
	switch {
	case !ok:
		return o, nil
	case kind == watch.Bookmark:
		if u.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			e.listed = nil
		}
		return o, nil
	}
	reduced := e.reduce(u)
	if e.listed != nil {
		return reduced, e.listed.add(reduced, read)
	}
	e.pace.wait()
	return reduced, nil
}

// next returns the next line, which is valid until next is called again.
func (e *events) next() ([]byte, error) {
	if cap(e.line) > keptBuffer {
		e.line = nil
	}
	e.line = e.line[:0]
	for {
		part, err := e.reader.ReadSlice('\n')
		e.line = append(e.line, part...)
		switch {
		case len(e.line) > maxEvent:
			return nil, errEventTooLarge
		case err == nil:
			return e.line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(e.line)) > 0:
			return nil, io.ErrUnexpectedEOF // In the middle of an event.
		default:
			return nil, err
		}
	}
}

// split splits an event in the form that API servers write into its type and its object;
// false if it has another form.
func split(line []byte) (kind watch.EventType, object []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"type":"`))
	if !ok {
		return "", nil, false
	}
	head, rest, ok := bytes.Cut(rest, []byte(`","object":`))
	if !ok || len(rest) == 0 || rest[len(rest)-1] != '}' || bytes.ContainsAny(head, `"\`) {
		return "", nil, false
	}
	return watch.EventType(head), rest[:len(rest)-1], true
}

// decodeEvent decodes the fields to keep of the object of an event.
func decodeEvent(line []byte, keep fields) (watch.EventType, runtime.Object, error) {
	if kind, raw, ok := split(line); ok {
		if o, err := decodeAs(kind, raw, keep); err == nil {
			return kind, o, nil
		}
	}
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return "", nil, fmt.Errorf("an event of the watch is not valid JSON: %w", err)
	}
	o, err := decodeAs(event.Type, event.Object, keep)
	return event.Type, o, err
}

func decodeAs(kind watch.EventType, raw []byte, keep fields) (runtime.Object, error) {
	switch kind {
	case watch.Added, watch.Modified, watch.Deleted:
		return decodeObject(raw, keep)
	case watch.Bookmark:
		return decodeObject(raw, nil)
	case watch.Error:
		status := &metav1.Status{}
		if err := json.Unmarshal(raw, status); err != nil {
			return nil, fmt.Errorf("an error of the watch is not valid JSON: %w", err)
		}
		return status, nil
	}
	return nil, fmt.Errorf("an event of the watch has the unknown type %.20q", string(kind))
}

// decodeObject decodes the fields to keep of an object.
func decodeObject(raw []byte, keep fields) (*unstructured.Unstructured, error) {
	if len(raw) > maxObject {
		return nil, transport.ErrTooLarge
	}
	object, err := decodeFields(raw, keep)
	if err != nil {
		return nil, fmt.Errorf("an object is not valid JSON: %w", err)
	}
	u := &unstructured.Unstructured{Object: object}
	return u, checkIdentity(u)
}
