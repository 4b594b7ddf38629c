package provider

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"

	"github.com/capstan-hub/capstan/internal/netguard"
)

const (
	// dialTimeout of one connection; a service that is there answers a SYN at once.
	dialTimeout = 10 * time.Second
	// handshakeTimeout of TLS, likewise.
	handshakeTimeout = 10 * time.Second
	// headerMargin is how much longer a connection waits for an answer to begin than
	// the wire does for the whole of it, whose error says more. It is for Git.
	headerMargin = time.Second
	// idleTimeout keeps a connection over the requests of one promotion, not until
	// the next.
	idleTimeout = 30 * time.Second
	// maxHeader of an answer, in bytes. Honest ones are below 8 KiB.
	maxHeader = 64 << 10
	// maxConnections to one service.
	maxConnections = 4
)

func newTransport(o Options) (*http.Transport, error) {
	roots, err := roots(o)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{
		Timeout: dialTimeout,
		// There is no proxy, of the environment or else: a proxy resolves names itself, so
		// the policy could not check what it dials.
		Control: netguard.Policy{AllowLoopback: o.AllowLoopback}.Control,
	}
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

// roots are the system's and those of the bundle; nil is the system's.
func roots(o Options) (*x509.CertPool, error) {
	if len(o.CABundle) == 0 {
		return nil, nil //nolint:nilnil // what crypto/tls takes for the system's roots
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(o.CABundle) {
		return nil, invalid(o.Type, "the CA bundle holds no certificate in PEM")
	}
	return pool, nil
}
