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
	// timeout of a call, which does no I/O. idleTimeout is that of an idle connection.
	timeout     = 10 * time.Second
	idleTimeout = 60 * time.Second
	// maxHeader limits the headers of a call, in bytes; it leaves space for those of a proxy.
	maxHeader = 16 << 10
)

// Server serves discovery on its own port. It is a Runnable of the manager, on every
// replica.
type Server struct {
	// BindAddress is the address to listen on, such as ":8091".
	BindAddress string
	Registry    *schema.Registry
	Logger      logr.Logger
}

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
)

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns
// false, because all replicas give the same answers.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends. It returns an error when it cannot listen.
func (s *Server) Start(ctx context.Context) error {
	return serving.Server{
		Name: "discovery", BindAddress: s.BindAddress, Handler: http.MaxBytesHandler(Handler(s.Registry), 0),
		ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: idleTimeout, MaxConnections: maxConnections, MaxHeader: maxHeader,
		Logger: s.Logger,
	}.Run(ctx)
}
