package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/internal/backoff"
	"github.com/capstan-hub/capstan/internal/netguard"
)

// maxDrain is how many bytes of an answer are read, so that its connection can be reused.
const maxDrain = 64 << 10

// Do sends a request and returns the headers of a 2xx answer. The error is a CallError or a
// StatusError.
func Do(client *http.Client, request *http.Request, now clock.PassiveClock) (http.Header, error) {
	answer, err := Send(client, request) //nolint:bodyclose // It is closed.
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 != 2 {
		return nil, StatusError(request.URL.Host, answer, now)
	}
	return answer.Header, nil
}

// Send sends a request and returns the answer, whatever its status is. Its body is read and
// closed. The error is a CallError.
func Send(client *http.Client, request *http.Request) (*http.Response, error) {
	answer, _, err := SendAndRead(client, request, 0)
	return answer, err
}

// SendAndRead is Send, and returns the first limit bytes of the body. The body may be secret: no
// error may contain it. It is shorter if the connection ends early.
func SendAndRead(client *http.Client, request *http.Request, limit int64) (*http.Response, []byte, error) {
	answer, err := client.Do(request)
	if err != nil {
		return nil, nil, CallError(request.URL.Host, err)
	}
	body, _ := io.ReadAll(io.LimitReader(answer.Body, limit))
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxDrain))
	_ = answer.Body.Close()
	return answer, body, nil
}

// CallError returns the Error of a call without an answer.
func CallError(host string, err error) error {
	err = Bare(err)
	switch {
	case errors.Is(err, netguard.ErrForbidden):
		return sink.Errorf(sink.Unavailable, sink.CodeForbiddenAddress, "calling %s: %w", host, err)
	case errors.Is(err, context.DeadlineExceeded):
		return sink.Errorf(sink.Transient, sink.CodeTimeout, "%s did not answer in time: %w", host, err)
	}
	return sink.Errorf(sink.Transient, sink.CodeUnreachable, "calling %s: %w", host, err)
}

// StatusError returns the Error of an answer that is not 2xx.
func StatusError(host string, answer *http.Response, now clock.PassiveClock) error {
	status := answer.StatusCode
	e := sink.Errorf(sink.Refused, "http-"+strconv.Itoa(status), "%s answered %d %s", host, status, http.StatusText(status))
	switch {
	case status == http.StatusUnauthorized:
		e.Class, e.Code = sink.Unavailable, sink.CodeUnauthorized
	case status == http.StatusForbidden:
		e.Class, e.Code = sink.Unavailable, sink.CodeForbidden
	case status/100 == 3, status == http.StatusMethodNotAllowed, status == http.StatusProxyAuthRequired:
		// A login page, or the wrong address: every event would be answered so.
		e.Class = sink.Unavailable
	case status == http.StatusGone:
		e.Class = sink.Gone
	case status == http.StatusRequestEntityTooLarge:
		e.Class, e.Code = sink.TooLarge, sink.CodeTooLarge
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError,
		status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusNotFound, status == http.StatusConflict:
		e.Class = sink.Transient
		e.RetryAfter, _ = backoff.RetryAfter(answer.Header, now.Now())
	}
	return e
}
