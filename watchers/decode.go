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
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// maxEvent is the size of one event, in bytes; client-go's own bound.
	maxEvent = 16 << 20
	// keptBuffer is how large a buffer an idle watch may keep.
	keptBuffer = 64 << 10
)

// errEventTooLarge: an event is larger than maxEvent.
var errEventTooLarge = errors.New("an event of the watch is larger than 16 MiB")

// events decodes the events of a watch.
//
// client-go's decoder goes over each event some eight times (to find its end, its
// kind, and the same of the object in it, each with a check of the whole). A cold
// start of a thousand clusters is mostly that, so here it is twice: an API server
// ends each event with a newline, and begins it with its type.
type events struct {
	body   io.ReadCloser
	reader *bufio.Reader
	line   []byte
}

var _ watch.Decoder = &events{}

// newWatch makes a watch of an answer. It owns the body.
func newWatch(body io.ReadCloser) watch.Interface {
	return watch.NewStreamWatcher(&events{body: body, reader: bufio.NewReader(body)},
		apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "WatchDecoding"))
}

// Close implements watch.Decoder.
func (e *events) Close() { _ = e.body.Close() }

// Decode implements watch.Decoder.
func (e *events) Decode() (watch.EventType, runtime.Object, error) {
	for {
		line, err := e.next()
		if err != nil {
			return "", nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return decodeEvent(line)
		}
	}
}

// next is the next line, until the one after it.
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

// split parts an event as API servers write it into its type and its object; false
// when it is not written so.
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

func decodeEvent(line []byte) (watch.EventType, runtime.Object, error) {
	kind, raw, ok := split(line)
	if !ok {
		var event struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return "", nil, fmt.Errorf("an event of the watch is no JSON: %w", err)
		}
		kind, raw = event.Type, event.Object
	}
	switch kind {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		u := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(raw, &u.Object); err != nil {
			return "", nil, fmt.Errorf("an object of the watch is no JSON: %w", err)
		}
		return kind, u, nil
	case watch.Error:
		status := &metav1.Status{}
		if err := json.Unmarshal(raw, status); err != nil {
			return "", nil, fmt.Errorf("an error of the watch is no JSON: %w", err)
		}
		return kind, status, nil
	}
	return "", nil, fmt.Errorf("an event of the watch has the unknown type %.20q", string(kind))
}
