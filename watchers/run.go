package watchers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/watchers/decode"
)

// run is one attempt to watch a kind over one connection. It ends when the connection ends,
// or with a failure after which another run is started.
type run struct {
	subject    *subject
	connection *clusters.Connection
	began      time.Time
	ctx        context.Context //nolint:containedctx // It ends with the run.
	cancel     context.CancelCauseFunc
	// unbind removes the run from the connection's end.
	unbind func() bool
	// ledger orders what is observed in this run.
	ledger *ledger
	// goroutines of the run's informers.
	goroutines sync.WaitGroup

	// calls reads the kind; plan sets it, before there are informers.
	calls caller

	// work is the work goroutine's own.
	work runWork

	// lockedState is guarded by shared.mu, and written by the work goroutine only.
	lockedState runState
}

type runWork struct {
	// listed is when readTogether listed last.
	listed time.Time
	// failing: demanded object → since when reading it fails.
	failing map[wanted]time.Time
}

type runState struct {
	scopes  scopes
	version string
	// informers: namespace, or "" for all → informer.
	informers map[string]*informer
	// replacement: it is to replace the run that counts, once it is synced.
	replacement bool
}

// newRun starts a run, which may replace another one; nil for none.
func newRun(ctx context.Context, s *subject, connection *clusters.Connection, replaces *run) *run {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &run{
		subject: s, connection: connection, began: s.shared.options.Clock.Now(), ctx: ctx, cancel: cancel,
		lockedState: runState{informers: map[string]*informer{}},
	}
	var shares *ledger
	if replaces != nil {
		shares = replaces.ledger
	}
	r.ledger = newLedger(shares, r.began, s.record)
	r.work.failing = map[wanted]time.Time{}
	r.unbind = context.AfterFunc(connection.Context(), func() { r.fail(errReplaced) })
	return r
}

// fail ends the run: it ends the context at once, and the work goroutine does the rest.
func (r *run) fail(cause error) {
	r.cancel(cause)
	r.subject.poke()
}

// spawn starts a goroutine of the run. Only goroutines of the Watcher may call it.
func (r *run) spawn(do func()) {
	r.goroutines.Add(1)
	r.subject.shared.goroutines.Go(func() {
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
	// The observations are in the index, so the next run finds no change.
	for _, i := range r.informers() {
		r.subject.wake(i.initial.take(), true)
	}
	return context.Cause(r.ctx)
}

// informers returns the informers of the run.
func (r *run) informers() []*informer {
	r.subject.shared.mu.Lock()
	defer r.subject.shared.mu.Unlock()
	return slices.Collect(maps.Values(r.lockedState.informers))
}

// plan finds the served version, and whether the credentials allow a list of the cluster.
func (r *run) plan() error {
	shared := r.subject.shared
	found, err := discover(r.ctx, shared.options.Timings.Call, r.connection, r.subject.kind)
	if err != nil {
		return err
	}
	config := r.connection.Config()
	version := found.GroupVersion()
	config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &version, "/apis", clientscheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(config, r.connection.HTTPClient())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	r.calls = caller{client: client, resource: found, limits: shared.options.limitsIn(r.subject.isLocal()), keep: decode.FieldsOf(r.subject.kind.Reads), reduce: r.subject.reduce, pace: r.subject.pace}
	as, err := r.mayList(r.ctx)
	if err != nil {
		return err
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	r.lockedState.scopes, r.lockedState.version = as, found.Version
	shared.changedLocked(r.subject.cluster.name)
	return nil
}

// mayList returns what the credentials allow to list. It requests one object of the whole
// cluster, but not of a management cluster of which the hub serves some namespaces: the objects
// of the others would take memory, and count for Options.MaxLocalObjects.
func (r *run) mayList(ctx context.Context) (scopes, error) {
	byNamespace := r.calls.resource.namespaced && !r.subject.wants("", "")
	if byNamespace && r.subject.isLocal() && len(r.subject.shared.options.Namespaces) > 0 {
		return scopeNamespaces, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.subject.shared.options.Timings.Call)
	defer cancel()
	body, err := r.calls.request(metav1.NamespaceAll).VersionedParams(&metav1.ListOptions{Limit: 1}, metav1.ParameterCodec).Stream(ctx)
	if err == nil {
		_ = body.Close() // Only the status of the answer counts.
	}
	switch {
	case err == nil:
		return scopeAll, nil
	case apierrors.IsForbidden(err) && byNamespace:
		return scopeNamespaces, nil
	default:
		return scopesUnknown, fmt.Errorf("listing %s: %w", r.calls.resource.Resource, unquoted(err))
	}
}

// noteCall notes that a list or watch call of an informer failed, or succeeded. The served
// version or the permissions may have changed; then the run fails, so that the next one is
// planned again.
func (r *run) noteCall(i *informer, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if apierrors.IsNotFound(err) || (apierrors.IsForbidden(err) && i.namespace == metav1.NamespaceAll) {
		r.fail(fmt.Errorf("watching %s: %w", r.calls.resource.Resource, err))
		return
	}
	var p problem
	if err != nil {
		p = problemOf(err, r.subject.place(i.namespace))
	}
	shared := r.subject.shared
	now := shared.options.Clock.Now()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	s := &i.lockedState
	if s.problem == p {
		return
	}
	if s.problem.reason == "" {
		s.failing = now
	}
	s.problem = p
	shared.changedLocked(r.subject.cluster.name)
}

// syncedLocked returns whether every informer of the run is ready; false for no run.
func (r *run) syncedLocked() bool {
	if r == nil || r.lockedState.scopes == scopesUnknown || len(r.lockedState.informers) == 0 {
		return false
	}
	for _, i := range r.lockedState.informers {
		if !i.lockedState.ready {
			return false
		}
	}
	return true
}
