package watchers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/clusters"
)

// scopes is how a kind is watched.
type scopes int

const (
	scopesUnknown scopes = iota
	// scopeAll: one informer for the cluster.
	scopeAll
	// scopeNamespaces: one for each namespace demanded.
	scopeNamespaces
)

// run is one attempt to watch a kind over one connection: it ends when the
// connection does, or when something is wrong that another run may mend.
type run struct {
	*keeper
	connection *clusters.Connection
	began      time.Time
	ctx        context.Context //nolint:containedctx // It is the run's life.
	cancel     context.CancelCauseFunc
	// unbind takes the run from the connection's end.
	unbind func() bool
	// ledger orders what is observed in this run.
	ledger *ledger
	// goroutines of the run's informers.
	goroutines sync.WaitGroup

	// Set by plan, before there are informers:

	resource resource
	// calls is a client of the version.
	calls rest.Interface

	// listed is when readTogether listed last; the work goroutine's own.
	listed time.Time

	// Guarded by the Watcher's mutex, written by the work goroutine only:

	lockedScopes  scopes
	lockedVersion string
	// lockedInformers: namespace, or "" for all → informer.
	lockedInformers map[string]*informer
}

// newRun begins a run, beside the one whose place it is to take; nil for none.
func (k *keeper) newRun(ctx context.Context, connection *clusters.Connection, beside *run) *run {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &run{keeper: k, connection: connection, began: k.w.o.Clock.Now(), ctx: ctx, cancel: cancel, lockedInformers: map[string]*informer{}}
	if beside != nil {
		r.ledger = newLedger(beside.ledger)
	} else {
		r.ledger = newLedger(nil)
	}
	r.unbind = context.AfterFunc(connection.Context(), func() { r.fail(errReplaced) })
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	switch {
	case k.lockedConnection != connection: // Another came: it is to end.
	case beside != nil && k.lockedRun == beside:
		k.lockedNext = r
	default:
		k.lockedRun = r
	}
	return r
}

// fail ends the run: its context at once, the rest by the work goroutine.
func (r *run) fail(cause error) {
	r.cancel(cause)
	r.poke()
}

// spawn runs a goroutine of the run. Only goroutines of the Watcher do so.
func (r *run) spawn(do func()) {
	r.goroutines.Add(1)
	r.w.goroutines.Go(func() {
		defer r.goroutines.Done()
		do()
	})
}

// end stops the informers, waits for them, and returns why the run ended.
func (r *run) end() error {
	r.unbind()
	r.cancel(errReplaced)
	r.goroutines.Wait()
	r.ledger.close()
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.lockedRun == r {
		r.lockedRun = r.lockedNext
		r.lockedNext = nil
	}
	if r.lockedNext == r {
		r.lockedNext = nil
	}
	return context.Cause(r.ctx)
}

// plan finds what is served and may be listed.
func (r *run) plan() error {
	found, err := r.discover(r.ctx, r.connection)
	if err != nil {
		return err
	}
	config := r.connection.Config()
	version := found.GroupVersion()
	config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &version, "/apis", clientscheme.Codecs.WithoutConversion()
	calls, err := rest.RESTClientForConfigAndClient(config, r.connection.HTTPClient())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	r.resource, r.calls = found, calls
	as, err := r.mayList(r.ctx)
	if err != nil {
		return err
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.lockedScopes, r.lockedVersion = as, found.Version
	r.w.lockedLook(r.c)
	return nil
}

// mayList tells what the credentials allow to list, by asking for one object of the
// whole cluster.
func (r *run) mayList(ctx context.Context) (scopes, error) {
	ctx, cancel := context.WithTimeout(ctx, r.w.o.Timings.Call)
	defer cancel()
	body, err := r.request(metav1.NamespaceAll).VersionedParams(&metav1.ListOptions{Limit: 1}, metav1.ParameterCodec).Stream(ctx)
	if err == nil {
		_ = body.Close() // That it is allowed is all that was asked.
	}
	switch {
	case err == nil:
		return scopeAll, nil
	case apierrors.IsForbidden(err) && r.resource.namespaced && !r.wants("", ""):
		return scopeNamespaces, nil
	default:
		return scopesUnknown, fmt.Errorf("listing %s: %w", r.resource.Resource, unquoted(err))
	}
}

// align starts and stops informers as the demand asks, and observes what is
// demanded and was not seen.
func (r *run) align() {
	needed := r.needed()
	r.w.mu.Lock()
	present := make(map[string]*informer, len(r.lockedInformers))
	for namespace, i := range r.lockedInformers {
		if !slices.Contains(needed, namespace) {
			delete(r.lockedInformers, namespace)
			i.stop()
			continue
		}
		present[namespace] = i
	}
	r.w.mu.Unlock()
	r.ledger.prune(r.wants)
	for _, namespace := range needed {
		i := present[namespace]
		if i == nil {
			r.start(namespace)
		} else if i.isSynced() && r.ctx.Err() == nil {
			r.settle(i)
		}
	}
}

// needed are the namespaces to be watched; one empty one for the whole cluster. An
// object of a namespaced kind that is demanded in no namespace does not exist, and
// watching for it would take the whole cluster.
func (r *run) needed() []string {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.lockedScopes == scopeAll {
		return []string{metav1.NamespaceAll}
	}
	var namespaces []string
	for want := range r.lockedWant {
		if want.namespace != metav1.NamespaceAll && !slices.Contains(namespaces, want.namespace) {
			namespaces = append(namespaces, want.namespace)
		}
	}
	slices.Sort(namespaces)
	return namespaces
}

// settle observes every demanded object of a synced informer that this run has not
// observed, or the index has forgotten: what is stored, what is stored as its key
// only (one read each), and what is not there. What another run observed may have
// gone in between. Then the informer is ready.
func (r *run) settle(i *informer) {
	named, wide := r.wantedOf(i)
	if i.lacks(wide) {
		r.fail(errReplan)
		return
	}
	var unread []wanted
	for _, want := range named {
		if r.kind.Observe == nil {
			if k := keyOf(i.stored(want)); k != nil && !k.unreadable {
				r.fail(errReplan)
				return
			}
			continue
		}
		_, known, _ := r.w.o.Index.Last(r.object(want))
		if !known || !r.ledger.tells(want) {
			unread = append(unread, want)
		}
	}
	read, err := r.readTogether(i, unread)
	if err != nil {
		r.w.o.Logger.V(1).Info("objects cannot be listed, reading them one by one", "cluster", r.c.name, "error", err.Error())
	}
	for _, want := range unread {
		if r.ctx.Err() != nil {
			return
		}
		if read[want] {
			continue
		}
		if err := r.settleOne(i, want); err != nil {
			r.retryLater(want, err)
		}
	}
	r.setReady(i)
}

// listApart is the time between two lists of readTogether.
const listApart = 2 * time.Second

// readOneByOne is up to how many objects, stored as their keys, are read one by one.
// The rate limit of a cluster makes more of them slower than a list.
const readOneByOne = 8

// readTogether observes objects that are stored as their keys by one list, if they
// are many, and returns those that it read, or put off.
func (r *run) readTogether(i *informer, unread []wanted) (map[wanted]bool, error) {
	keys := make(map[wanted]bool, len(unread))
	for _, want := range unread {
		if k := keyOf(i.stored(want)); k != nil && !k.unreadable {
			keys[want] = true
		}
	}
	if len(keys) <= readOneByOne {
		return nil, nil
	}
	if next := r.listed.Add(listApart); r.w.o.Clock.Now().Before(next) {
		// Demand often comes in a row; what is put off is looked at together.
		r.lookAt(next)
		return keys, nil
	}
	r.listed = r.w.o.Clock.Now()
	ctx, cancel := context.WithTimeout(r.ctx, r.w.o.Timings.SlowList)
	defer cancel()
	list, err := r.list(ctx, i.namespace, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", r.kind.GroupKind.Kind, err)
	}
	read := make(map[wanted]bool, len(keys))
	var woken []types.NamespacedName
	for j := range list.Items {
		o, ok := list.Items[j].Object.(client.Object)
		if want := (wanted{o.GetNamespace(), o.GetName()}); ok && keys[want] {
			read[want] = true
			woken = append(woken, r.observe(o)...)
		}
	}
	r.wake(woken, false)
	return read, nil
}

// wantedOf are the demands that concern an informer: of objects, and of namespaces
// or all.
func (r *run) wantedOf(i *informer) (named, wide []wanted) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for want := range r.lockedWant {
		switch {
		case i.namespace != metav1.NamespaceAll && want.namespace != i.namespace:
		case want.name == "":
			wide = append(wide, want)
		default:
			named = append(named, want)
		}
	}
	return named, wide
}

func (r *run) settleOne(i *informer, want wanted) error {
	o := i.stored(want)
	k := keyOf(o)
	switch {
	case o == nil && !r.ledger.toldByAnother(want):
		r.wake(r.observeAbsent(want), false)
		return nil
	case o == nil: // It went meanwhile, or this server is behind the other: ask.
	case k == nil || k.unreadable:
		r.wake(r.observe(o), false)
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.w.o.Timings.Call)
	defer cancel()
	u, err := r.get(ctx, want)
	switch {
	case apierrors.IsNotFound(err) && o == nil:
		r.wake(r.observeMissed(want), false)
		return nil
	case apierrors.IsNotFound(err):
		return nil // The informer is about to say so.
	case apierrors.IsForbidden(err):
		r.fail(errReplan) // The list brings it.
		return nil
	case err != nil:
		return fmt.Errorf("reading %s %s/%s: %w", r.kind.GroupKind.Kind, want.namespace, want.name, err)
	}
	r.wake(r.observe(r.reduce(u)), false)
	return nil
}

// retryLater comes back to an object that could not be read. Until then nothing is
// said of it.
func (r *run) retryLater(want wanted, err error) {
	r.ledger.unread(want)
	r.w.o.Logger.V(1).Info("object cannot be read yet", "cluster", r.c.name, "error", err.Error())
	r.lookAt(r.w.o.Clock.Now().Add(r.w.o.Timings.TransientRetry))
}

// lookAt has the work goroutine look at a time, or before.
func (r *run) lookAt(at time.Time) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.lockedLookAt.IsZero() || at.Before(r.lockedLookAt) {
		r.lockedLookAt = at
	}
}

// setReady makes what an informer holds count.
func (r *run) setReady(i *informer) {
	r.w.mu.Lock()
	first := !i.lockedReady
	i.lockedReady = true
	all := r.lockedSynced()
	if first && all {
		r.lockedProblem = problem{}
	}
	if all && r.lockedNext == r {
		r.lockedPoke() // To take the place of the one before.
	}
	if first {
		r.w.lockedLook(r.c)
	}
	version := r.lockedVersion
	r.w.mu.Unlock()
	if first && all {
		r.w.o.Logger.V(1).Info("kind is watched", "cluster", r.c.name, "kind", r.kind.GroupKind.String(), "version", version)
	}
}

// failed notes that a list or watch call of an informer failed, or went well. What
// is served or allowed may have changed, so that the run has to be planned anew.
func (r *run) failed(i *informer, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if apierrors.IsNotFound(err) || (apierrors.IsForbidden(err) && i.namespace == metav1.NamespaceAll) {
		r.fail(fmt.Errorf("watching %s: %w", r.resource.Resource, err))
		return
	}
	var p problem
	if err != nil {
		p = problemOf(err, r.keeper, i.namespace)
	}
	now := r.w.o.Clock.Now()
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if i.lockedProblem == p {
		return
	}
	if i.lockedProblem.reason == "" {
		i.lockedFailing = now
	}
	i.lockedProblem = p
	r.w.lockedLook(r.c)
}
