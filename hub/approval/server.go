package approval

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// maxConnections at a time: idle ones included, far below what the process may
	// have open.
	maxConnections = 512
	// maxCalls that are worked upon, or wait for an outcome, at a time.
	maxCalls = 64

	// headerTimeout, readTimeout and idleTimeout are for a caller that dawdles.
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	idleTimeout   = 60 * time.Second
	// maxHeader is room for a proxy's headers.
	maxHeader = 16 << 10

	// callTimeout bounds what a call does besides being read: its questions to the
	// API server, and the wait.
	callTimeout = patience + 10*time.Second
	// stopGrace is for calls under way when the hub ends; their waits are cut short.
	stopGrace = 5 * time.Second
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
	Wake   func(types.NamespacedName)
	Clock  clock.WithTicker
	Logger logr.Logger
}

// Server answers the two calls. It is a Runnable of the manager, on every replica.
type Server struct {
	Options
	limiter *limiter
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
		limiter: newLimiter(o.RateLimit, rateInterval, maxClients),
		slots:   make(chan struct{}, maxCalls),
		large:   make(chan struct{}, maxLarge),
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a load balancer
// sends a call to any replica.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends. That it cannot listen, or cannot read the
// certificate, is an error.
func (s *Server) Start(ctx context.Context) error {
	s.stopping = ctx.Done()
	listener, watcher, err := s.listen()
	if err != nil {
		return fmt.Errorf("promotion hook: %w", err)
	}
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      readTimeout + callTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		// What fails before a handler is called, such as a TLS handshake.
		ErrorLog: klog.NewStandardLogger("INFO"),
		// Calls under way outlive the signal to stop, by stopGrace.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	s.Logger.Info("serving promotion hook", "address", listener.Addr().String(), "tls", watcher != nil, "legacySignatures", s.LegacySignatures)

	group, ctx := errgroup.WithContext(ctx)
	if watcher != nil {
		group.Go(func() error { return watcher.Start(ctx) })
	}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("promotion hook: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		if err := server.Shutdown(grace); err != nil {
			return server.Close()
		}
		return nil
	})
	return group.Wait()
}

// listen opens the address, with what keeps the certificate fresh if there is one.
func (s *Server) listen() (net.Listener, *certwatcher.CertWatcher, error) {
	var watcher *certwatcher.CertWatcher
	if s.CertFile != "" {
		var err error
		if watcher, err = certwatcher.New(s.CertFile, s.KeyFile); err != nil {
			return nil, nil, fmt.Errorf("reading the certificate %s with the key %s: %w", s.CertFile, s.KeyFile, err)
		}
	}
	listener, err := net.Listen("tcp", s.BindAddress)
	if err != nil {
		return nil, nil, err
	}
	listener = netutil.LimitListener(listener, maxConnections)
	if watcher != nil {
		listener = tls.NewListener(listener, &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: watcher.GetCertificate,
			NextProtos:     []string{"http/1.1"}, // Calls are single; HTTP/2 would only add bounds to keep.
		})
	}
	return listener, watcher, nil
}
