package clusters

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

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

// Connection is one epoch of the connection to one cluster: one server and CA,
// whatever becomes of the credentials.
type Connection struct {
	epoch  int64
	server *url.URL
	// fingerprint of what it connects with; the keeper's goroutine's own.
	fingerprint kubeconfig.Fingerprint
	transport   *transport.Transport
	client      *http.Client
	limiter     flowcontrol.RateLimiter
	ctx         context.Context
	cancel      context.CancelFunc

	// built is the cluster.Cluster of the epoch, made when it is first asked for.
	built func() (cluster.Cluster, error)
}

// Epoch counts the connections of a cluster, from 1.
func (c *Connection) Epoch() int64 { return c.epoch }

// Config is for clients that are given HTTPClient too. It holds no credentials and
// the one rate limiter of the cluster.
func (c *Connection) Config() *rest.Config {
	return &rest.Config{Host: c.server.String(), UserAgent: userAgent, RateLimiter: c.limiter}
}

// HTTPClient sends with the cluster's current credentials. Requests park until
// their context ends while the connection is neither Ready nor Degraded, and only
// reading ones leave, and merge patches of the kinds that the hub labels. It has no
// timeout of its own, since that would cut watches.
func (c *Connection) HTTPClient() *http.Client { return c.client }

// LastContact is when the API server was last heard: the last byte of an answer,
// watches included.
func (c *Connection) LastContact() time.Time { return c.transport.LastContact() }

// Context ends with the epoch: the cluster was removed, is not demanded any more,
// or has another server or CA.
func (c *Connection) Context() context.Context { return c.ctx }

// close ends the epoch.
func (c *Connection) close() {
	c.cancel()
	c.transport.Close()
}

// requestHooks are what the transport of a connection calls after requests that failed.
type requestHooks struct {
	// reauthenticate is called after a 401, doubt after a request without an answer.
	reauthenticate, checkServer func(context.Context)
}

func (m *shared) newConnection(ctx context.Context, epoch int64, config *kubeconfig.Config, hooks requestHooks) (*Connection, error) {
	t, err := transport.New(transport.Options{
		Server:         config.Server,
		Clock:          m.clock,
		AllowLoopback:  m.options.AllowLoopback,
		Spread:         m.timings.ReleaseSpread,
		AllowPatch:     func(r *http.Request) bool { return mayPatch(config.Server.Path, r) },
		Reauthenticate: hooks.reauthenticate,
		CheckServer:    hooks.checkServer,
		Refused:        m.metrics.refused,
	}, config)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	c := m.connectionOver(ctx, t, config.Server, epoch)
	c.fingerprint = config.Fingerprint()
	return c, nil
}

// rotate has the connection go on with other credentials for the same server.
func (c *Connection) rotate(config *kubeconfig.Config, change kubeconfig.Change) error {
	if err := c.transport.SetCredentials(config, change); err != nil {
		return err
	}
	c.fingerprint = config.Fingerprint()
	return nil
}

// newLocalConnection is the connection of the management cluster.
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
	c := &Connection{
		epoch:     epoch,
		server:    server,
		transport: t,
		// A redirect would take the credentials elsewhere; no API server sends one.
		client:  &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		limiter: flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, requestBurst),
		ctx:     ctx,
		cancel:  cancel,
	}
	c.built = sync.OnceValues(func() (cluster.Cluster, error) { return m.build(c) })
	return c
}
