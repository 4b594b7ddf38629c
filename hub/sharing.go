package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/capstan-hub/capstan/hub/claim"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/internal/hubname"
)

// Reasons of Events about the Lease of a hub that shares the management cluster.
const (
	reasonNamespaceConflict = "NamespaceConflict"
	reasonNamespacesUnknown = "NamespacesUnknown"
	reasonNamespacesClaimed = "NamespacesClaimed"
)

// errNameless is returned by New.
var errNameless = errors.New("a hub of several namespaces with leader election needs a name of its own: set --hub-name, or chart: hubs")

// SharesCluster returns whether the hub shares the management cluster with others: it serves some namespaces, has a
// name, and one of its replicas leads. Such a hub has a Lease by its name, and claims its namespaces (package claim). A hub
// of one namespace without a name has its Lease in that namespace.
func (o *Options) SharesCluster() bool {
	return o.LeaderElect && len(o.Namespaces) > 0 && cmp.Or(o.Eventing.Name, DefaultName) != DefaultName
}

// hubName returns the name that distinguishes the hub from others of the management cluster.
func (o *Options) hubName() string {
	if !o.SharesCluster() {
		return DefaultName
	}
	return o.Eventing.Name
}

// leaseName returns the name of the hub's Lease.
func (o *Options) leaseName() string { return hubname.Of(LeaseName, o.hubName()) }

// sharing is the part of a hub that shares the management cluster with others.
type sharing struct {
	options  Options
	log      logr.Logger
	lock     *resourcelock.LeaseLock
	conflict prometheus.Gauge
	// recorder is set before the lock is used.
	recorder recorder.EventRecorder

	// mu guards lockedProblem.
	mu            sync.Mutex
	lockedProblem error
}

// newSharing returns nil if the hub does not share the management cluster.
func newSharing(o Options) (*sharing, error) {
	if !o.SharesCluster() {
		return nil, nil
	}
	s := &sharing{
		options: o, log: o.Logger.WithName("namespaces"),
		conflict: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "capstan_hub_namespace_conflict",
			Help: "Whether this replica would lead, but another hub serves one of its namespaces: 1 until the namespace is in --namespace of one hub only. Only a hub that shares the management cluster with others has it.",
		}),
	}
	if err := o.Registerer.Register(s.conflict); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return s, nil
}

// claiming returns the lock of leader election around leading, which is around the lock of the Lease.
func (s *sharing) claiming(lock *resourcelock.LeaseLock, leading *leaderLock) resourcelock.Interface {
	s.lock = lock
	return claim.New(lock, leading, claim.Options{
		Hub: s.options.hubName(), AllLease: LeaseName, Lease: s.options.LeaderElectionLease, Namespaces: s.options.Namespaces,
		DashboardURL: s.options.Dashboard.URL, Report: s.report, Clock: s.options.Clock,
		Lost: func(c *claim.Conflict) {
			leading.end(fmt.Errorf("hub %s does not lead any more: %w", s.options.hubName(), c))
		},
	})
}

// report says that another hub serves a namespace of this one, that this hub may not read whether one does, or that this is
// over.
func (s *sharing) report(why error) {
	s.mu.Lock()
	s.lockedProblem = why
	s.mu.Unlock()
	lease := &coordinationv1.Lease{ObjectMeta: s.lock.LeaseMeta}
	lease.APIVersion, lease.Kind = coordinationv1.SchemeGroupVersion.String(), "Lease"
	if why == nil {
		s.conflict.Set(0)
		s.log.Info("No other hub serves the namespaces of this hub any more", "hub", s.options.hubName())
		s.recorder.Eventf(lease, nil, corev1.EventTypeNormal, reasonNamespacesClaimed, "Elect", "hub %s: no other hub serves its namespaces any more", s.options.hubName())
		return
	}
	reason, conflicts := reasonNamespacesUnknown, 0.0 // It is not known.
	var conflict *claim.Conflict
	if errors.As(why, &conflict) {
		reason, conflicts = reasonNamespaceConflict, 1
	}
	s.conflict.Set(conflicts)
	s.log.Error(why, "This hub does not act", "hub", s.options.hubName())
	s.recorder.Eventf(lease, nil, corev1.EventTypeWarning, reason, "Elect", "hub %s: %s", s.options.hubName(), why.Error())
}

// problem returns why the replica does not lead though no other one of its hub does; "" if there is no such reason.
func (s *sharing) problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockedProblem == nil {
		return ""
	}
	return s.lockedProblem.Error()
}

// shown is what the dashboard shows of it; nil for a hub that does not share the management cluster.
func (s *sharing) shown() *dashboard.Sharing {
	if s == nil {
		return nil
	}
	return &dashboard.Sharing{Name: s.options.hubName(), Conflict: s.problem, Others: s.others}
}

// others returns the other hubs of the management cluster that claim namespaces.
func (s *sharing) others(ctx context.Context) ([]view.Hub, error) {
	all, err := claim.Hubs(ctx, s.lock.Client.Leases(s.lock.LeaseMeta.Namespace))
	if err != nil {
		return nil, err
	}
	var others []view.Hub
	for _, h := range all {
		if h.Name != s.options.hubName() {
			others = append(others, view.Hub{Name: h.Name, Dashboard: h.Dashboard})
		}
	}
	return others, nil
}
