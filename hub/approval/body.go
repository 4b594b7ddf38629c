package approval

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

const (
	// MaxBody of a call, in bytes: many times a Flux event.
	MaxBody = 256 << 10
	// smallBody is the size that is read for every call, in bytes: most events are below a
	// tenth of it, and an approval has no body.
	smallBody = 16 << 10
	// maxLarge is how many larger bodies are read at a time. Together with maxConnections
	// small bodies, and maxCalls that were read, they use less than 40 MiB.
	maxLarge = 16
)

// body reads the body of a call. A client that sends slowly holds a connection for readTimeout,
// and a place for large bodies if its body is large. It holds no slot: slots are for calls
// whose body was read.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	from := http.MaxBytesReader(w, r.Body, MaxBody)
	body, err := io.ReadAll(io.LimitReader(from, smallBody+1))
	if err == nil && len(body) > smallBody {
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		default:
			return nil, busy()
		}
		var rest []byte
		rest, err = io.ReadAll(from)
		body = append(body, rest...)
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, refuse(http.StatusRequestEntityTooLarge, reasonTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
	case err != nil:
		return nil, &refusal{code: http.StatusBadRequest, reason: reasonBody, cause: fmt.Errorf("reading the body: %w", err)}
	}
	return body, nil
}

// busy is the answer if all slots, or all places for large bodies, are in use.
func busy() *refusal {
	return &refusal{code: http.StatusServiceUnavailable, reason: reasonBusy, retryAfter: busyFor}
}
