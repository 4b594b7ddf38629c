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

// body notes contact at each read and the end of the request at Close.
type body struct {
	io.ReadCloser
	ctx   context.Context
	watch bool
	// stream follows a watch; nil when nobody does.
	stream *Stream
	// left are the bytes that may come, of an answer that is no watch.
	left    int64
	contact func() // nil when the answer is not the API server's
	// lastContact of the transport.
	lastContact func() time.Time
	leave       func()
	once        sync.Once
}

// Read reads from the answer.
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
	case b.stream != nil && !b.stream.read(n):
		return 0, ErrTooLarge
	}
	if err != nil && !errors.Is(err, io.EOF) && b.watch && b.ctx.Err() == nil {
		// The words after which a reflector resumes; any other error of the stream
		// makes it list anew.
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

// isWatch is whether the answer is a stream of events.
func isWatch(request *http.Request) bool {
	switch request.URL.Query().Get("watch") {
	case "true", "1":
		return true
	}
	return false
}

// lostError is the failure of a watch to get any answer. It poses as "connection
// refused", the one network error after which a reflector backs off and resumes
// instead of listing anew. Its own text is constant, and it is no timeout, because
// client-go takes a reset connection (which it knows by the text) and a timeout for
// an empty watch, and an empty watch for a reason to list.
type lostError struct{ cause error }

var _ net.Error = lostError{}

func (lostError) Error() string { return "connection refused: no answer to the watch" }

// Timeout implements net.Error.
func (lostError) Timeout() bool { return false }

// Temporary implements net.Error.
func (lostError) Temporary() bool { return false }

// Unwrap gives the true error.
func (e lostError) Unwrap() error { return e.cause }

// As answers for syscall.Errno.
func (lostError) As(target any) bool {
	errno, ok := target.(*syscall.Errno)
	if ok {
		*errno = syscall.ECONNREFUSED
	}
	return ok
}
