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
	// syncRetry is when a node group is looked at again that needs a kind which is being
	// listed. An object of it that appears wakes earlier.
	syncRetry = 500 * time.Millisecond
	// mendRetry is when one is looked at again where somebody has to do something, and
	// no watch may tell.
	mendRetry = time.Minute
	// catalogueRetry is the least time after which one is looked at again that EC2 failed.
	catalogueRetry = time.Second
	// pendingRetry is when one is looked at again that waits for EC2. Its answer, or
	// failure, wakes earlier: it takes at most catalogue.Timings.Call for each page.
	pendingRetry = time.Minute
	// throttlePatience is how many failures in a row of the passing kind are not told.
	throttlePatience = 2
)

// verdict on a node group.
type verdict struct {
	// node is what it should tell of; nil when that is not known.
	node    *annotation.Node
	notices []notice
	// types of its instances, and the architecture of all of them; empty when not known.
	types        []string
	architecture string
	// retry is when to look again though nothing happened; 0 for not.
	retry time.Duration
	// pending: something is still to be heard, and what was told before stands.
	pending bool
}

func refused(retry time.Duration, n ...notice) verdict { return verdict{notices: n, retry: retry} }

// origin is what the annotations of a node group are made of, but for what EC2 says.
type origin struct {
	// cluster of the group; nil when there is none.
	cluster *unstructured.Unstructured
	// leave says why the group is left alone; empty when it is not.
	leave string
	made  machines
	where capa.Place
}

// originOf reads what is behind a node group. Errors: those of resolveMachines,
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

// decide what a node of the group would be. It reads watchers' stores and the
// catalogue, and waits for nobody.
func (r *Reconciler) decide(ctx context.Context, l *look, group *unstructured.Unstructured) verdict {
	from, err := originOf(ctx, l, group, r.DefaultRegion)
	switch {
	case err != nil:
		return unread(err)
	case from.leave != "":
		return verdict{}
	}
	made, where := from.made, from.where
	pods, notices := r.podsOf(from.cluster)
	// What a self-managed cluster says is its owners', who shall not choose which
	// roles the hub assumes.
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
	node := least(all, pods)
	node.DiskGiB = made.diskGiB
	node.Labels = labelsOf(group, made, where.Region, arch)
	return verdict{node: &node, notices: append(notices, mixed...), types: made.types, architecture: arch}
}

// ask the catalogue what it knows, and wait for nothing: with the cluster's role, and where the hub may not assume that,
// with the hub's own identity. What a type offers is the same to every account.
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

// podsOf is how pods are counted in a cluster.
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
		return r.Pods, []notice{warn(ReasonFailedUpdate, WordInvalidMaxPods, "annotation %s of Cluster %s: %v; --max-pods counts instead", MaxPodsAnnotation, cluster.GetName(), err)}
	}
	return pods, nil
}

// unread is the verdict where something that is needed cannot be read, or is not valid.
func unread(err error) verdict {
	switch {
	case errors.Is(err, errForeign):
		return verdict{}
	case errors.Is(err, ErrInvalidReference):
		return refused(0, warn(ReasonFailedUpdate, WordInvalidReference, "%v", err))
	case errors.Is(err, ErrNoInstanceType):
		return refused(0, warn(ReasonFailedUpdate, WordNoInstanceType, "%v", err))
	case errors.Is(err, ErrRegionUnknown):
		return refused(0, warn(ReasonFailedUpdate, WordRegionUnknown, "%v; annotate it, or its Cluster, with %s", err, RegionAnnotation))
	case apierrors.IsNotFound(err):
		return refused(mendRetry, warn(ReasonFailedUpdate, WordTemplateNotFound, "%v", err))
	case syncing(err):
		return verdict{retry: syncRetry, pending: true}
	case capa.Absent(err):
		return refused(mendRetry, warn(ReasonFailedUpdate, WordTemplateNotFound, "%v", err))
	}
	return refused(mendRetry, warn(ReasonReconcileError, WordUnreadable, "%v", err))
}

// answers is what each class of the catalogue's errors is to a node group.
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

// unanswered is the verdict where EC2 does not say what a type offers. What is
// annotated stays: a type that was retired is still that of the nodes.
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
