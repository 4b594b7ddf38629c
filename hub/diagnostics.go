package hub

import (
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capstan-hub/capstan/hub/diagnostics"
)

// Diagnostics is the part of the Options that says how profiles, the log level and the state of
// connections, informers and queues are served.
type Diagnostics struct {
	// BindAddress, which must be loopback, such as "127.0.0.1:6060"; "0" or empty for none.
	BindAddress string
	// Level of the log; nil if it cannot be changed.
	Level diagnostics.Level
	// Version of the hub.
	Version string
}

// addDiagnostics serves diagnostics, on every replica.
func addDiagnostics(mgr manager.Manager, s *stack, o Options) error {
	if o.Diagnostics.BindAddress == "" || o.Diagnostics.BindAddress == "0" {
		return nil
	}
	server, err := diagnostics.New(diagnostics.Options{
		BindAddress: o.Diagnostics.BindAddress,
		Version:     o.Diagnostics.Version,
		Level:       o.Diagnostics.Level,
		Leads:       func() bool { return closed(mgr.Elected()) },
		Connections: s.connections.Snapshots,
		Informers:   s.watchers.Informers,
		Metrics:     metrics.Registry, // It has the queues, whatever Options.Registerer is.
		Clock:       o.Clock,
		Logger:      o.Logger.WithName("diagnostics"),
	})
	if err != nil {
		return err
	}
	return mgr.Add(server)
}
