package clusters

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/secret"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// clusterObject contains the fields of a Cluster or GitopsCluster that the hub keeps.
type clusterObject struct {
	APIVersion string
	UID        types.UID
	// Created is when the object was created, in UTC.
	Created     time.Time
	Deleting    bool
	SelfManaged bool
	// SecretRef and CAPIRef are the names in the references of a GitopsCluster.
	SecretRef, CAPIRef string
	// Unready is true for a GitopsCluster with Ready=False. Problem is the message.
	Unready bool
	Problem string
	// Labels, by which targets select clusters.
	Labels map[string]string
}

// alias returns the Cluster that a GitopsCluster with capiClusterRef references, and the zero Ref for each other object.
// The Cluster need not exist. A GitopsCluster with both references is invalid and references none.
func (o clusterObject) alias(ref Ref) Ref {
	if ref.Kind != pipelinesv1.ClusterKindGitopsCluster || o.CAPIRef == "" || o.SecretRef != "" {
		return Ref{}
	}
	return Ref{Kind: pipelinesv1.ClusterKindCluster, Namespace: ref.Namespace, Name: o.CAPIRef}
}

func (o clusterObject) equal(p clusterObject) bool {
	return o.APIVersion == p.APIVersion && o.UID == p.UID && o.Created.Equal(p.Created) && o.Deleting == p.Deleting && o.SelfManaged == p.SelfManaged &&
		o.SecretRef == p.SecretRef && o.CAPIRef == p.CAPIRef && o.Unready == p.Unready && o.Problem == p.Problem && maps.Equal(o.Labels, p.Labels)
}

// presence of an object, as far as the hub knows.
type presence int

const (
	// presenceUnknown: the objects of the kind were not listed yet.
	presenceUnknown presence = iota
	presenceAbsent
	presencePresent
)

// kindState is the progress of reading the objects of a kind.
type kindState struct {
	synced bool
	// absent: the management cluster does not serve the kind.
	absent bool
	// problem of the last attempt to read; "" if there was none.
	problem string
}

// objects holds the cluster objects of the management cluster. It does no I/O.
type objects struct {
	mu          sync.Mutex
	lockedState struct {
		known map[Ref]clusterObject
		kinds map[string]kindState
		// unresolved are the references that were resolved before their kind was read.
		unresolved map[Ref]struct{}
	}
}

func newObjects() *objects {
	o := &objects{}
	o.lockedState.known = map[Ref]clusterObject{}
	o.lockedState.kinds = map[string]kindState{}
	o.lockedState.unresolved = map[Ref]struct{}{}
	return o
}

// put stores an object. It returns the references that the change affects, none if nothing
// changed.
func (o *objects) put(ref Ref, object clusterObject) []Ref {
	o.mu.Lock()
	defer o.mu.Unlock()
	if old, ok := o.lockedState.known[ref]; ok && old.equal(object) {
		return nil
	}
	o.lockedState.known[ref] = object
	return o.concernedLocked(ref)
}

// drop removes an object. It returns the references that the change affects.
func (o *objects) drop(ref Ref) []Ref {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.lockedState.known[ref]; !ok {
		return nil
	}
	delete(o.lockedState.known, ref)
	return o.concernedLocked(ref)
}

// concernedLocked returns a reference and, for a Cluster, the GitopsClusters that point to
// it.
func (o *objects) concernedLocked(ref Ref) []Ref {
	refs := []Ref{ref}
	if ref.Kind != pipelinesv1.ClusterKindCluster {
		return refs
	}
	for other, object := range o.lockedState.known {
		if other.Kind == pipelinesv1.ClusterKindGitopsCluster && other.Namespace == ref.Namespace && object.CAPIRef == ref.Name {
			refs = append(refs, other)
		}
	}
	return refs
}

// retain removes objects that do not exist. It calls exists under the mutex, so that
// objects that are put meanwhile are kept.
func (o *objects) retain(kind string, exists func(Ref) bool) []Ref {
	o.mu.Lock()
	defer o.mu.Unlock()
	var refs []Ref
	for ref := range o.lockedState.known {
		if ref.Kind == kind && !exists(ref) {
			delete(o.lockedState.known, ref)
			refs = append(refs, o.concernedLocked(ref)...)
		}
	}
	return refs
}

// setKind sets the progress of reading a kind. When the kind is now read or absent, it
// returns the references that could not be resolved before. changed is false when the
// state was the same before.
func (o *objects) setKind(kind string, state kindState) (unresolved []Ref, changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lockedState.kinds[kind] == state {
		return nil, false
	}
	o.lockedState.kinds[kind] = state
	if state.synced || state.absent {
		unresolved = slices.Collect(maps.Keys(o.lockedState.unresolved))
		clear(o.lockedState.unresolved)
	}
	return unresolved, true
}

// setProblem sets the problem with reading a kind. The progress stays the same. It returns
// false when the problem was the same before.
func (o *objects) setProblem(kind, problem string) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.lockedState.kinds[kind]
	if state.problem == problem {
		return false
	}
	state.problem = problem
	o.lockedState.kinds[kind] = state
	return true
}

// find returns an object and whether it exists.
func (o *objects) find(ref Ref) (clusterObject, presence) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.findLocked(ref)
}

func (o *objects) findLocked(ref Ref) (clusterObject, presence) {
	if object, ok := o.lockedState.known[ref]; ok {
		return object, presencePresent
	}
	if kind := o.lockedState.kinds[ref.Kind]; kind.synced || kind.absent {
		return clusterObject{}, presenceAbsent
	}
	return clusterObject{}, presenceUnknown
}

// problem returns why a kind cannot be read; "" while no attempt has failed.
func (o *objects) problem(kind string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lockedState.kinds[kind].problem == "" {
		return ""
	}
	return o.describeLocked(kind)
}

func (o *objects) describeLocked(kind string) string {
	message := "the hub has not read the " + kind + "s of the management cluster yet"
	if problem := o.lockedState.kinds[kind].problem; problem != "" {
		message += ": " + problem
	}
	return message
}

// resolve returns the Ref of the cluster that a reference leads to.
func (o *objects) resolve(ref Ref) (Ref, error) {
	if ref.IsLocal() {
		return ref, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	object, err := o.resolveOneLocked(ref, ref)
	if err != nil || ref.Kind == pipelinesv1.ClusterKindCluster {
		return ref, err
	}
	switch {
	case (object.SecretRef == "") == (object.CAPIRef == ""):
		return Ref{}, failure(ErrInvalid, "%s must have exactly one of spec.secretRef and spec.capiClusterRef", ref)
	case object.Unready && object.Problem == "":
		return Ref{}, failure(ErrNotReady, "%s has the condition Ready=False, without a message", ref)
	case object.Unready:
		return Ref{}, failure(ErrNotReady, "%s has the condition Ready=False: %s", ref, object.Problem)
	case object.SecretRef != "":
		return ref, nil
	}
	target := object.alias(ref)
	_, err = o.resolveOneLocked(target, ref)
	return target, err
}

// list returns all objects of the kinds for which include is true, in no order, and the problems of those of the kinds
// that were not read yet.
func (o *objects) list(include func(kind string) bool) ([]Object, []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Object, 0, len(o.lockedState.known))
	for ref, object := range o.lockedState.known {
		if include(ref.Kind) {
			all = append(all, Object{Ref: ref, Of: object.alias(ref), Labels: object.Labels, Created: object.Created, Deleting: object.Deleting})
		}
	}
	var problems []string
	for kind, state := range o.lockedState.kinds {
		if include(kind) && !state.synced && !state.absent && state.problem != "" {
			problems = append(problems, kind+": "+state.problem)
		}
	}
	return all, problems
}

// decided reports whether the objects of a kind were read, or the kind is known not to be installed.
func (o *objects) decided(kind string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.lockedState.kinds[kind]
	return state.synced || state.absent
}

// resolveOneLocked finds the object of ref, which origin leads to.
func (o *objects) resolveOneLocked(ref, origin Ref) (clusterObject, error) {
	switch ref.Kind {
	case pipelinesv1.ClusterKindCluster, pipelinesv1.ClusterKindGitopsCluster:
	default:
		return clusterObject{}, failure(ErrInvalid, "kind %q is not a kind of cluster: use GitopsCluster or Cluster", ref.Kind)
	}
	via := ""
	if ref != origin {
		via = ", which " + origin.String() + " points to,"
	}
	object, found := o.findLocked(ref)
	switch found {
	case presenceUnknown:
		o.lockedState.unresolved[origin] = struct{}{}
		return object, failure(ErrNotSynced, "%s", o.describeLocked(ref.Kind))
	case presenceAbsent:
		if o.lockedState.kinds[ref.Kind].absent {
			return object, failure(ErrNotFound, "%s%s does not exist: its CustomResourceDefinition is not installed in the management cluster", ref, via)
		}
		return object, failure(ErrNotFound, "%s%s does not exist: create it or correct the reference", ref, via)
	case presencePresent:
	}
	if object.Deleting {
		return object, failure(ErrNotFound, "%s%s is being deleted", ref, via)
	}
	return object, nil
}

// selected returns the objects of a kind, in a namespace or (pipelinesv1.AllNamespaces) in all, whose labels match, in
// the order of their namespaces and names. Objects that are being deleted do not count.
func (o *objects) selected(kind, namespace string, selector labels.Selector) ([]Ref, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if state := o.lockedState.kinds[kind]; !state.synced && !state.absent {
		o.lockedState.unresolved[SelectionRef(kind, namespace)] = struct{}{}
		return nil, failure(ErrNotSynced, "%s", o.describeLocked(kind))
	}
	var all []Ref
	for ref, object := range o.lockedState.known {
		if ref.Kind == kind && (namespace == pipelinesv1.AllNamespaces || ref.Namespace == namespace) && !object.Deleting && selector.Matches(labels.Set(object.Labels)) {
			all = append(all, ref)
		}
	}
	slices.SortFunc(all, func(a, b Ref) int { return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) })
	return all, nil
}

// labels returns the labels of a cluster object.
func (o *objects) labels(ref Ref) (labels.Set, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	object, err := o.resolveOneLocked(ref, ref)
	return object.Labels, err
}

// credentialSource returns the Secret of a cluster object, and its keys in the order of
// preference.
func credentialSource(ref Ref, object clusterObject) (types.NamespacedName, []string, error) {
	if ref.Kind == pipelinesv1.ClusterKindCluster {
		return types.NamespacedName{Namespace: ref.Namespace, Name: secret.Name(ref.Name, secret.Kubeconfig)}, []string{secret.KubeconfigDataName}, nil
	}
	switch {
	case (object.SecretRef == "") == (object.CAPIRef == ""):
		return types.NamespacedName{}, nil, errors.New("it must have exactly one of spec.secretRef and spec.capiClusterRef")
	case object.CAPIRef != "":
		return types.NamespacedName{Namespace: ref.Namespace, Name: secret.Name(object.CAPIRef, secret.Kubeconfig)}, []string{secret.KubeconfigDataName}, nil
	}
	return types.NamespacedName{Namespace: ref.Namespace, Name: object.SecretRef}, []string{gitopsKubeconfigKey, secret.KubeconfigDataName}, nil
}

// gitopsKubeconfigKey is the key of the kubeconfig in the Secret of a GitopsCluster.
const gitopsKubeconfigKey = "kubeconfig"
