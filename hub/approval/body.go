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
	// smallBody is what any call may send, in bytes: most events are below a tenth of
	// it, and an approval sends nothing.
	smallBody = 16 << 10
	// maxLarge is how many larger bodies are read at a time. With maxConnections small
	// ones, and maxCalls that were read, that is below 40 MiB.
	maxLarge = 16
)

// body of a call. Whoever sends it slowly holds a connection for readTimeout, and one of
// the places for large bodies if it is one; no slot, which is for calls that are whole.
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

// busy sends a caller away for whom there is no place.
func busy() *refusal {
	return &refusal{code: http.StatusServiceUnavailable, reason: reasonBusy, retryAfter: busyFor}
}
