package admission

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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

const (
	// maxConnections at a time: API servers keep a few each.
	maxConnections = 256
	// timeout of a call, which does no I/O; and of one that is idle.
	timeout     = 10 * time.Second
	idleTimeout = 90 * time.Second
	// maxHeader and maxBody of a call: an object is 1.5 MiB at most, and comes twice.
	maxHeader = 16 << 10
	maxBody   = 4 << 20
	// stopGrace is for calls under way when the hub ends.
	stopGrace = 5 * time.Second
)

// Options of a Server.
type Options struct {
	// BindAddress, such as ":9443".
	BindAddress string
	// Keeper of the certificate; nil where CertFile and KeyFile, which somebody else
	// keeps fresh, are served.
	Keeper            *Keeper
	CertFile, KeyFile string
	// Scheme has EventingBackends.
	Scheme     *runtime.Scheme
	Registry   *schema.Registry
	Validation Validation
	Defaulting Defaulting
	Logger     logr.Logger
}

// Server of the webhooks. It is a Runnable of the manager, on every replica.
type Server struct{ Options }

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
)

// NewServer makes a Server.
func NewServer(o Options) *Server { return &Server{o} }

// NeedLeaderElection implements manager.LeaderElectionRunnable: a Service sends a call to
// any replica.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends. That it cannot listen, or cannot read the
// certificate's files, is an error.
func (s *Server) Start(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.BindAddress)
	if err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	defer listener.Close()
	group, ctx := errgroup.WithContext(ctx)
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}} // HTTP/2 would only add bounds to keep.
	if s.Keeper != nil {
		config.GetCertificate = s.Keeper.GetCertificate
		group.Go(func() error { return s.Keeper.Start(ctx) })
	} else {
		watcher, err := certwatcher.New(s.CertFile, s.KeyFile)
		if err != nil {
			return fmt.Errorf("webhooks: reading the certificate %s with the key %s: %w", s.CertFile, s.KeyFile, err)
		}
		config.GetCertificate = watcher.GetCertificate
		group.Go(func() error { return watcher.Start(ctx) })
	}
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: klog.NewStandardLogger("INFO"),
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	s.Logger.Info("serving webhooks", "address", listener.Addr().String(), "validation", s.Validation, "defaulting", s.Defaulting)
	group.Go(func() error {
		err := server.Serve(tls.NewListener(netutil.LimitListener(listener, maxConnections), config))
		if !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("webhooks: %w", err)
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

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, handler := range handlers(s.Scheme, s.Registry, s.Validation, s.Defaulting) {
		mux.Handle("POST "+path, http.MaxBytesHandler(handler, maxBody))
	}
	return mux
}
