package wire

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
)

// EndpointOptions of an Endpoint.
type EndpointOptions struct {
	// URL to which requests are sent, and Proxy for them; empty for none.
	URL, Proxy string
	// Secret has the TLS keys (TLS); nil without a Secret.
	Secret map[string][]byte
	// Connections is the maximum number of connections to the host.
	Connections   int
	AllowLoopback bool
}

// Endpoint is a URL with the client that calls it.
type Endpoint struct {
	URL    *url.URL
	Client *http.Client
	// dial is the host to which connections are made: that of URL or of the proxy.
	dial   *url.URL
	dialer *net.Dialer
	tls    *tls.Config
}

// NewEndpoint returns an Endpoint without a connection. An error about the Secret is of class
// ErrSecret; no error contains a part of a URL.
func NewEndpoint(o EndpointOptions) (*Endpoint, error) {
	secure, _, err := TLS(o.Secret)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{dialer: Dialer(o.AllowLoopback), tls: secure}
	if e.URL, err = url.Parse(o.URL); err != nil {
		return nil, Bare(err)
	}
	client := HTTPOptions{TLS: secure, AllowLoopback: o.AllowLoopback, Connections: o.Connections}
	e.dial = e.URL
	if o.Proxy != "" {
		if client.Proxy, err = url.Parse(o.Proxy); err != nil {
			return nil, Bare(err)
		}
		e.dial = client.Proxy
	}
	e.Client = HTTPClient(client)
	return e, nil
}

// Connect makes a connection to the host of the URL, or to the proxy, and closes it: a ping of a
// receiver that must only answer a POST. The error is a CallError.
func (e *Endpoint) Connect(ctx context.Context) error {
	return Connect(ctx, e.dialer, e.tls, e.dial)
}

// Close closes idle connections.
func (e *Endpoint) Close() { e.Client.CloseIdleConnections() }
