package clusters

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// clusterObject contains the fields of a cluster object that the hub keeps.
type clusterObject struct {
	APIVersion string
	UID        types.UID
	// Created is when the object was created, in UTC.
	Created     time.Time
	Deleting    bool
	SelfManaged bool
	// SecretRef and CAPIRef are the names in the references of a GitopsCluster.
	SecretRef, CAPIRef string
	// Access is how a ClusterProfile says that its cluster is reached.
	Access access
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
		o.SecretRef == p.SecretRef && o.Access == p.Access && o.CAPIRef == p.CAPIRef && o.Unready == p.Unready && o.Problem == p.Problem && maps.Equal(o.Labels, p.Labels)
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
	// scoping does not change.
	scoping

	mu          sync.Mutex
	lockedState struct {
		known map[Ref]clusterObject
		// aliases: Cluster → the GitopsClusters of which it is the alias. Each put and drop asks for those.
		aliases map[Ref]map[Ref]struct{}
		// kinds have the state of each scope.
		kinds map[string]kindState
		// unresolved are the references that wait for a scope: they were resolved before it was read.
		unresolved map[string]map[Ref]struct{}
	}
}

// newObjects makes objects without content.
func newObjects(s scoping) *objects {
	o := &objects{scoping: s}
	o.lockedState.known = map[Ref]clusterObject{}
	o.lockedState.aliases = map[Ref]map[Ref]struct{}{}
	o.lockedState.kinds = map[string]kindState{}
	o.lockedState.unresolved = map[string]map[Ref]struct{}{}
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
	o.forgetLocked(ref)
	o.lockedState.known[ref] = object
	if to := object.alias(ref); to != (Ref{}) {
		if o.lockedState.aliases[to] == nil {
			o.lockedState.aliases[to] = map[Ref]struct{}{}
		}
		o.lockedState.aliases[to][ref] = struct{}{}
	}
	return o.concernedLocked(ref)
}

// drop removes an object. It returns the references that the change affects.
func (o *objects) drop(ref Ref) []Ref {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.lockedState.known[ref]; !ok {
		return nil
	}
	o.forgetLocked(ref)
	return o.concernedLocked(ref)
}

// forgetLocked removes an object, if it is known.
func (o *objects) forgetLocked(ref Ref) {
	to := o.lockedState.known[ref].alias(ref)
	delete(o.lockedState.known, ref)
	if delete(o.lockedState.aliases[to], ref); len(o.lockedState.aliases[to]) == 0 {
		delete(o.lockedState.aliases, to)
	}
}

// concernedLocked returns a reference and, for a Cluster, the GitopsClusters that point to
// it.
func (o *objects) concernedLocked(ref Ref) []Ref {
	return slices.AppendSeq([]Ref{ref}, maps.Keys(o.lockedState.aliases[ref]))
}

// retain removes objects that do not exist. It calls exists under the mutex, so that
// objects that are put meanwhile are kept.
func (o *objects) retain(scope string, exists func(Ref) bool) []Ref {
	o.mu.Lock()
	defer o.mu.Unlock()
	var refs []Ref
	for ref := range o.lockedState.known {
		if o.scopeOf(ref.Kind, ref.Namespace) == scope && !exists(ref) {
			o.forgetLocked(ref)
			refs = append(refs, o.concernedLocked(ref)...)
		}
	}
	return refs
}

// setKind sets the progress of reading a scope. When the scope is now read or absent, it
// returns the references that waited for it. changed is false when the state was the same
// before.
func (o *objects) setKind(scope string, state kindState) (unresolved []Ref, changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lockedState.kinds[scope] == state {
		return nil, false
	}
	o.lockedState.kinds[scope] = state
	if state.synced || state.absent {
		unresolved = slices.Collect(maps.Keys(o.lockedState.unresolved[scope]))
		delete(o.lockedState.unresolved, scope)
	}
	return unresolved, true
}

// notReadLocked makes ref wait for a scope, and returns the error that says so.
func (o *objects) notReadLocked(scope string, ref Ref) error {
	if o.lockedState.unresolved[scope] == nil {
		o.lockedState.unresolved[scope] = map[Ref]struct{}{}
	}
	o.lockedState.unresolved[scope][ref] = struct{}{}
	return failure(ErrNotSynced, "%s", o.describeLocked(scope))
}

// setProblem sets the problem with reading a scope. The progress stays the same. It returns the
// references that wait for the scope, and false when the problem was the same before.
func (o *objects) setProblem(scope, problem string) (waiting []Ref, changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.lockedState.kinds[scope]
	if state.problem == problem {
		return nil, false
	}
	state.problem = problem
	o.lockedState.kinds[scope] = state
	return slices.Collect(maps.Keys(o.lockedState.unresolved[scope])), true
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
	if state := o.lockedState.kinds[o.scopeOf(ref.Kind, ref.Namespace)]; state.synced || state.absent || !o.reads(ref.Kind, ref.Namespace) {
		return clusterObject{}, presenceAbsent
	}
	return clusterObject{}, presenceUnknown
}

// problem returns why the scope of a reference cannot be read; "" while no attempt has failed.
func (o *objects) problem(ref Ref) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.problemLocked(o.scopeOf(ref.Kind, ref.Namespace))
}

// problems returns why scopes cannot be read that were not read yet, in no order.
func (o *objects) problems(include func(scope string) bool) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for scope, state := range o.lockedState.kinds {
		if problem := o.problemLocked(scope); include(scope) && !state.synced && !state.absent && problem != "" {
			all = append(all, problem)
		}
	}
	return all
}

func (o *objects) problemLocked(scope string) string {
	if o.lockedState.kinds[scope].problem == "" {
		return ""
	}
	return o.describeLocked(scope)
}

func (o *objects) describeLocked(scope string) string {
	kind, namespace, _ := strings.Cut(scope, "/")
	message := "the hub has not read the " + kind + "s of the management cluster yet"
	if namespace != "" {
		message = "the hub has not read the " + kind + "s of namespace " + namespace + " yet"
	}
	problem := o.lockedState.kinds[scope].problem
	if problem != "" {
		message += ": " + problem
	}
	if problem != "" && clusterKinds[kind].perNamespace {
		message += "; " + grantSecrets(namespace)
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
	if err != nil || ref.Kind != pipelinesv1.ClusterKindGitopsCluster {
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

// list returns all objects of the scopes for which include is true, in no order.
func (o *objects) list(include func(scope string) bool) []Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Object, 0, len(o.lockedState.known))
	for ref, object := range o.lockedState.known {
		if include(o.scopeOf(ref.Kind, ref.Namespace)) {
			all = append(all, Object{Ref: ref, Of: object.alias(ref), Labels: object.Labels, Created: object.Created, Deleting: object.Deleting})
		}
	}
	return all
}

// decided reports whether the objects of a scope were read, or its kind is known not to be installed.
func (o *objects) decided(scope string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.lockedState.kinds[scope]
	return state.synced || state.absent
}

// resolveOneLocked finds the object of ref, which origin leads to.
func (o *objects) resolveOneLocked(ref, origin Ref) (clusterObject, error) {
	kind, known := clusterKinds[ref.Kind]
	if !known {
		return clusterObject{}, failure(ErrInvalid, "kind %q is not a kind of cluster: use %s", ref.Kind, pipelinesv1.ClusterKindNames())
	}
	via := ""
	if ref != origin {
		via = ", which " + origin.String() + " points to,"
	}
	object, found := o.findLocked(ref)
	switch found {
	case presenceUnknown:
		return object, o.notReadLocked(o.scopeOf(ref.Kind, ref.Namespace), origin)
	case presenceAbsent:
		if !o.reads(ref.Kind, ref.Namespace) {
			return object, failure(ErrNotFound, "%s", notRead(ref.String(), ref.Kind, ref.Namespace))
		}
		if o.lockedState.kinds[o.scopeOf(ref.Kind, ref.Namespace)].absent {
			return object, failure(ErrNotFound, "%s%s does not exist: its CustomResourceDefinition is not installed in the management cluster", ref, via)
		}
		return object, failure(ErrNotFound, "%s%s %s: %s", ref, via, kind.absent, kind.remedy)
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
	if !o.reads(kind, namespace) && namespace != pipelinesv1.AllNamespaces {
		return nil, failure(ErrNotFound, "%s", notRead("a "+kind, kind, namespace))
	}
	for _, scope := range o.scopes(kind, namespace) {
		if state := o.lockedState.kinds[scope]; !state.synced && !state.absent {
			return nil, o.notReadLocked(scope, SelectionRef(kind, namespace))
		}
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
