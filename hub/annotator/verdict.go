package annotator

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/internal/capa"
)

const (
	// syncRetry is the wait of a node group that needs a kind which is being listed. An object
	// of that kind that appears triggers an earlier reconciliation.
	syncRetry = 500 * time.Millisecond
	// fixRetry is the wait of a node group with a problem that a person must fix and of which
	// no watch may inform.
	fixRetry = time.Minute
	// catalogueRetry is the minimum wait after a failure of EC2.
	catalogueRetry = time.Second
	// pendingRetry is the wait of a node group without an answer of EC2. The answer, or its
	// failure, triggers earlier: it takes at most catalogue.Timings.Call for each page.
	pendingRetry = time.Minute
	// throttlePatience is how many temporary failures in a row are not reported.
	throttlePatience = 2
)

// verdict is the decision on a node group.
type verdict struct {
	// node is the node that the annotations describe; nil when it is not known.
	node    *annotation.Node
	notices []notice
	// types of its instances, and the architecture of all of them; empty when not known.
	types        []string
	architecture string
	// retry is the wait until the next reconciliation without a trigger; 0 for none.
	retry time.Duration
	// pending: an input is not known yet. Existing notices stay.
	pending bool
}

func refused(retry time.Duration, n ...notice) verdict { return verdict{notices: n, retry: retry} }

// origin is the input of a node group's annotations, without the facts of EC2.
type origin struct {
	// cluster of the group; nil when there is none.
	cluster *unstructured.Unstructured
	// leave is why the group is not annotated; empty when it is.
	leave string
	made  machines
	where capa.Place
}

// originOf reads the objects that a node group references. Errors: those of resolveMachines,
// ErrRegionUnknown, and the reader's.
func originOf(ctx context.Context, c client.Reader, group *unstructured.Unstructured, defaultRegion string) (origin, error) {
	cluster, err := clusterOf(ctx, c, group)
	if err != nil {
		return origin{}, err
	}
	from := origin{cluster: cluster}
	switch {
	case capa.Paused(group):
		from.leave = "it is paused by the annotation " + clusterv1.PausedAnnotation
	case capa.ClusterPaused(cluster):
		from.leave = "its Cluster is paused"
	case cluster != nil && cluster.GetDeletionTimestamp() != nil:
		from.leave = "its Cluster is being deleted"
	}
	if from.leave != "" {
		return from, nil
	}
	if from.made, err = resolveMachines(ctx, c, group); err != nil {
		return from, err
	}
	from.where, err = placeOf(ctx, c, group, cluster)
	if errors.Is(err, ErrRegionUnknown) && defaultRegion != "" {
		from.where.Region, err = defaultRegion, nil
	}
	return from, err
}

// decide computes a future node of the group. It reads the watchers' stores and the catalogue,
// and does not wait.
func (r *Reconciler) decide(ctx context.Context, l *reading, group *unstructured.Unstructured) verdict {
	from, err := originOf(ctx, l, group, r.DefaultRegion)
	switch {
	case err != nil:
		return unread(err)
	case from.leave != "":
		return verdict{}
	}
	made, where := from.made, from.where
	pods, notices := r.podsOf(from.cluster)
	// The owners of a self-managed cluster write its objects. They must not choose the roles
	// that the hub assumes.
	var role awsconfig.Role
	if l.who.ClusterName == clusters.LocalName {
		if role, err = roleOf(ctx, l, where); err != nil {
			return unread(err)
		}
	}
	l.region(where.Region)
	all := make([]capacity.Capacity, 0, len(made.types))
	for _, t := range made.types {
		answer, err := r.ask(ctx, catalogue.Query{Region: where.Region, InstanceType: t, Role: role})
		if err != nil {
			return unanswered(err)
		}
		all = append(all, answer.Capacity)
	}
	arch, mixed := architecture(all)
	node := least(all, pods, made.limited)
	node.DiskGiB = made.diskGiB
	node.Labels = labelsOf(group, made, where.Region, arch)
	return verdict{node: &node, notices: append(notices, mixed...), types: made.types, architecture: arch}
}

// ask queries the catalogue without waiting. It uses the cluster's role, or the hub's own
// identity if the hub may not assume that role. The capacity of a type is the same for every
// account.
func (r *Reconciler) ask(ctx context.Context, q catalogue.Query) (catalogue.Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	answer, err := r.Catalogue.Get(ctx, q)
	if q.Role != (awsconfig.Role{}) && (errors.Is(err, catalogue.ErrAccessDenied) || errors.Is(err, catalogue.ErrCredentials)) {
		q.Role = awsconfig.Role{}
		return r.Catalogue.Get(ctx, q)
	}
	return answer, err
}

// podsOf returns how pods are counted in a cluster.
func (r *Reconciler) podsOf(cluster *unstructured.Unstructured) (capacity.PodsPolicy, []notice) {
	if cluster == nil {
		return r.Pods, nil
	}
	chosen, set := cluster.GetAnnotations()[MaxPodsAnnotation]
	if !set {
		return r.Pods, nil
	}
	pods, err := capacity.ParsePodsPolicy(chosen)
	if err != nil {
		return r.Pods, []notice{warn(ReasonFailedUpdate, WordInvalidMaxPods, "annotation %s of Cluster %s: %v; --max-pods is used instead", MaxPodsAnnotation, cluster.GetName(), err)}
	}
	return pods, nil
}

// unread is the verdict when an input cannot be read or is not valid.
func unread(err error) verdict {
	switch {
	case errors.Is(err, errForeign):
		return verdict{}
	case errors.Is(err, ErrInvalidReference):
		return refused(0, warn(ReasonFailedUpdate, WordInvalidReference, "%v", err))
	case errors.Is(err, ErrNoInstanceType):
		return refused(0, warn(ReasonFailedUpdate, WordNoInstanceType, "%v", err))
	case errors.Is(err, ErrRegionUnknown):
		return refused(0, warn(ReasonFailedUpdate, WordRegionUnknown, "%v; set the annotation %s on it or on its Cluster", err, RegionAnnotation))
	case apierrors.IsNotFound(err):
		return refused(fixRetry, warn(ReasonFailedUpdate, WordTemplateNotFound, "%v", err))
	case syncing(err):
		return verdict{retry: syncRetry, pending: true}
	case capa.Absent(err):
		return refused(fixRetry, warn(ReasonFailedUpdate, WordTemplateNotFound, "%v", err))
	}
	return refused(fixRetry, warn(ReasonReconcileError, WordUnreadable, "%v", err))
}

// answers maps each class of the catalogue's errors to a notice.
var answers = []struct {
	class        error
	reason, word string
	patience     int
}{
	{catalogue.ErrInstanceTypeUnknown, ReasonFailedUpdate, WordTypeUnknown, 0},
	{catalogue.ErrIncomplete, ReasonFailedUpdate, WordTypeIncomplete, 0},
	{catalogue.ErrRegionUnknown, ReasonFailedUpdate, WordRegionUnknown, 0},
	{catalogue.ErrRegionNotOptedIn, ReasonReconcileError, WordRegionNotOptedIn, 0},
	{catalogue.ErrAccessDenied, ReasonReconcileError, WordAccessDenied, 0},
	{catalogue.ErrCredentials, ReasonReconcileError, WordCredentials, 0},
	{catalogue.ErrThrottled, ReasonReconcileError, WordThrottled, throttlePatience},
}

// unanswered is the verdict when the capacity of a type is not known. Existing annotations
// stay: the nodes of a retired type still have that type.
func unanswered(err error) verdict {
	if errors.Is(err, catalogue.ErrPending) {
		return verdict{retry: pendingRetry, pending: true}
	}
	retry := catalogueRetry
	var e *catalogue.Error
	if errors.As(err, &e) {
		retry = max(retry, e.RetryAfter)
	}
	n := warn(ReasonReconcileError, WordUnavailable, "%v", err)
	n.patience = throttlePatience
	for _, a := range answers {
		if errors.Is(err, a.class) {
			n.reason, n.word, n.patience = a.reason, a.word, a.patience
			break
		}
	}
	return refused(retry, n)
}
