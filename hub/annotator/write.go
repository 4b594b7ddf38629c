package annotator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/clusters"
)

const (
	// fieldManager of the patches.
	fieldManager = "capstan-annotator"
	// patchTimeout of one patch: an API server that has not answered by then holds a
	// worker no longer.
	patchTimeout = 10 * time.Second
	// laneShare is how many workers one workload cluster may hold at once.
	laneShare = 2
	// laneRetry is when a node group comes back whose cluster has its share of workers.
	laneRetry = 500 * time.Millisecond
	// A workload cluster that did not answer a patch is left alone for laneRest, and
	// twice as long each time up to laneRestMax.
	laneRest, laneRestMax = 10 * time.Second, 5 * time.Minute
	// notConnectedRetry is when a node group comes back whose cluster is not connected.
	notConnectedRetry = 15 * time.Second
)

// errLater: the cluster cannot be written to now.
type errLater struct{ after time.Duration }

func (e errLater) Error() string { return "not now: later" }

// writer sends the patches. What goes to a workload cluster passes the transport of
// its connection, which lets merge patches of node groups through and nothing else.
type writer struct {
	local    metadata.Interface
	clusters func(context.Context, multicluster.ClusterName) (cluster.Cluster, error)
	lanes    lanes
}

// errUndone: the API server took the patch, and the object is as it was.
var errUndone = errors.New("the API server took the patch and the object is as it was: an admission webhook or policy there takes these annotations away; let it pass them")

// patch the object's metadata. Errors: errLater, errUndone, and the API server's.
func (w *writer) patch(ctx context.Context, name multicluster.ClusterName, u *unstructured.Unstructured, patch []byte) error {
	client, leave, err := w.enter(ctx, name)
	if err != nil {
		return err
	}
	gvk := u.GroupVersionKind()
	resource := gvk.GroupVersion().WithResource(resourceOfAnnotated[gvk.GroupKind()])
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	written, err := client.Resource(resource).Namespace(u.GetNamespace()).
		Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	leave(ctx.Err() != nil)
	if err == nil && written.GetResourceVersion() == u.GetResourceVersion() {
		return errUndone
	}
	return err
}

// enter makes a client for a cluster, and takes a place in its lane. leave gives it back.
func (w *writer) enter(ctx context.Context, name multicluster.ClusterName) (_ metadata.Interface, leave func(silent bool), err error) {
	if name == clusters.LocalName {
		return w.local, func(bool) {}, nil
	}
	connected, err := w.clusters(ctx, name)
	if errors.Is(err, multicluster.ErrClusterNotFound) {
		return nil, nil, errLater{notConnectedRetry}
	} else if err != nil {
		return nil, nil, fmt.Errorf("connection of %s: %w", name, err)
	}
	client, err := metadata.NewForConfigAndClient(connected.GetConfig(), connected.GetHTTPClient())
	if err != nil {
		return nil, nil, fmt.Errorf("client of %s: %w", name, err)
	}
	if wait := w.lanes.enter(name); wait > 0 {
		return nil, nil, errLater{wait}
	}
	return client, func(silent bool) { w.lanes.leave(name, silent) }, nil
}

// lanes give each workload cluster its share of the workers, so that one that hangs
// holds no other up.
type lanes struct {
	clock clock.Clock

	mu          sync.Mutex
	lockedState map[multicluster.ClusterName]*lane
}

type lane struct {
	busy int
	// rest is how long it was last left alone, and until when; zero when it answers.
	rest  time.Duration
	until time.Time
}

// enter returns 0, or when to come back.
func (l *lanes) enter(name multicluster.ClusterName) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lockedState == nil {
		l.lockedState = map[multicluster.ClusterName]*lane{}
	}
	at := l.lockedState[name]
	if at == nil {
		at = &lane{}
		l.lockedState[name] = at
	}
	share := laneShare
	if at.rest > 0 {
		share = 1 // One tries for all.
	}
	if wait := at.until.Sub(l.clock.Now()); wait > 0 {
		return wait
	}
	if at.busy >= share {
		return laneRetry
	}
	at.busy++
	return 0
}

// leave with whether the cluster kept silent.
func (l *lanes) leave(name multicluster.ClusterName, silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.lockedState[name]
	at.busy--
	switch {
	case silent:
		at.rest = min(max(laneRest, 2*at.rest), laneRestMax)
		at.until = l.clock.Now().Add(at.rest)
	case at.busy == 0:
		delete(l.lockedState, name) // Nothing is to be remembered.
	default:
		at.rest, at.until = 0, time.Time{}
	}
}
