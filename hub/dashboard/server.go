package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/hub/serving"
	"github.com/capstan-hub/capstan/internal/collectors"
)

const (
	// maxConnections at a time, streams and idle ones included.
	maxConnections = 512
	// maxRequests that are worked upon at a time, streams excepted.
	maxRequests = 64

	// readTimeout, writeTimeout and idleTimeout are for a browser that dawdles. A stream
	// has deadlines of its own.
	readTimeout  = 10 * time.Second
	writeTimeout = requestTimeout + 30*time.Second
	idleTimeout  = 60 * time.Second
	// requestTimeout bounds what a request asks the API server.
	requestTimeout = 20 * time.Second
	// maxHeader is room for the session's cookies and a proxy's headers.
	maxHeader = 32 << 10
	// maxBody of a form: a token, escaped.
	maxBody = 64 << 10

	// pulseEvery is how often it is looked whether time alone changed something, and
	// pulseRest how long many changes are gathered for.
	pulseEvery = time.Second
	pulseRest  = 100 * time.Millisecond
)

// Auth is how one signs in.
type Auth string

// Ways to sign in.
const (
	// AuthToken: with a bearer token of the management cluster.
	AuthToken Auth = "token"
	// AuthNone: not at all. Whoever can connect sees everything, and approves nothing.
	AuthNone Auth = "none"
)

// ErrExposed is returned for an address that would show the dashboard, or a token, to
// whom it is not meant for.
var ErrExposed = errors.New("the dashboard would be exposed")

// Options of a Server.
type Options struct {
	// BindAddress, such as "127.0.0.1:8090".
	BindAddress string
	Auth        Auth
	// CertFile and KeyFile serve by TLS; they are read again when they change. Plain
	// HTTP when empty, which is for loopback addresses.
	CertFile, KeyFile string
	// SessionKey seals sessions, MinSessionKey bytes or more; the same on all replicas.
	// When empty, one that this process alone has.
	SessionKey []byte
	// Version of the hub, and its Parts, for the page about it.
	Version string
	Parts   []view.Part

	// Cache of the hub's objects.
	Cache cache.Cache
	// Live tells what this replica hears of clusters, where it leads.
	Live func() map[view.Cluster]view.Heard
	// Machines reads the MachineKinds of the management cluster; nil to show none.
	Machines client.Reader
	// Leads tells whether it does.
	Leads func() bool
	// Client asks for reviews of tokens and of access; with a budget of its own.
	Client client.Client
	// Config of the management cluster. Of it, only where that is and by what it is
	// known are used: approvals are written with their givers' own tokens.
	Config *rest.Config
	// Registerer of the metrics, while the Server runs; not registered when nil.
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
	warmer   *warmer
	sessions *sealer
	reviewer *reviewer
	access   *access
	limiter  *signInLimiter
	streams  *streamSlots
	// slots are taken by requests under way.
	slots chan struct{}
	// stopping is closed when streams are to end; nil before Start.
	stopping <-chan struct{}
}

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
	_ http.Handler                   = &Server{}
)

// CheckExposure tells whether an address may be served: without signing in only to
// this machine, and without TLS, which tokens must not travel without, too.
func CheckExposure(address string, auth Auth, byTLS bool) error {
	if loopback(address) {
		return nil
	}
	if auth == AuthNone {
		return fmt.Errorf("%w: %q is not a loopback address, and nobody has to sign in: serve it on 127.0.0.1, or have people sign in with a token", ErrExposed, address)
	}
	if !byTLS {
		return fmt.Errorf("%w: %q is not a loopback address, and tokens would travel to it in the clear: serve it on 127.0.0.1, or by TLS", ErrExposed, address)
	}
	return nil
}

// loopback is whether nothing but this machine can connect to host:port.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && loopbackHost(host)
}

func loopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// New makes a Server; ErrExposed for an address that must not be served so.
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
		source:   &source{cache: o.Cache, live: o.Live, leads: o.Leads, clock: o.Clock, machines: o.Machines, touched: make(chan struct{}, 1), lockedEvents: map[types.UID]*eventsv1.Event{}},
		reviewer: newReviewer(o.Client, o.Clock), access: newAccess(o.Client, o.Clock),
		limiter: newSignInLimiter(), streams: newStreamSlots(), slots: make(chan struct{}, maxRequests),
	}
	s.warmer = newWarmer(&s.Options, renderer)
	s.handler = s.routes()
	return s, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a standby shows what
// the leader wrote.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends. It fails when it cannot register its metrics, cannot
// listen, or cannot read the certificate.
func (s *Server) Start(ctx context.Context) error {
	undo, err := collectors.Register(s.Registerer, s.metrics.all()...)
	if err != nil {
		return err
	}
	defer undo()
	s.stopping = ctx.Done()
	return serving.Server{
		Name: "dashboard", BindAddress: s.BindAddress, Handler: s, CertFile: s.CertFile, KeyFile: s.KeyFile,
		HTTP2:       true, // The streams of many tabs share a connection.
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxConnections: maxConnections, MaxHeader: maxHeader, Logger: s.Logger.WithValues("auth", s.Auth),
	}.Run(ctx, s.source.watch, s.pulse)
}

// pulse brings what is looked at up to date whenever something changed, and now and
// then what nobody looks at.
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
		watched, warm := s.board.watched(s.Clock.Now()), s.warmer.due(s.Clock.Now())
		if len(watched) == 0 && !warm {
			continue
		}
		facts, err := s.source.facts(ctx)
		if err != nil {
			s.Logger.V(1).Info("not ready to show anything", "error", err.Error())
			continue
		}
		for _, t := range watched {
			if err := t.refresh(facts); err != nil {
				s.Logger.Error(err, "bringing a page up to date", "page", t.address.canonical)
			}
		}
		if warm {
			if err := s.warmer.warm(facts); err != nil {
				s.Logger.Error(err, "rendering ahead")
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
