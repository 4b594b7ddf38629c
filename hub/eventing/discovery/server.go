package discovery

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/serving"
)

const (
	// maxConnections at a time, idle ones included.
	maxConnections = 256
	// timeout of a call, which does no I/O; and of one that is idle.
	timeout     = 10 * time.Second
	idleTimeout = 60 * time.Second
	// maxHeader is room for a proxy's headers.
	maxHeader = 16 << 10
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
	return serving.Server{
		Name: "discovery", BindAddress: s.BindAddress, Handler: http.MaxBytesHandler(Handler(s.Registry), 0),
		ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: idleTimeout, MaxConnections: maxConnections, MaxHeader: maxHeader,
		Logger: s.Logger,
	}.Run(ctx)
}
