package approval

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/serving"
	"github.com/capstan-hub/capstan/internal/collectors"
)

const (
	// DefaultRateLimit is how many calls a client may make in rateInterval (weave's).
	DefaultRateLimit = 20
	// rateInterval is weave's default, too.
	rateInterval = 30 * time.Second
	// maxClients whose calls are counted. The other bounds hold against who has more
	// addresses.
	maxClients = 10_000

	// maxConnections at a time: idle ones included, far below what the process may
	// have open.
	maxConnections = 512
	// maxCalls that are worked upon, or wait for an outcome, at a time.
	maxCalls = 64

	// readTimeout and idleTimeout are for a caller that dawdles.
	readTimeout = 10 * time.Second
	idleTimeout = 60 * time.Second
	// maxHeader is room for a proxy's headers.
	maxHeader = 16 << 10

	// callTimeout bounds what a call does besides being read: its questions to the
	// API server, and the wait.
	callTimeout = patience + 10*time.Second
)

// Options of a Server.
type Options struct {
	// BindAddress, such as ":8082".
	BindAddress string
	// CertFile and KeyFile serve by TLS; they are read again when they change. Plain
	// HTTP when empty.
	CertFile, KeyFile string
	// LegacySignatures takes weave's signatures, too.
	LegacySignatures bool
	// Namespace restricts the Pipelines that are called for; all when empty.
	Namespace string
	// RateLimit is how many calls a client may make in 30 s; DefaultRateLimit when 0.
	RateLimit int
	// Client reads from the API server and writes; with a budget of its own.
	Client client.Client
	// Cache is what outcomes are waited for in.
	Cache client.Reader
	// Leads tells whether this replica acts.
	Leads func() bool
	// Wake has this replica look at a Pipeline, where it leads. It does not block.
	Wake func(types.NamespacedName)
	// Registerer of the metrics, while the Server runs; not registered when nil.
	Registerer prometheus.Registerer
	Clock      clock.WithTicker
	Logger     logr.Logger
}

// Server answers the two calls. It is a Runnable of the manager, on every replica.
type Server struct {
	Options
	metrics *metrics
	limiter *serving.Limiter
	// slots are taken by calls that were read, large by large bodies that are read.
	slots, large chan struct{}
	// stopping is closed when the server is to end; nil before Start.
	stopping <-chan struct{}
}

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
	_ http.Handler                   = &Server{}
)

// New makes a Server.
func New(o Options) *Server {
	if o.RateLimit == 0 {
		o.RateLimit = DefaultRateLimit
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Server{
		Options: o,
		metrics: newMetrics(),
		limiter: serving.NewLimiter(o.RateLimit, rateInterval, maxClients),
		slots:   make(chan struct{}, maxCalls),
		large:   make(chan struct{}, maxLarge),
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a load balancer
// sends a call to any replica.
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
		Name: "promotion hook", BindAddress: s.BindAddress, Handler: s, CertFile: s.CertFile, KeyFile: s.KeyFile,
		ReadTimeout: readTimeout, WriteTimeout: readTimeout + callTimeout, IdleTimeout: idleTimeout,
		MaxConnections: maxConnections, MaxHeader: maxHeader, Logger: s.Logger.WithValues("legacySignatures", s.LegacySignatures),
	}.Run(ctx)
}
