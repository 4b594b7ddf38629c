package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// body is the body of a response. Each Read records a contact, and Close ends the request.
type body struct {
	io.ReadCloser
	ctx   context.Context
	watch bool
	// stream observes a watch; nil when none was set.
	stream *Stream
	// left is how many bytes may still be read of a response that is not a watch.
	left    int64
	contact func() // nil when the response may not be from the API server
	// lastContact of the transport.
	lastContact func() time.Time
	leave       func()
	once        sync.Once
}

// Read reads from the response.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && b.contact != nil {
		b.contact()
	}
	switch {
	case n == 0:
	case !b.watch:
		if b.left -= int64(n); b.left < 0 {
			return 0, ErrTooLarge
		}
	case b.stream != nil:
		b.stream.noteByte()
	}
	if err != nil && !errors.Is(err, io.EOF) && b.watch && b.ctx.Err() == nil {
		// After this error a reflector resumes; after any other error of the stream
		// it lists again.
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close ends the request.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(func() {
		if b.stream != nil {
			b.stream.end(b.ReadCloser, b.lastContact())
		}
		b.leave()
	})
	return err
}

// isWatch reports whether the response is a stream of events.
func isWatch(request *http.Request) bool {
	switch request.URL.Query().Get("watch") {
	case "true", "1":
		return true
	}
	return false
}

// lostError is the error of a watch without a response. It is presented as "connection
// refused", the only network error after which a reflector backs off and resumes instead
// of listing again. Its text is constant, and it is not a timeout: client-go handles a
// reset connection (which it finds by the text) and a timeout as an empty watch, and lists
// after an empty watch.
type lostError struct{ cause error }

var _ net.Error = lostError{}

func (lostError) Error() string { return "connection refused: no answer to the watch" }

// Timeout implements net.Error.
func (lostError) Timeout() bool { return false }

// Temporary implements net.Error.
func (lostError) Temporary() bool { return false }

// Unwrap returns the original error.
func (e lostError) Unwrap() error { return e.cause }

// As implements errors.As for syscall.Errno.
func (lostError) As(target any) bool {
	errno, ok := target.(*syscall.Errno)
	if ok {
		*errno = syscall.ECONNREFUSED
	}
	return ok
}
