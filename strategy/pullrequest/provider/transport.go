package provider

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"

	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/internal/netguard"
)

const (
	// dialTimeout of one connection. A running service accepts one at once.
	dialTimeout = 10 * time.Second
	// handshakeTimeout of TLS, for the same reason.
	handshakeTimeout = 10 * time.Second
	// headerMargin is added to the timeout until a response begins, so that the wire, whose
	// error has more detail, times out first. Only Git needs the timeout itself.
	headerMargin = time.Second
	// idleTimeout keeps a connection during the requests of one promotion, not until the
	// next.
	idleTimeout = 30 * time.Second
	// maxHeader bounds the header of a response, in bytes. Real ones are below 8 KiB.
	maxHeader = 64 << 10
	// maxConnections is the number of connections to one service.
	maxConnections = 4
)

func newTransport(o Options) (*http.Transport, error) {
	roots, err := roots(o)
	if err != nil {
		return nil, err
	}
	// A proxy of the environment is not used: http.Transport would check its address instead of the
	// service's.
	dialer := egress.Dialer{Proxy: o.Proxy, Policy: netguard.Policy{AllowLoopback: o.AllowLoopback}, Timeout: dialTimeout}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    handshakeTimeout,
		ResponseHeaderTimeout:  o.Timeout + headerMargin,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		MaxConnsPerHost:        maxConnections,
		ForceAttemptHTTP2:      true,
	}, nil
}

// roots returns the system's roots and those of the bundle; nil means the system's.
func roots(o Options) (*x509.CertPool, error) {
	if len(o.CABundle) == 0 {
		return nil, nil //nolint:nilnil // For crypto/tls, nil means the system's roots.
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(o.CABundle) {
		return nil, invalid(o.Type, "the CA bundle contains no certificate in PEM format")
	}
	return pool, nil
}
