package watchers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

var (
	// errNotInstalled: the cluster does not serve the kind.
	errNotInstalled = errors.New("is not installed")
	// errVersion: it serves no version that the hub reads.
	errVersion = errors.New("is served in no version that the hub reads")
	// errReplan: the demand outgrew what is watched; begin again at once.
	errReplan = errors.New("what is watched is too narrow")
)

// resource is what a cluster serves a kind as.
type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

// discover finds the served version and resource of the kind.
func (k *keeper) discover(ctx context.Context, connection *clusters.Connection) (resource, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(connection.Config(), connection.HTTPClient())
	if err != nil {
		return resource{}, fmt.Errorf("making a discovery client: %w", err)
	}
	gk := k.kind.GroupKind
	group := &metav1.APIGroup{}
	err = client.RESTClient().Get().AbsPath("/apis/" + gk.Group).Do(ctx).Into(group)
	if apierrors.IsNotFound(err) {
		return resource{}, errNotInstalled
	} else if err != nil {
		return resource{}, fmt.Errorf("reading /apis/%s: %w", gk.Group, err)
	}
	versions := k.kind.Versions
	if len(versions) == 0 {
		versions = []string{group.PreferredVersion.Version}
		for _, v := range group.Versions {
			versions = append(versions, v.Version)
		}
	}
	served := func(version string) bool {
		return slices.ContainsFunc(group.Versions, func(g metav1.GroupVersionForDiscovery) bool { return g.Version == version })
	}
	for _, version := range versions {
		if !served(version) {
			continue
		}
		list := &metav1.APIResourceList{}
		if err := client.RESTClient().Get().AbsPath("/apis/" + gk.Group + "/" + version).Do(ctx).Into(list); err != nil {
			return resource{}, fmt.Errorf("reading /apis/%s/%s: %w", gk.Group, version, err)
		}
		for _, r := range list.APIResources {
			if r.Kind == gk.Kind && !strings.Contains(r.Name, "/") {
				gvr := schema.GroupVersionResource{Group: gk.Group, Version: version, Resource: r.Name}
				return resource{gvr, r.Namespaced}, nil
			}
		}
	}
	if len(k.kind.Versions) > 0 && !slices.ContainsFunc(k.kind.Versions, served) {
		return resource{}, errVersion
	}
	return resource{}, errNotInstalled
}

// watching is one run of watch.
type watching struct {
	*keeper
	resource resource
	client   dynamic.NamespaceableResourceInterface
	// all: one informer for the whole cluster.
	all bool
	// informers of this run: namespace, or "" for all.
	informers map[string]*informer
	running   sync.WaitGroup
	// fail ends the run.
	fail context.CancelCauseFunc
	seen seen
}

// watch runs the informers until the context ends or something is wrong that
// another run may mend.
func (k *keeper) watch(ctx context.Context, connection *clusters.Connection) error {
	served, err := k.discover(ctx, connection)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfigAndClient(connection.Config(), connection.HTTPClient())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	run := &watching{
		keeper: k, resource: served, client: client.Resource(served.GroupVersionResource),
		informers: map[string]*informer{}, fail: fail,
	}
	defer run.end()
	if run.all, err = run.mayListAll(ctx); err != nil {
		return err
	}
	k.w.mu.Lock()
	k.lockedVersion, k.lockedInformers = served.Version, run.informers
	k.w.mu.Unlock()
	for {
		if err := run.align(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-k.changed:
		}
	}
}

// end stops the informers of the run and waits for them.
func (r *watching) end() {
	r.fail(nil)
	r.running.Wait()
	r.w.mu.Lock()
	clear(r.informers)
	r.lockedSynced = false
	r.w.mu.Unlock()
}

// mayListAll tells whether the credentials allow a list of the whole cluster, by
// asking for one object of it.
func (r *watching) mayListAll(ctx context.Context) (bool, error) {
	_, err := r.client.List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsForbidden(err) && r.resource.namespaced && !r.wants("", ""):
		return false, nil
	default:
		return false, err
	}
}

// align starts and stops informers as the demand asks, and observes what is
// demanded and has not been seen.
func (r *watching) align(ctx context.Context) error {
	for namespace, i := range r.informers {
		if !r.all && !r.wantsNamespace(namespace) {
			i.stop()
			r.w.mu.Lock()
			delete(r.informers, namespace)
			r.w.mu.Unlock()
		}
	}
	synced := true
	for _, namespace := range r.scopes() {
		if r.informers[namespace] == nil {
			r.startInformer(ctx, namespace)
		}
		i := r.informers[namespace]
		synced = synced && i != nil && i.isSynced()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !synced {
		// It is slow, not wrong: the slot is free for others, and this is looked at
		// again when it has synced.
		return nil
	}
	if err := r.catchUp(ctx); err != nil {
		return err
	}
	r.setSynced()
	return nil
}

// scopes are the namespaces to be watched; one empty one for the whole cluster.
func (r *watching) scopes() []string {
	if r.all {
		return []string{metav1.NamespaceAll}
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	var scopes []string
	for want := range r.lockedWant {
		if !slices.Contains(scopes, want.namespace) {
			scopes = append(scopes, want.namespace)
		}
	}
	slices.Sort(scopes)
	return scopes
}

func (r *watching) wantsNamespace(namespace string) bool {
	return slices.Contains(r.scopes(), namespace)
}

// setSynced makes the kind fresh, and wakes whom the initial lists concern.
func (r *watching) setSynced() {
	var woken []*informer
	r.w.mu.Lock()
	first := !r.lockedSynced
	r.lockedSynced, r.lockedProblem = true, problem{}
	for _, i := range r.informers {
		woken = append(woken, i)
	}
	version := r.lockedVersion
	r.w.mu.Unlock()
	for _, i := range woken {
		r.wake(i.takeInitial(), true)
	}
	if first {
		r.w.o.Logger.V(1).Info("kind is watched", "cluster", r.cluster, "kind", r.kind.GroupKind.String(), "version", version)
		r.w.nudge()
	}
}

// catchUp observes every demanded object that the index has not seen: what is
// stored, what is stored as its key only (one read each), and what is not there.
func (r *watching) catchUp(ctx context.Context) error {
	r.w.mu.Lock()
	var named []wanted
	wide := false
	for want := range r.lockedWant {
		if want.name == "" {
			wide = true
		} else {
			named = append(named, want)
		}
	}
	r.w.mu.Unlock()
	if wide && r.narrow() {
		return errReplan
	}
	if r.kind.Observe == nil {
		return nil
	}
	for _, want := range named {
		if _, known, _ := r.w.o.Index.Last(r.object(want.namespace, want.name)); known {
			continue
		}
		if err := r.catchUpOne(ctx, want); err != nil {
			return err
		}
	}
	return nil
}

func (r *watching) catchUpOne(ctx context.Context, want wanted) error {
	o, found := r.stored(want)
	switch {
	case !found:
		r.wake(r.seen.absent(r.keeper, want), false)
		return nil
	case !isKey(o):
		r.wake(r.seen.at(r.keeper, o), false)
		return nil
	}
	u, err := r.client.Namespace(want.namespace).Get(ctx, want.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil // The informer is about to say so.
	case err != nil:
		return fmt.Errorf("reading %s %s/%s: %w", r.kind.GroupKind.Kind, want.namespace, want.name, err)
	}
	r.wake(r.seen.at(r.keeper, r.reduce(u)), false)
	return nil
}

// stored returns what the informers hold of an object.
func (r *watching) stored(want wanted) (storedObject, bool) {
	i := r.informers[want.namespace]
	if r.all {
		i = r.informers[metav1.NamespaceAll]
	}
	if i == nil {
		return nil, false
	}
	key := want.name
	if want.namespace != "" {
		key = want.namespace + "/" + want.name
	}
	item, found, err := i.shared.GetStore().GetByKey(key)
	if err != nil || !found {
		return nil, false
	}
	o, ok := item.(storedObject)
	return o, ok
}

// narrow tells whether something is stored as its key that is demanded by now.
func (r *watching) narrow() bool {
	for _, i := range r.informers {
		for _, item := range i.shared.GetStore().List() {
			if o, ok := item.(storedObject); ok && isKey(o) && r.wants(o.GetNamespace(), o.GetName()) {
				return true
			}
		}
	}
	return false
}

// reduce makes what is stored of an object: of one that nobody demands, its key.
func (r *watching) reduce(u *unstructured.Unstructured) storedObject {
	if !r.wants(u.GetNamespace(), u.GetName()) {
		return newKey(u)
	}
	o, err := r.kind.Reduce(u)
	if err != nil {
		r.w.o.Logger.V(1).Info("object cannot be read", "cluster", r.cluster, "kind", r.kind.GroupKind.String(),
			"namespace", u.GetNamespace(), "name", u.GetName(), "error", err.Error())
		return newKey(u)
	}
	return o
}

// problemOf words an error of a run for people.
func problemOf(err error, k *keeper) problem {
	kind, cluster := k.kind.GroupKind.String(), string(k.cluster)
	if cluster == index.LocalCluster {
		cluster = "the management cluster"
	}
	switch {
	case err == nil, errors.Is(err, errReplan):
		return problem{}
	case errors.Is(err, errNotInstalled), apierrors.IsNotFound(err):
		return problem{ReasonNotInstalled, fmt.Sprintf("%s is not installed in %s: install its CRD there", kind, cluster)}
	case errors.Is(err, errVersion):
		return problem{ReasonNotServedHere, fmt.Sprintf("%s is served by %s in none of the versions %v", kind, cluster, k.kind.Versions)}
	case apierrors.IsForbidden(err):
		return problem{ReasonForbidden, fmt.Sprintf("the credentials for %s may not get, list and watch %s: grant it (config/rbac/workload)", cluster, kind)}
	}
	message := err.Error()
	if len(message) > maxProblem {
		message = message[:maxProblem]
	}
	return problem{ReasonUnreadable, fmt.Sprintf("%s cannot be watched in %s: %s", kind, cluster, message)}
}

// maxProblem is how much of an error is kept in a message.
const maxProblem = 256

// dropped by the reflector, these end a run: what is served or allowed changed.
func endsRun(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
}
