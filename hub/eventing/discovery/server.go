package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

const (
	// maxConnections at a time, idle ones included.
	maxConnections = 256
	// timeout of a call, which does no I/O; and of one that is idle.
	timeout     = 10 * time.Second
	idleTimeout = 60 * time.Second
	// maxHeader is room for a proxy's headers.
	maxHeader = 16 << 10
	// stopGrace is for calls under way when the hub ends.
	stopGrace = 5 * time.Second
)

// Server answers on a port of its own. It is a Runnable of the manager, on every replica.
type Server struct {
	// BindAddress, such as ":8091".
	BindAddress string
	Registry    *schema.Registry
	Logger      logr.Logger
}

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
)

// NeedLeaderElection implements manager.LeaderElectionRunnable: all replicas know the same.
func (*Server) NeedLeaderElection() bool { return false }

// Start answers until the context ends. That it cannot listen is an error.
func (s *Server) Start(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.BindAddress)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	server := &http.Server{
		Handler: http.MaxBytesHandler(Handler(s.Registry), 0), ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, ErrorLog: klog.NewStandardLogger("INFO"),
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	s.Logger.Info("serving discovery", "address", listener.Addr().String())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(netutil.LimitListener(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("discovery: %w", err)
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
