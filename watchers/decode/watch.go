package decode

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// maxEvent is the largest accepted event, in bytes.
	maxEvent = MaxObject + 1<<10
	// keptBuffer is the largest buffer that is kept for the next event, in bytes.
	keptBuffer = 64 << 10
)

// lines are buffers for events that are longer than a watch's own buffer. Watches share them: of a
// thousand, few decode an event at a time.
var lines = sync.Pool{New: func() any { return new([]byte) }}

// ErrEventTooLarge means that an event is larger than an object may be.
var ErrEventTooLarge = errors.New("an event of the watch is larger than 4 MiB")

// Accept receives each object of a watch, with the fields that are kept, the type of its event and
// the bytes that the event had. It returns what the watch delivers instead of the object. An error
// ends the watch.
type Accept func(kind watch.EventType, u *unstructured.Unstructured, read int) (runtime.Object, error)

// events decodes the events of a watch.
type events struct {
	body   io.ReadCloser
	reader *bufio.Reader
	// line is one of lines while a long event is read and decoded.
	line   *[]byte
	keep   Fields
	accept Accept
	ended  func(error)
}

var _ watch.Decoder = &events{}

// NewWatch makes a watch of an answer, whose body it owns. ended is called with the error that ends
// it, in the goroutine that reads.
func NewWatch(body io.ReadCloser, keep Fields, accept Accept, ended func(error)) watch.Interface {
	return watch.NewStreamWatcher(&events{body: body, reader: bufio.NewReader(body), keep: keep, accept: accept, ended: ended},
		apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "WatchDecoding"))
}

// Close implements watch.Decoder.
func (e *events) Close() { _ = e.body.Close() }

// Decode implements watch.Decoder.
func (e *events) Decode() (watch.EventType, runtime.Object, error) {
	kind, o, err := e.decode()
	if err != nil {
		e.ended(err)
		return "", nil, err
	}
	return kind, o, nil
}

func (e *events) decode() (watch.EventType, runtime.Object, error) {
	defer e.release()
	var line []byte
	for len(line) == 0 {
		next, err := e.next()
		if err != nil {
			return "", nil, err
		}
		line = bytes.TrimSpace(next)
	}
	kind, o, err := decodeEvent(line, e.keep)
	if err != nil {
		return "", nil, err
	}
	if u, is := o.(*unstructured.Unstructured); is {
		o, err = e.accept(kind, u, len(line))
	}
	return kind, o, err
}

// next returns the next line, which is valid until next or release is called.
func (e *events) next() ([]byte, error) {
	e.release()
	for {
		part, err := e.reader.ReadSlice('\n')
		if err == nil && e.line == nil {
			return part, nil
		}
		if e.line == nil {
			e.line = lines.Get().(*[]byte)
		}
		*e.line = append(*e.line, part...)
		switch {
		case len(*e.line) > maxEvent:
			return nil, ErrEventTooLarge
		case err == nil:
			return *e.line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(*e.line)) > 0:
			return nil, io.ErrUnexpectedEOF // In the middle of an event.
		default:
			return nil, err
		}
	}
}

// release returns the buffer of the last line.
func (e *events) release() {
	if e.line == nil {
		return
	}
	if cap(*e.line) <= keptBuffer {
		*e.line = (*e.line)[:0]
		lines.Put(e.line)
	}
	e.line = nil
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
func decodeEvent(line []byte, keep Fields) (watch.EventType, runtime.Object, error) {
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

func decodeAs(kind watch.EventType, raw []byte, keep Fields) (runtime.Object, error) {
	switch kind {
	case watch.Added, watch.Modified, watch.Deleted:
		return Object(raw, keep)
	case watch.Bookmark:
		return Object(raw, nil)
	case watch.Error:
		status := &metav1.Status{}
		if err := json.Unmarshal(raw, status); err != nil {
			return nil, fmt.Errorf("an error of the watch is not valid JSON: %w", err)
		}
		return status, nil
	}
	return nil, fmt.Errorf("an event of the watch has the unknown type %.20q", string(kind))
}
