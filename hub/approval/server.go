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
	// maxClients is how many clients the limiter counts. The other bounds protect against a
	// client with more addresses.
	maxClients = 10_000

	// maxConnections at a time, including idle ones: far below the process's limit of open
	// files.
	maxConnections = 512
	// maxCalls that are processed, or wait for a result, at a time.
	maxCalls = 64

	// readTimeout and idleTimeout bound slow clients.
	readTimeout = 10 * time.Second
	idleTimeout = 60 * time.Second
	// maxHeader includes the headers that a proxy adds, in bytes.
	maxHeader = 16 << 10

	// callTimeout bounds a call after its body was read: the requests to the API server, and
	// the wait.
	callTimeout = patience + 10*time.Second
)

// Options of a Server.
type Options struct {
	// BindAddress, such as ":8082".
	BindAddress string
	// CertFile and KeyFile enable TLS; they are read again when they change. Plain HTTP when
	// empty.
	CertFile, KeyFile string
	// LegacySignatures also accepts weave's signatures.
	LegacySignatures bool
	// Namespaces restrict calls to their Pipelines; all when there are none.
	Namespaces []string
	// RateLimit is how many calls a client may make in 30 s; DefaultRateLimit when 0.
	RateLimit int
	// Client reads from and writes to the API server, with its own rate limit.
	Client client.Client
	// Cache is read while a call waits for its result.
	Cache client.Reader
	// Leads returns whether this replica is the leader.
	Leads func() bool
	// Wake triggers a reconcile of a Pipeline on this replica if it leads. It does not block.
	Wake func(types.NamespacedName)
	// Registerer has the metrics while the Server runs; they are not registered when nil.
	Registerer prometheus.Registerer
	Clock      clock.WithTicker
	Logger     logr.Logger
}

// Server answers the two calls. It is a Runnable of the manager, on every replica.
type Server struct {
	Options
	metrics *metrics
	limiter *serving.Limiter
	// slots are for calls whose body was read; large is for large bodies being read.
	slots, large chan struct{}
	// stopping is closed when the server must end; nil before Start.
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

// Start serves until the context ends. It returns an error if it cannot register its metrics,
// listen, or read the certificate.
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
