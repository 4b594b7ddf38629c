package clusters

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/capstan-hub/capstan/clusters/kubeconfig"
	"github.com/capstan-hub/capstan/clusters/transport"
)

const (
	// requestsPerSecond and requestBurst of one cluster, over all its kinds: the hub
	// only lists, watches and labels. Probes do not count.
	requestsPerSecond = 10
	requestBurst      = 20
	// userAgent of requests to workload clusters.
	userAgent = "capstan"
)

// Connection is one epoch of the connection to one cluster: one server and CA. The
// credentials may change during an epoch.
type Connection struct {
	epoch  int64
	server *url.URL
	// proxy is the URL of the proxy to the server, for messages; empty for none.
	proxy string
	// fingerprint of the kubeconfig in use. Only the keeper's goroutine reads and writes it.
	fingerprint kubeconfig.Fingerprint
	transport   *transport.Transport
	client      *http.Client
	limiter     flowcontrol.RateLimiter
	ctx         context.Context
	cancel      context.CancelFunc
}

// Epoch returns the number of the connection among those of its cluster, from 1.
func (c *Connection) Epoch() int64 { return c.epoch }

// Config returns the configuration for clients that also use HTTPClient. It has no
// credentials. All Configs of a Connection have the same rate limiter.
func (c *Connection) Config() *rest.Config {
	return &rest.Config{Host: c.server.String(), UserAgent: userAgent, RateLimiter: c.limiter}
}

// HTTPClient returns the client that sends requests with the cluster's current
// credentials. While the connection is neither Ready nor Degraded, requests wait until
// their context ends. Only reads are sent, and merge patches of the kinds that the hub
// labels. The client has no timeout, because a timeout would end watches.
func (c *Connection) HTTPClient() *http.Client { return c.client }

// LastContact returns the time of the last byte received from the API server, watches
// included.
func (c *Connection) LastContact() time.Time { return c.transport.LastContact() }

// Context returns a context that ends with the epoch: when the cluster was removed, is not
// demanded any more, or has another server or CA.
func (c *Connection) Context() context.Context { return c.ctx }

// close ends the epoch.
func (c *Connection) close() {
	c.cancel()
	c.transport.Close()
}

// requestHooks are the functions that the transport of a connection calls after failed
// requests.
type requestHooks struct {
	// reauthenticate is called after a 401, doubt after a request without an answer.
	reauthenticate, checkServer func(context.Context)
}

func (m *shared) newConnection(ctx context.Context, epoch int64, config *kubeconfig.Config, hooks requestHooks) (*Connection, error) {
	t, err := transport.New(transport.Options{
		Server:         config.Server,
		Clock:          m.clock,
		AllowLoopback:  m.options.AllowLoopback,
		Proxy:          m.options.Proxy,
		Spread:         m.timings.ReleaseSpread,
		AllowPatch:     func(r *http.Request) bool { return !m.options.ReadOnly && mayPatch(config.Server.Path, r) },
		Reauthenticate: hooks.reauthenticate,
		CheckServer:    hooks.checkServer,
		Refused:        m.metrics.refused,
	}, config)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	c := m.connectionOver(ctx, t, config.Server, epoch)
	c.fingerprint = config.Fingerprint()
	if m.options.Proxy.Serves(hostPort(config.Server)) {
		c.proxy = m.options.Proxy.String()
	}
	return c, nil
}

// hostPort returns what is dialled for a server.
func hostPort(server *url.URL) string {
	return net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "443"))
}

// rotate replaces the credentials of the connection. The server stays the same.
func (c *Connection) rotate(config *kubeconfig.Config, change kubeconfig.Change) error {
	if err := c.transport.SetCredentials(config, change); err != nil {
		return err
	}
	c.fingerprint = config.Fingerprint()
	return nil
}

// newLocalConnection returns the connection to the management cluster.
func (m *shared) newLocalConnection(ctx context.Context, checkServer func(context.Context)) (*Connection, error) {
	server, _, err := rest.DefaultServerUrlFor(m.options.Local)
	if err != nil {
		return nil, fmt.Errorf("server of the management cluster: %w", err)
	}
	t, err := transport.NewLocal(transport.Options{Server: server, Clock: m.clock, Spread: m.timings.ReleaseSpread, CheckServer: checkServer, Refused: m.metrics.refused}, m.options.Local)
	if err != nil {
		return nil, err
	}
	return m.connectionOver(ctx, t, server, 1), nil
}

func (m *shared) connectionOver(ctx context.Context, t *transport.Transport, server *url.URL, epoch int64) *Connection {
	ctx, cancel := context.WithCancel(ctx)
	return &Connection{
		epoch:     epoch,
		server:    server,
		transport: t,
		// A redirect would send the credentials to another server; no API server sends one.
		client:  &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		limiter: flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, requestBurst),
		ctx:     ctx,
		cancel:  cancel,
	}
}
