package backend

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// raceDelay lets the cache catch up with what won a race, or was just begun.
const raceDelay = 100 * time.Millisecond

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	select {
	case <-r.started:
	case <-ctx.Done():
		return reconcile.Result{}, ctx.Err()
	}
	if !r.enter() {
		return reconcile.Result{}, nil
	}
	defer r.busy.Done()
	name := request.NamespacedName
	b := &eventingv1.EventingBackend{}
	if err := r.Client.Get(ctx, name, b); apierrors.IsNotFound(err) {
		r.publisher.Remove(name.String(), drainGrace) // The finalizer was taken away.
		r.forget(name)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading EventingBackend %s: %w", name, err)
	}
	if b.DeletionTimestamp != nil {
		return again(r.end(ctx, b))
	}
	return again(r.bring(ctx, b))
}

// enter a reconcile, which Start waits for; false when it is over.
func (r *Reconciler) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.lockedOver {
		r.busy.Add(1)
	}
	return !r.lockedOver
}

// again turns a lost race into another look, which is no error.
func again(result reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: raceDelay}, nil
	case errors.Is(err, publisher.ErrStopped):
		return reconcile.Result{}, nil
	}
	return result, client.IgnoreNotFound(err)
}

// bring about what the object says, and its status up to date.
func (r *Reconciler) bring(ctx context.Context, b *eventingv1.EventingBackend) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(b)
	e := r.entry(name)
	config, invalid := r.resolve(b)
	var w *wanted
	var data map[string][]byte
	var problem string
	toOpen := false
	var err error
	switch {
	case len(invalid) > 0: // What is in use stays so.
		r.abandon(e)
	case isSource(config):
		r.secrets.Drop(name)
		r.release(name, e)
	default:
		if w, data, problem, err = r.wanted(ctx, name, config); err == nil && w != nil {
			toOpen, err = r.approach(ctx, b, e, *w)
		}
		if w == nil {
			r.abandon(e)
		} else if e.refused != nil {
			problem = e.why
		}
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	f := r.facts(ctx, b, e, config, toOpen)
	f.invalid = invalid
	f.problem = cmp.Or(f.problem, problem)
	if err := r.write(ctx, b, e, f); err != nil {
		return reconcile.Result{}, err
	}
	if toOpen {
		if err := r.begin(name, e, *w, data); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{RequeueAfter: raceDelay}, nil
	}
	return reconcile.Result{RequeueAfter: min(r.Timings.Recheck, r.tellGivenUp(b, e))}, nil
}

// resolve a spec: its configuration, or what is wrong with it.
func (r *Reconciler) resolve(b *eventingv1.EventingBackend) (schema.Config, []eventingv1.ValidationError) {
	config, invalid := r.Registry.Resolve(b.Spec)
	if len(invalid) > 0 {
		return config, invalid
	}
	if b.Status.BackendType == config.Type {
		invalid = config.Moved(b.Status.FixedConfig)
	}
	invalid = append(invalid, config.Named(b.Name)...)
	if len(invalid) > 0 {
		return schema.Config{}, invalid
	}
	return config, nil
}

// wanted configuration with its Secret; or the problem why it cannot be used. An error is
// of the API server.
func (r *Reconciler) wanted(ctx context.Context, name types.NamespacedName, config schema.Config) (*wanted, map[string][]byte, string, error) {
	w := &wanted{config: config}
	ref := secretOf(config)
	if ref == "" {
		r.secrets.Drop(name)
		return w, nil, "", nil
	}
	key := types.NamespacedName{Namespace: name.Namespace, Name: ref}
	r.secrets.Want(name, key)
	secret := &corev1.Secret{}
	switch err := r.APIReader.Get(ctx, key, secret); {
	case apierrors.IsNotFound(err):
		return nil, nil, fmt.Sprintf("Secret %s of secretRef does not exist in namespace %s", ref, name.Namespace), nil
	case apierrors.IsForbidden(err):
		return nil, nil, fmt.Sprintf("the hub may not read Secret %s of secretRef: apply config/rbac/backend-secrets to namespace %s", ref, name.Namespace), nil
	case err != nil:
		return nil, nil, "", fmt.Errorf("reading Secret %s: %w", key, err)
	}
	w.secret = digest(secret.Data)
	if secret.Data == nil {
		secret.Data = map[string][]byte{} // There is one, and it is empty.
	}
	return w, secret.Data, "", nil
}

// digest of a Secret's data. fmt prints maps in the order of their keys.
func digest(data map[string][]byte) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q", data))
}

// approach a wanted configuration; true when it must be opened first.
func (r *Reconciler) approach(ctx context.Context, b *eventingv1.EventingBackend, e *entry, w wanted) (toOpen bool, err error) {
	if r.leads() && !controllerutil.ContainsFinalizer(b, eventingv1.BackendFinalizer) {
		if err := r.hold(ctx, b, true); err != nil {
			return false, err
		}
	}
	if e.refused != nil && e.refused.equal(w) {
		r.abandon(e)
		return false, nil
	}
	e.refused = nil
	switch {
	case e.active != nil && e.active.equal(w):
		r.abandon(e)
		return false, nil
	case e.next == nil || !e.next.equal(w):
		r.abandon(e)
		return true, nil
	case e.next.health().good():
		return false, r.use(client.ObjectKeyFromObject(b), e)
	}
	return false, nil
}

// begin a configuration: the first is used at once, so that events queue.
func (r *Reconciler) begin(name types.NamespacedName, e *entry, w wanted, data map[string][]byte) error {
	c, err := r.open(name, w, data)
	if err != nil {
		e.refused, e.why = &w, err.Error()
		if ref := secretOf(w.config); ref != "" {
			e.why = fmt.Sprintf("secretRef %s: %v", ref, err)
		}
		return nil //nolint:nilerr // The status tells.
	}
	e.next = c
	if e.active == nil {
		return r.use(name, e)
	}
	return nil
}

// facts as they are now; opening tells that the wanted configuration is about to be opened.
func (r *Reconciler) facts(ctx context.Context, b *eventingv1.EventingBackend, e *entry, config schema.Config, opening bool) facts {
	var f facts
	if s, known := r.Registry.Schema(b.Spec.Type); known {
		f.wants = s.Type
	}
	name := client.ObjectKeyFromObject(b)
	switch {
	case e.active != nil:
		f.uses, f.fixed, f.moving = e.active.config.Type, e.active.config.Fixed(), opening || e.next != nil
		h := e.active.health()
		if e.next != nil {
			h = e.next.health()
		}
		f.asked = h.asked
		if h.err != nil {
			f.fault = h.err.Error()
		}
		if s, known := r.publisher.Status(name.String()); known {
			f.published = &s
			if s.Taking || s.LastError == nil {
				e.held = nil
			} else if e.held == nil || e.held.Code != s.LastError.Code {
				e.held = s.LastError
			}
			s.LastError = e.held
		}
		f.deadLetter = r.deadLetter(ctx, name.Namespace, e.active.config)
	case config.Type != "" && isSource(config) && r.Reading == nil:
		f.source, f.problem = true, "this hub reads no queues of AWS"
	case r.Reading != nil:
		f.source = config.Type != "" && isSource(config)
		if reading, known := r.Reading(name); known {
			f.source, f.uses = true, reading.Config.Type
			f.moving = config.Type != "" && !reading.Config.Equal(config)
			f.asked, f.fault = reading.Ready || reading.Message != "", reading.Message
		}
	}
	return f
}

// deadLetter is what is wrong with the dead letter backend of a configuration.
func (r *Reconciler) deadLetter(ctx context.Context, namespace string, c schema.Config) string {
	name := c.String(keyDeadLetter)
	if name == "" {
		return ""
	}
	other := &eventingv1.EventingBackend{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, other); apierrors.IsNotFound(err) {
		return fmt.Sprintf("EventingBackend %s of deadLetterBackend does not exist in namespace %s", name, namespace)
	}
	if config, invalid := r.Registry.Resolve(other.Spec); len(invalid) == 0 && isSource(config) {
		return fmt.Sprintf("EventingBackend %s of deadLetterBackend is a source: nothing can be published to it", name)
	}
	return ""
}

// namedBy maps an EventingBackend to those whose dead letters it gets.
func (r *Reconciler) namedBy(_ context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, e := range r.lockedEntries {
		if name.Namespace == o.GetNamespace() && e.lockedDeadLetter == o.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: name})
		}
	}
	return requests
}

// write the status that follows of the facts, if this replica leads and it is another,
// and tell of it.
func (r *Reconciler) write(ctx context.Context, b *eventingv1.EventingBackend, e *entry, f facts) error {
	if !r.leads() {
		return nil
	}
	known := b.Status.ObservedGeneration == b.Generation && len(b.Status.Conditions) > 0
	if !f.settled() && !e.wrote && known {
		return nil // Another replica led: what it wrote holds until this one has asked.
	}
	if !e.wrote {
		e.remember(b.Status)
	}
	next := b.DeepCopy()
	next.Status = f.status(b.Status, b.Generation, metav1.NewTime(r.Clock.Now().Truncate(time.Second)))
	// A cache that has not caught up with what was written last may show what is to be
	// written now: then the patch, though it is empty, conflicts.
	behind := e.written != nil && !equality.Semantic.DeepEqual(b.Status, *e.written)
	if behind || !equality.Semantic.DeepEqual(b.Status, next.Status) {
		if err := r.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(b, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("writing the status of EventingBackend %s/%s: %w", b.Namespace, b.Name, err)
		}
		*b = *next
	}
	e.wrote, e.written = true, b.Status.DeepCopy()
	if f.settled() {
		r.tell(b, e)
	}
	return nil
}

// hold an object by the finalizer, or let it go.
func (r *Reconciler) hold(ctx context.Context, b *eventingv1.EventingBackend, on bool) error {
	before := b.DeepCopy()
	if on {
		controllerutil.AddFinalizer(b, eventingv1.BackendFinalizer)
	} else {
		controllerutil.RemoveFinalizer(b, eventingv1.BackendFinalizer)
	}
	if err := r.Client.Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the finalizer of EventingBackend %s/%s: %w", b.Namespace, b.Name, err)
	}
	return nil
}
