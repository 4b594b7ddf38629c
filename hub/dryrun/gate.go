package dryrun

import (
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
)

// RefusedError is the error of a request that the gate did not send.
type RefusedError struct {
	// Method and Path of the request.
	Method, Path string
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("dry run: %s %s is not sent: a hub with --dry-run writes only status.dryRun of Pipelines, ClusterConnections and Events", e.Method, e.Path)
}

// Gate returns a copy of a configuration whose clients can read everything, and write only what a dry run may. refused
// is called for each request that is not sent.
func Gate(config *rest.Config, refused func(*RefusedError)) (*rest.Config, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the address of the API server: %w", err)
	}
	gated := rest.CopyConfig(config)
	gated.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &gate{next: next, server: server, refused: refused}
	})
	return gated, nil
}

// gate is the transport that Gate adds.
type gate struct {
	next    http.RoundTripper
	server  *url.URL
	refused func(*RefusedError)
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if allowed(g.server.Path, r) {
		return g.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // A RoundTripper must close it.
	}
	err := &RefusedError{Method: r.Method, Path: r.URL.Path}
	g.refused(err)
	return nil, err
}

// WrappedRoundTripper lets client-go close idle connections.
func (g *gate) WrappedRoundTripper() http.RoundTripper { return g.next }
