package clusters

import (
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/internal/secretwatch"
)

// shared contains what a Manager, its keepers and its connections have in common. Its
// fields do not change after Start.
type shared struct {
	options   Options
	timings   Timings
	clock     clock.WithTicker
	log       logr.Logger
	hub       client.Client // uncached
	objects   *objects
	secrets   *secretwatch.Watches[multicluster.ClusterName]
	writer    *writer
	metrics   *metrics
	reads     places
	dials     dials
	returns   returns
	listeners []Listener
	aware     multicluster.Aware
	// goroutines of the Manager, its keepers and connections.
	goroutines goroutines
}

// acts reports whether this process writes ClusterConnections and engages clusters: it leads, or needs no lease.
func (s *shared) acts() bool {
	select {
	case <-s.options.Elected:
		return true
	default:
		return s.options.Elected == nil
	}
}
