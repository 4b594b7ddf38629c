package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/dashboard/openid"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/hub/serving"
	"github.com/capstan-hub/capstan/internal/collectors"
	"github.com/capstan-hub/capstan/internal/delivery"
)

const (
	// maxConnections at a time, including streams and idle connections.
	maxConnections = 512
	// maxRequests is how many requests are served at a time, without streams.
	maxRequests = 64

	// readTimeout, writeTimeout and idleTimeout bound slow browsers. A stream has its own
	// deadlines.
	readTimeout  = 10 * time.Second
	writeTimeout = requestTimeout + 30*time.Second
	idleTimeout  = 60 * time.Second
	// requestTimeout bounds the API server calls of a request.
	requestTimeout = 20 * time.Second
	// maxHeader is room for the session's cookies and a proxy's headers.
	maxHeader = 32 << 10
	// maxBody of a form: a token, escaped.
	maxBody = 64 << 10

	// pulseEvery is how often pages are checked for changes by time alone. pulseRest is
	// how long changes are collected before the next update.
	pulseEvery = time.Second
	pulseRest  = 100 * time.Millisecond
)

// Auth is how users sign in.
type Auth string

// Ways to sign in.
const (
	// AuthToken requires a bearer token of the management cluster.
	AuthToken Auth = "token"
	// AuthNone requires no sign-in. Each client that can connect sees everything, and can
	// approve nothing.
	AuthNone Auth = "none"
)

// ErrExposed is returned for an address that would give other machines access to the
// dashboard without sign-in, or to tokens without TLS.
var ErrExposed = errors.New("the dashboard would be exposed")

// Options of a Server.
type Options struct {
	// BindAddress, such as "127.0.0.1:8090".
	BindAddress string
	Auth        Auth
	// CertFile and KeyFile are PEM files for TLS; they are reloaded when they change. When
	// empty, the server uses plain HTTP, which only loopback addresses allow.
	CertFile, KeyFile string
	// SessionKey encrypts sessions: MinSessionKey bytes or more, the same on all replicas.
	// When empty, the process generates a key of its own.
	SessionKey []byte
	// OIDC is the OpenID Connect provider at which users can sign in; nil for tokens only. It
	// needs AuthToken.
	OIDC *OIDC
	// DryRun shows on every page that the hub promotes nothing, and offers no actions.
	DryRun bool
	// Version and Parts of the hub, for the page About.
	Version string
	Parts   []view.Part
	// Retention of finished Promotions, for what the delivery figures say of those that are missing.
	Retention delivery.Retention

	// Cache of the hub's objects.
	Cache cache.Cache
	// Live returns the observed state of the clusters; it is called only on the leader and on a warm standby.
	Live func() map[view.Cluster]view.Observed
	// Warm is set if this replica connects to the clusters whether or not it leads.
	Warm bool
	// Objects is clusters.Manager.Objects; nil shows only clusters with a connection. It is called
	// on every replica and must not block.
	Objects func() ([]clusters.Object, error)
	// Machines reads the MachineKinds of the management cluster; nil shows no machines.
	Machines client.Reader
	// Leads reports whether this replica is the leader.
	Leads func() bool
	// Lease reads the lease of the leader, from the API server; it is called only on a standby.
	// When nil, a standby does not notice that no replica leads.
	Lease func(context.Context) (Lease, error)
	// Sharing is set for a hub that shares the management cluster with others.
	Sharing *Sharing
	// Client creates TokenReviews and SubjectAccessReviews; it has its own rate limit.
	Client client.Client
	// Config of the management cluster. Only its address and CA are used: approvals are
	// written with the tokens of the users who give them.
	Config *rest.Config
	// Registerer has the metrics while the Server runs; nil registers no metrics.
	Registerer prometheus.Registerer
	Clock      clock.WithTicker
	Logger     logr.Logger
}

// Server serves the dashboard. It is a Runnable of the manager, on every replica.
type Server struct {
	Options
	handler  http.Handler
	metrics  *metrics
	renderer *renderer
	assets   map[string]asset
	source   *source
	board    *board
	sessions *sealer
	// provider at which users can sign in; nil without one. renewing joins the renewals of one
	// session.
	provider *openid.Provider
	renewing singleflight.Group
	reviewer *reviewer
	access   *access
	limiter  *signInLimiter
	streams  *streamSlots
	// slots has one element for each request that is being served.
	slots chan struct{}
	// stopping is closed when streams must end; nil before Start.
	stopping <-chan struct{}
}

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
	_ http.Handler                   = &Server{}
)

// CheckExposure checks whether the dashboard may be served at an address (host:port). An
// address that is not loopback needs sign-in and TLS. The error is an ErrExposed.
func CheckExposure(address string, auth Auth, byTLS bool) error {
	if serving.Loopback(address) {
		return nil
	}
	if auth == AuthNone {
		return fmt.Errorf("%w: %q is not a loopback address, and sign-in is disabled: serve it on 127.0.0.1 or require tokens for sign-in", ErrExposed, address)
	}
	if !byTLS {
		return fmt.Errorf("%w: %q is not a loopback address, and tokens would be sent to it unencrypted: serve it on 127.0.0.1 or over TLS", ErrExposed, address)
	}
	return nil
}

// New returns a Server. The error is ErrExposed for an address that CheckExposure refuses.
func New(o Options) (*Server, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if err := CheckExposure(o.BindAddress, o.Auth, o.CertFile != ""); err != nil {
		return nil, err
	}
	assets, addresses, err := loadAssets()
	if err != nil {
		return nil, fmt.Errorf("loading assets: %w", err)
	}
	m := newMetrics()
	renderer, err := newRenderer(addresses, m.blocksRendered)
	if err != nil {
		return nil, fmt.Errorf("loading templates: %w", err)
	}
	sessions, err := newSealer(o.SessionKey, o.CertFile != "", o.Clock)
	if err != nil {
		return nil, err
	}
	s := &Server{
		Options: o, metrics: m, renderer: renderer, assets: assets, board: newBoard(renderer), sessions: sessions,
		source:   &source{cache: o.Cache, live: o.Live, warm: o.Warm, objects: o.Objects, leads: o.Leads, lease: o.Lease, sharing: o.Sharing, clock: o.Clock, history: newHistory(o.Clock), machines: o.Machines, retention: o.Retention, touched: make(chan struct{}, 1), lockedEvents: map[types.UID]*eventsv1.Event{}},
		reviewer: newReviewer(o.Client, o.Clock), access: newAccess(o.Client, o.Clock, o.DryRun),
		limiter: newSignInLimiter(), streams: newStreamSlots(), slots: make(chan struct{}, maxRequests),
	}
	if o.OIDC != nil {
		s.provider = o.OIDC.provider(o.Clock)
	}
	s.handler = s.routes()
	return s, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a standby shows the
// objects that the leader wrote.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends. It fails when it cannot register its metrics, cannot
// listen, or cannot read the certificate.
func (s *Server) Start(ctx context.Context) error {
	undo, err := collectors.Register(s.Registerer, s.metrics.all()...)
	if err != nil {
		return err
	}
	defer undo()
	if s.provider != nil {
		defer s.provider.Close()
	}
	s.stopping = ctx.Done()
	return serving.Server{
		Name: "dashboard", BindAddress: s.BindAddress, Handler: s, CertFile: s.CertFile, KeyFile: s.KeyFile,
		HTTP2:       true, // The streams of many tabs share a connection.
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxConnections: maxConnections, MaxHeader: maxHeader, Logger: s.Logger.WithValues("auth", s.Auth),
	}.Run(ctx, s.source.watch, s.source.followLease, s.source.followHubs, s.pulse)
}

// pulse updates the topics that have viewers when something changed. Without topics it releases
// what they shared: there may be no viewer for days.
func (s *Server) pulse(ctx context.Context) error {
	ticker := s.Clock.NewTicker(pulseEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-s.source.touched:
		}
		watched := s.board.watched(s.Clock.Now())
		if s.board.empty() {
			s.renderer.stock.clear()
			s.source.release()
		}
		if len(watched) == 0 {
			continue
		}
		facts, err := s.source.facts(ctx)
		if err != nil {
			s.Logger.V(1).Info("the dashboard is not ready", "error", err.Error())
			continue
		}
		for _, t := range watched {
			if err := t.refresh(facts); err != nil {
				s.Logger.Error(err, "updating a page", "page", t.address.canonical)
			}
		}
		rest := s.Clock.NewTimer(pulseRest)
		select {
		case <-ctx.Done():
		case <-rest.C():
		}
		rest.Stop()
	}
}
