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
	"github.com/capstan-hub/capstan/internal/allowedhosts"
)

// raceDelay is the time for the cache to receive a concurrent or a new write.
const raceDelay = 100 * time.Millisecond

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	select {
	case <-r.started:
	case <-ctx.Done():
		return reconcile.Result{}, ctx.Err()
	}
	if !r.startReconcile() {
		return reconcile.Result{}, nil
	}
	defer r.busy.Done()
	name := request.NamespacedName
	b := &eventingv1.EventingBackend{}
	if err := r.Client.Get(ctx, name, b); apierrors.IsNotFound(err) {
		r.publisher.Remove(name.String(), r.Timings.DrainGrace) // Another client removed the finalizer.
		r.forget(name)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading EventingBackend %s: %w", name, err)
	}
	if b.DeletionTimestamp != nil {
		return retryConflict(r.finalize(ctx, b))
	}
	return retryConflict(r.apply(ctx, b))
}

// startReconcile counts a reconcile, which Start waits for; false after Start has ended.
func (r *Reconciler) startReconcile() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.lockedStopped {
		r.busy.Add(1)
	}
	return !r.lockedStopped
}

// retryConflict requeues after a write conflict, which is no error.
func retryConflict(result reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: raceDelay}, nil
	case errors.Is(err, publisher.ErrStopped):
		return reconcile.Result{}, nil
	}
	return result, client.IgnoreNotFound(err)
}

// apply the spec of an object, and update its status.
func (r *Reconciler) apply(ctx context.Context, b *eventingv1.EventingBackend) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(b)
	e := r.entry(name)
	config, invalid := r.resolve(b)
	var w *desired
	var data map[string][]byte
	var problem string
	toOpen := false
	var err error
	switch {
	case len(invalid) > 0: // The configuration in use stays.
		r.discardNext(e)
	case config.IsSource():
		r.secrets.Drop(name)
		r.release(name, e)
	default:
		if w, data, problem, err = r.desired(ctx, name, config); err == nil && w != nil {
			toOpen, err = r.plan(ctx, b, e, *w)
		}
		if w == nil {
			r.discardNext(e)
		} else if e.refused != nil {
			problem = e.refusedReason
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
		if err := r.connect(name, e, *w, data); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{RequeueAfter: raceDelay}, nil
	}
	return reconcile.Result{RequeueAfter: min(r.Timings.Recheck, r.recordDropped(b, e))}, nil
}

// resolve a spec to its configuration, or to its validation errors.
func (r *Reconciler) resolve(b *eventingv1.EventingBackend) (schema.Config, []eventingv1.ValidationError) {
	config, invalid := r.Registry.Resolve(b)
	if len(invalid) == 0 && b.Status.BackendType == config.Type {
		invalid = config.CheckFixed(b.Status.FixedConfig)
	}
	if len(invalid) > 0 {
		return schema.Config{}, invalid
	}
	return config, nil
}

// desired returns a configuration with its Secret, or the problem why it cannot be used.
// An error is from the API server.
func (r *Reconciler) desired(ctx context.Context, name types.NamespacedName, config schema.Config) (*desired, map[string][]byte, string, error) {
	w := &desired{config: config}
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
	w.secret, w.hosts = digest(secret.Data), allowedhosts.Of(secret.Annotations, r.RequireSecretHosts)
	if secret.Data == nil {
		secret.Data = map[string][]byte{} // The Secret exists and is empty.
	}
	return w, secret.Data, "", nil
}

// digest of a Secret's data. fmt sorts the keys of a map.
func digest(data map[string][]byte) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q", data))
}

// plan the next step to a desired configuration; true when it must be opened.
func (r *Reconciler) plan(ctx context.Context, b *eventingv1.EventingBackend, e *entry, w desired) (toOpen bool, err error) {
	if r.isLeader() && !controllerutil.ContainsFinalizer(b, eventingv1.BackendFinalizer) {
		if err := r.setFinalizer(ctx, b, true); err != nil {
			return false, err
		}
	}
	if e.refused != nil && e.refused.equal(w) {
		r.discardNext(e)
		return false, nil
	}
	e.refused = nil
	switch {
	case e.active != nil && e.active.equal(w):
		r.discardNext(e)
		return false, nil
	case e.next == nil || !e.next.equal(w):
		r.discardNext(e)
		return true, nil
	case e.next.health().healthy():
		return false, r.activate(client.ObjectKeyFromObject(b), e)
	}
	return false, nil
}

// connect a configuration. The first one is used at once, so that events queue.
func (r *Reconciler) connect(name types.NamespacedName, e *entry, w desired, data map[string][]byte) error {
	if err := r.withhold(name, e, w, data); err != nil {
		return err
	}
	c, err := r.open(name, w, data)
	if err != nil {
		e.refused, e.refusedReason = &w, err.Error()
		if ref := secretOf(w.config); ref != "" {
			e.refusedReason = fmt.Sprintf("secretRef %s: %v", ref, err)
		}
		return nil //nolint:nilerr // The status shows it.
	}
	e.next = c
	if e.active == nil {
		return r.activate(name, e)
	}
	return nil
}

// facts at present. opening: the desired configuration is about to be opened.
func (r *Reconciler) facts(ctx context.Context, b *eventingv1.EventingBackend, e *entry, config schema.Config, opening bool) facts {
	var f facts
	if s, known := r.Registry.Schema(b.Spec.Type); known {
		f.specType = s.Type
	}
	name := client.ObjectKeyFromObject(b)
	switch {
	case e.active != nil:
		f.activeType, f.fixed, f.replacing = e.active.config.Type, e.active.config.Fixed(), opening || e.next != nil
		f.withheld = e.active.withheld()
		h := e.active.health()
		if e.next != nil {
			h = e.next.health()
		}
		f.checked = h.checked
		if h.err != nil {
			f.fault = h.err.Error()
		}
		if s, known := r.publisher.Status(name.String()); known {
			f.published = &s
			d := published(s)
			f.delivery = &d
			if s.Taking || s.LastError == nil {
				e.heldError = nil
			} else if e.heldError == nil || e.heldError.Code != s.LastError.Code {
				e.heldError = s.LastError
			}
			s.LastError = e.heldError
		}
		f.deadLetter = r.deadLetter(ctx, name.Namespace, e.active.config)
	case config.IsSource() && r.Reading == nil:
		f.source, f.problem = true, "AWS is not configured for this hub, so it cannot read SQS queues"
	case r.Reading != nil:
		f.source = config.IsSource()
		if reading, known := r.Reading(name); known {
			f.source, f.activeType = true, reading.Config.Type
			f.replacing = config.Type != "" && !reading.Config.Equal(config)
			f.checked, f.fault, f.note = reading.Ready || reading.Message != "", reading.Message, reading.Note
			f.delivery = &reading.Delivery
		}
	}
	return f
}

// deadLetter returns the problem of the dead letter backend of a configuration; empty when
// there is none.
func (r *Reconciler) deadLetter(ctx context.Context, namespace string, c schema.Config) string {
	name := c.String(keyDeadLetter)
	if name == "" {
		return ""
	}
	other := &eventingv1.EventingBackend{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, other); apierrors.IsNotFound(err) {
		return fmt.Sprintf("EventingBackend %s of deadLetterBackend does not exist in namespace %s", name, namespace)
	}
	if config, invalid := r.Registry.Resolve(other); len(invalid) == 0 && config.IsSource() {
		return fmt.Sprintf("EventingBackend %s of deadLetterBackend has role source: the hub cannot publish to it", name)
	}
	return ""
}

// deadLetterUsers maps an EventingBackend to those that send their dead letters to it.
func (r *Reconciler) deadLetterUsers(_ context.Context, o client.Object) []reconcile.Request {
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

// write the status of the facts if it has changed and this replica is the leader, and
// create Events for it.
func (r *Reconciler) write(ctx context.Context, b *eventingv1.EventingBackend, e *entry, f facts) error {
	if !r.isLeader() {
		return nil
	}
	known := b.Status.ObservedGeneration == b.Generation && len(b.Status.Conditions) > 0
	if !f.settled() && !e.statusKnown && known {
		return nil // Keep the status of the previous leader until this one has pinged.
	}
	if !e.statusKnown {
		e.restoreReported(b.Status)
	}
	now := r.Clock.Now()
	f.delivery = e.delivery(b.Status.Delivery, f.delivery, now, r.Timings.Delivery)
	written := !equality.Semantic.DeepEqual(f.delivery, b.Status.Delivery)
	next := b.DeepCopy()
	next.Status = f.status(b.Status, b.Generation, metav1.NewTime(now.Truncate(time.Second)))
	// A cache that does not have the last write yet may already equal the status to be
	// written. An empty patch with the old resourceVersion then fails with a conflict.
	behind := e.lastWritten != nil && !equality.Semantic.DeepEqual(b.Status, *e.lastWritten)
	if behind || !equality.Semantic.DeepEqual(b.Status, next.Status) {
		if err := r.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(b, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("writing the status of EventingBackend %s/%s: %w", b.Namespace, b.Name, err)
		}
		*b = *next
	}
	e.statusKnown, e.lastWritten = true, b.Status.DeepCopy()
	if written {
		e.deliveryWritten = now
	}
	if f.settled() {
		r.recordEvents(b, e)
	}
	return nil
}

// setFinalizer adds or removes the finalizer of an object.
func (r *Reconciler) setFinalizer(ctx context.Context, b *eventingv1.EventingBackend, on bool) error {
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
