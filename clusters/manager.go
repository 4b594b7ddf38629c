package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/secretwatch"
)

// Manager keeps the connections to workload clusters. See the package comment.
type Manager struct {
	*shared
	hubIdle func() // closes the idle connections of the hub client
	watches []*objectWatch
	// standby has the cluster objects that a cold standby reads until it leads, only for Objects. standbyWatches read them.
	standby        *objects
	standbyWatches []*objectWatch
	// decided is closed when, for each kind of cluster objects, the objects were read or
	// the kind is known not to be installed.
	decided chan struct{}

	mu          sync.Mutex
	lockedState managerState
}

type managerState struct {
	keepers map[multicluster.ClusterName]*keeper
	// decided are the scopes of cluster objects that were read, or whose kind is not installed.
	decided []string
}

// New makes a Manager. It calls no API server.
func New(o Options) (*Manager, error) {
	if o.Local == nil {
		return nil, errors.New("clusters: Options.Local is required")
	}
	o = withDefaults(o)
	m := &Manager{
		shared:      &shared{options: o, timings: o.Timings, clock: o.Clock, log: o.Logger, objects: newObjects(o.scoping()), reads: newReads(), dials: newDials(o.Dials)},
		standby:     newObjects(o.scoping()),
		decided:     make(chan struct{}),
		lockedState: managerState{keepers: map[multicluster.ClusterName]*keeper{}},
	}
	m.metrics = newMetrics(m.Snapshots)
	if err := m.makeHubClients(); err != nil {
		return nil, fmt.Errorf("clients of the management cluster: %w", err)
	}
	local := newKeeper(m.shared, LocalName, Ref{}, m.forget)
	connection, err := m.newLocalConnection(context.Background(), local.checkServer) //nolint:forbidigo // ended by its keeper, with the Manager
	if err != nil {
		return nil, err
	}
	local.creds.usable = true
	s := &local.lockedState
	s.connection, s.snapshot.Epoch, s.snapshot.Server = connection, connection.epoch, connection.server.String()
	s.snapshot.State, s.snapshot.Reason = dialling.State, dialling.Reason
	m.lockedState.keepers[LocalName] = local
	return m, nil
}

func withDefaults(o Options) Options {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Logger.GetSink() == nil {
		o.Logger = logr.Discard()
	}
	if o.WorkloadScheme == nil {
		o.WorkloadScheme = clientscheme.Scheme
	}
	if o.WorkloadMapper == nil {
		o.WorkloadMapper = StaticMapper(o.WorkloadScheme, coreClusterScoped...)
	}
	o.Timings = o.Timings.orDefaults()
	o.SecretNamespaces = slices.Compact(slices.Sorted(slices.Values(o.SecretNamespaces)))
	return o
}

func (m *Manager) makeHubClients() error {
	config := rest.CopyConfig(m.options.Local)
	// Every call of the Manager has a bounded number of callers (those that may read a
	// Secret for the first time or dial, writes of one round). A client-side limit would only delay a cold start.
	config.QPS, config.RateLimiter = -1, nil
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	m.hubIdle = httpClient.CloseIdleConnections
	// Discovery has no context to end it, so its client has a timeout.
	bounded := &http.Client{Transport: httpClient.Transport, Timeout: m.timings.HubTimeout}
	mapping := func(kind schema.GroupKind) (*meta.RESTMapping, error) {
		// A mapper never removes a version: an old one could return one that is not
		// served any more.
		mapper, err := apiutil.NewDynamicRESTMapper(config, bounded)
		if err != nil {
			return nil, err
		}
		return mapper.RESTMapping(kind)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), capstanv1.AddToScheme(scheme)); err != nil {
		return err
	}
	// Capstan's own kinds have a static mapping; discovery is only for other kinds.
	m.hub, err = client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: StaticMapper(scheme)})
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return err
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return err
	}
	m.secrets = secretwatch.New(secretwatch.Options[multicluster.ClusterName]{
		Client: metadataClient, Scope: secretwatch.ByNamespace, Wake: m.wakeCluster, WakeWhenListed: true, Logger: m.log,
		Consequence: "the hub notices a changed kubeconfig only when the cluster rejects the old one; give the hub list and watch on secrets in this namespace",
	})
	m.writer = newWriter(m.hub, m.options, m.log)
	if m.options.LocalOnly {
		return nil
	}
	for _, at := range m.scopesToRead() {
		watch := objectWatch{
			kind: clusterKinds[at.Kind], scope: m.objects.scopeOf(at.Kind, at.Namespace), namespace: at.Namespace, alone: !m.objects.divided(at.Kind), mapping: mapping, metadata: metadataClient, dynamic: dynamicClient,
			retry: m.timings.KindRetry, clock: m.clock, log: m.log, objects: m.objects,
			changed: m.objectsChanged, decided: m.kindDecided,
		}
		m.watches = append(m.watches, &watch)
		if !m.readsAtOnce() {
			standby := watch
			standby.objects, standby.changed, standby.decided = m.standby, func([]Ref) {}, func(string, []Ref) {}
			m.standbyWatches = append(m.standbyWatches, &standby)
		}
	}
	return nil
}

// scopesToRead returns the kinds of cluster objects, and the namespace in which each is read.
func (m *Manager) scopesToRead() []Ref {
	var all []Ref
	for _, kind := range pipelinesv1.ClusterKinds() {
		for _, namespace := range m.objects.in(kind.Kind) {
			all = append(all, Ref{Kind: kind.Kind, Namespace: namespace})
		}
	}
	return all
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: one hub at a time connects
// to workload clusters. A Manager with Options.Elected runs on every replica and waits for
// the election itself.
func (m *Manager) NeedLeaderElection() bool { return m.options.Elected == nil }

// AddListener adds a Listener. It must be called before Start.
func (m *Manager) AddListener(l Listener) { m.listeners = append(m.listeners, l) }

// SetAware makes the Manager engage each self-managed cluster once per epoch, when it is first
// Ready or Degraded. It must be called before Start.
func (m *Manager) SetAware(a multicluster.Aware) { m.aware = a }

// Start runs until ctx and all goroutines have ended. A Manager starts only once.
func (m *Manager) Start(ctx context.Context) error {
	undo, err := m.metrics.register(m.options.Registerer)
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	defer undo()
	m.goroutines.start(ctx)
	m.secrets.Start(ctx)
	for _, k := range m.keepers() {
		m.ensureRunning(k)
	}
	acts := m.acts() // It may lead before it starts.
	if acts || m.readsAtOnce() {
		m.read()
	}
	if acts {
		m.lead()
	} else {
		m.goroutines.spawn(func(ctx context.Context) {
			m.standBy(ctx)
			if ctx.Err() != nil {
				return
			}
			if !m.readsAtOnce() {
				m.read()
			}
			m.lead()
		})
	}
	<-ctx.Done()
	m.goroutines.stop()
	m.secrets.Wait()
	m.hubIdle()
	return nil
}

// readsAtOnce returns whether clusters can be connected to from the start: on a cold standby they cannot.
func (m *Manager) readsAtOnce() bool { return m.options.Elected == nil || m.options.WarmStandby }

// standBy waits until this process leads or ctx ends. On a cold standby it reads the cluster objects
// meanwhile, for Objects only. It ends these watches before it returns: no kind is watched twice.
func (m *Manager) standBy(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	for _, w := range m.standbyWatches {
		reading.Go(func() { w.run(ctx) })
	}
	select {
	case <-m.options.Elected:
	case <-ctx.Done():
	}
	cancel()
	reading.Wait()
}

// read starts the reading of the cluster objects, so that clusters can be connected to.
func (m *Manager) read() {
	for _, w := range m.watches {
		m.goroutines.spawn(w.run)
	}
}

// lead starts the work of the leader: it writes ClusterConnections, and engages clusters.
func (m *Manager) lead() {
	if !m.options.LocalOnly {
		m.goroutines.spawn(func(ctx context.Context) { m.adopt(ctx, func() { m.goroutines.spawn(m.writer.run) }) })
	}
	for _, k := range m.keepers() {
		m.wake(k)
	}
}

// Demand adds an owner to the cluster. It returns at once and never dials. A malformed
// name is never connected.
func (m *Manager) Demand(name multicluster.ClusterName, owner string) {
	if k, first := m.addOwner(name, owner); first {
		m.wake(k)
	}
}

// addOwner adds an owner to a keeper. It holds the mutex, so that the keeper is not dropped
// meanwhile. first is true for the first owner.
func (m *Manager) addOwner(name multicluster.ClusterName, owner string) (k *keeper, first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k = m.keeperLocked(name)
	return k, k != nil && k.addOwner(owner)
}

// Release removes an owner. The connection stays for Timings.Linger.
func (m *Manager) Release(name multicluster.ClusterName, owner string) {
	if k := m.keeper(name); k != nil && k.removeOwner(owner) {
		m.wake(k)
	}
}

// keeperLocked finds or makes a keeper. It returns nil for a malformed name.
func (m *Manager) keeperLocked(name multicluster.ClusterName) *keeper {
	if k := m.lockedState.keepers[name]; k != nil {
		return k
	}
	ref, err := ParseClusterName(name)
	if err != nil {
		return nil
	}
	k := newKeeper(m.shared, name, ref, m.forget)
	m.lockedState.keepers[name] = k
	return k
}

func (m *Manager) keeper(name multicluster.ClusterName) *keeper {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lockedState.keepers[name]
}

// keepers returns all keepers.
func (m *Manager) keepers() []*keeper {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.lockedState.keepers))
}

// forget removes a keeper that is not demanded, and its ClusterConnection.
func (m *Manager) forget(k *keeper) {
	if m.drop(k) {
		m.writer.remove(k.name, k.ref)
	}
}

// drop removes a keeper from the map, unless its cluster is demanded.
func (m *Manager) drop(k *keeper) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !k.retire() {
		return false
	}
	delete(m.lockedState.keepers, k.name)
	return true
}

// wake makes a keeper reconcile, and starts its goroutine if it does not run.
func (m *Manager) wake(k *keeper) {
	k.trigger()
	m.ensureRunning(k)
}

// wakeCluster wakes the keeper of a cluster, if there is one.
func (m *Manager) wakeCluster(name multicluster.ClusterName) {
	if k := m.keeper(name); k != nil {
		m.wake(k)
	}
}

// ensureRunning starts a keeper's goroutine if it has none and the Manager runs.
func (m *Manager) ensureRunning(k *keeper) {
	if !k.start() {
		return
	}
	if !m.goroutines.spawn(k.run) {
		k.finish()
	}
}

// Resolve returns the name of the cluster that a reference leads to: the referenced object
// or, for a GitopsCluster with capiClusterRef, the Cluster. It does no I/O. Errors are of
// the classes ErrNotFound, ErrNotReady, ErrInvalid and ErrNotSynced, and the message names
// the object. Resolve does not check whether the cluster is reachable; see Snapshot.
func (m *Manager) Resolve(ref Ref) (multicluster.ClusterName, error) {
	target, err := m.objects.resolve(ref)
	if err != nil {
		return "", err
	}
	return target.ClusterName(), nil
}

// Select returns the cluster objects of a kind, in a namespace or (pipelinesv1.AllNamespaces) in all, whose labels
// match, in the order of their namespaces and names. It returns ErrNotSynced until the objects of the kind were read;
// later it goes on with what was read last.
func (m *Manager) Select(kind, namespace string, selector labels.Selector) ([]Ref, error) {
	return m.objects.selected(kind, namespace, selector)
}

// Labels returns the labels of a cluster object, which must not be changed. The error is ErrNotFound, ErrInvalid or, until the
// objects of the kind were read, ErrNotSynced.
func (m *Manager) Labels(ref Ref) (labels.Set, error) { return m.objects.labels(ref) }

// SelfManaged reports whether a cluster holds its own CAPI objects: it has
// SelfManagedLabel, or is the management cluster. A change is notified by
// Listener.ReferenceChanged. It does no I/O.
func (m *Manager) SelfManaged(name multicluster.ClusterName) bool {
	if name == LocalName {
		return true
	}
	ref, err := ParseClusterName(name)
	if err != nil {
		return false
	}
	object, found := m.objects.find(ref)
	return found == presencePresent && object.SelfManaged && !object.Deleting
}

// Snapshot returns the Snapshot of a cluster. It returns false when the cluster was never
// demanded or its keeper was removed.
func (m *Manager) Snapshot(name multicluster.ClusterName) (Snapshot, bool) {
	k := m.keeper(name)
	if k == nil {
		return Snapshot{}, false
	}
	return k.snapshot(), true
}

// Snapshots returns the Snapshots of all clusters, sorted by name. The management cluster
// is the first.
func (m *Manager) Snapshots() []Snapshot {
	keepers := m.keepers()
	all := make([]Snapshot, 0, len(keepers))
	for _, k := range keepers {
		all = append(all, k.snapshot())
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Connection returns the connection of a cluster in any state. Requests wait while it is
// not Ready or Degraded. The error is of class ErrNotConnected until a kubeconfig was read
// and accepted.
func (m *Manager) Connection(name multicluster.ClusterName) (*Connection, error) {
	k := m.keeper(name)
	if k == nil {
		return nil, failure(ErrNotConnected, "cluster %q is not demanded", name)
	}
	if c := k.connection(); c != nil {
		return c, nil
	}
	s := k.snapshot()
	return nil, failure(ErrNotConnected, "cluster %q is %s: %s: %s", name, s.State, s.Reason, s.Message)
}

// ReportKinds sets the watched kinds of a cluster and its number of applications. They are
// part of its ClusterConnection and its state. A kind that is not synced makes the cluster
// Degraded, unless its reason is ReasonSyncing.
func (m *Manager) ReportKinds(name multicluster.ClusterName, kinds []capstanv1.WatchedKind, apps int) {
	k := m.keeper(name)
	if k == nil {
		return
	}
	k.report(kinds, apps)
	k.publish()
	m.wake(k)
}
