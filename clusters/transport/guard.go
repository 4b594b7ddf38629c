package transport

import (
	"errors"
	"fmt"
	"net/http"
)

// ErrRefused is the class of *RefusedError.
var ErrRefused = errors.New("refused by the hub")

// RefusedReason is why the hub did not send a request.
type RefusedReason string

// Reasons for refusing a request.
const (
	// RefusedWrite: the request would change the cluster.
	RefusedWrite RefusedReason = "write"
	// RefusedUpgrade: the request would switch to another protocol than HTTP, as exec and
	// port-forward do. A GET can request that.
	RefusedUpgrade RefusedReason = "upgrade"
	// RefusedHost: the request would send the credentials to another server than that of
	// the connection.
	RefusedHost RefusedReason = "host"
)

// RefusedError is returned for a request that the guard refused.
type RefusedError struct {
	Reason       RefusedReason
	Method, Path string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s %s: %s (%s): the hub only reads workload clusters", e.Method, e.Path, ErrRefused, e.Reason)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

func (t *Transport) guard(request *http.Request) error {
	reason := t.refusal(request)
	if reason == "" {
		return nil
	}
	if t.options.Refused != nil {
		t.options.Refused(reason)
	}
	return &RefusedError{Reason: reason, Method: request.Method, Path: request.URL.Path}
}

func (t *Transport) refusal(request *http.Request) RefusedReason {
	switch {
	case request.URL.Scheme != t.options.Server.Scheme || request.URL.Host != t.options.Server.Host:
		return RefusedHost
	case request.Header.Get("Upgrade") != "":
		return RefusedUpgrade
	}
	switch request.Method {
	case "", http.MethodGet, http.MethodHead:
		return ""
	case http.MethodPatch:
		if t.options.AllowPatch != nil && t.options.AllowPatch(request) {
			return ""
		}
	}
	return RefusedWrite
}
