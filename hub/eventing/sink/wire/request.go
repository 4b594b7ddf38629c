package wire

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/cloudevents/sdk-go/v2/binding"
	ce "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// Request returns a request that posts an event, structured (one JSON document) or binary
// (attributes as ce- headers), and its body.
func Request(ctx context.Context, to *url.URL, e ce.Event, structured bool) (*http.Request, []byte, error) {
	malformed := func(err error) error {
		return sink.Errorf(sink.Refused, "malformed", "the event is not a valid CloudEvent: %w", err)
	}
	if err := e.Validate(); err != nil {
		return nil, nil, malformed(err)
	}
	mode := binding.WithForceBinary
	if structured {
		mode = binding.WithForceStructured
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), nil)
	if err != nil {
		return nil, nil, CallError(to.Host, err)
	}
	if err := cehttp.WriteRequest(mode(ctx), binding.ToMessage(&e), request); err != nil {
		return nil, nil, malformed(err)
	}
	escapeHeaders(request.Header)
	var body []byte
	if request.Body != nil {
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, nil, malformed(err)
		}
	}
	setBody(request, body)
	return request, body, nil
}

// Post returns a request that posts a document of a media type. The error is a CallError.
func Post(ctx context.Context, to *url.URL, mediaType string, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), nil)
	if err != nil {
		return nil, CallError(to.Host, err)
	}
	request.Header.Set("Content-Type", mediaType)
	setBody(request, body)
	return request, nil
}

// setBody sets the body of a request so that net/http can send it again if an idle connection was
// closed.
func setBody(request *http.Request, body []byte) {
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}
