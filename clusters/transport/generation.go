package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/capstan-hub/capstan/clusters/kubeconfig"
)

// maxIdleConnections is for servers without HTTP/2, where each watch has its own.
const maxIdleConnections = 8

// generation is the http.Transport of one client certificate.
type generation struct {
	roundTripper http.RoundTripper
	inFlight     atomic.Int64
	retired      atomic.Bool
}

func newGeneration(config *kubeconfig.Config, dial dialFunc) (*generation, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: config.TLSServerName}
	if len(config.CAData) > 0 {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(config.CAData) {
			return nil, errors.New("the certificate authority contains no PEM certificate")
		}
	}
	if len(config.CertData) > 0 {
		pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
		if err != nil {
			return nil, fmt.Errorf("the client certificate: %w", err)
		}
		secure.Certificates = []tls.Certificate{pair}
	}
	// SetTransportDefaults enables HTTP/2 with pings. Without pings, a peer that does not
	// respond is noticed after 15 minutes.
	return &generation{roundTripper: utilnet.SetTransportDefaults(&http.Transport{
		Proxy:               func(*http.Request) (*url.URL, error) { return nil, nil },
		DialContext:         dial,
		TLSClientConfig:     secure,
		TLSHandshakeTimeout: tlsTimeout,
		MaxIdleConnsPerHost: maxIdleConnections,
	})}, nil
}

// leave is called at the end of each request. The last one of a retired
// generation closes its connections.
func (g *generation) leave() {
	if g.inFlight.Add(-1) == 0 && g.retired.Load() {
		g.closeIdle()
	}
}

// retire closes the connections when the open streams have ended by themselves.
func (g *generation) retire() {
	g.retired.Store(true)
	g.closeIdle()
}

func (g *generation) closeIdle() { utilnet.CloseIdleConnectionsFor(g.roundTripper) }
