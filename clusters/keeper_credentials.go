package clusters

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capstan-hub/capstan/clusters/kubeconfig"
)

// readSecretIfDue reads the cluster's Secret in four cases: the first time, when the watch
// has another version, when a request got 401, and when a retry is due.
func (k *keeper) readSecretIfDue(ctx context.Context, object clusterObject) {
	source, err := clusterKinds[k.ref.Kind].credentials(k.ref, object)
	if err != nil {
		k.unusable(eventSecretMissing, fmt.Sprintf("%s: %s", k.ref, err))
		return
	}
	secret := source.NamespacedName
	if secret != k.creds.secret || source.endpoint != k.creds.endpoint {
		k.creds.read, k.creds.secret, k.creds.endpoint = false, secret, source.endpoint
	}
	k.m.secrets.Want(k.name, secret)
	// The watch may have an older version than the one that was read. So only a version
	// that is new from the watch counts.
	version, known := k.m.secrets.Version(secret)
	moved := known && version != k.creds.seenVersion && version != k.creds.readVersion
	if known {
		k.creds.seenVersion = version
	}
	now := k.m.clock.Now()
	retry := !k.creds.retryAt.IsZero() && !now.Before(k.creds.retryAt)
	if !k.creds.read || moved || retry || k.requested.rejected {
		if k.readSecret(ctx) {
			k.requested.rejected = false // The credentials changed, so no probe is needed.
		}
	}
}

// turn waits for a place to read the Secret for the first time. Later the cluster is in use, and does not wait.
func (k *keeper) turn(ctx context.Context) (release func(), err error) {
	if k.connection() != nil {
		return func() {}, nil
	}
	wait, cancel := context.WithTimeout(ctx, longestTurn)
	defer cancel()
	if release, err = k.m.reads.acquire(wait); err != nil {
		return func() {}, ctx.Err()
	}
	return release, nil
}

// readSecret reads the Secret and updates the connection. It returns true when the
// credentials changed.
func (k *keeper) readSecret(ctx context.Context) bool {
	release, err := k.turn(ctx)
	if err != nil {
		return false
	}
	defer release()
	object, found := k.m.objects.find(k.ref)
	if found != presencePresent {
		return false
	}
	source, err := clusterKinds[k.ref.Kind].credentials(k.ref, object)
	if err != nil {
		return false
	}
	name, keys := source.NamespacedName, source.keys
	call, cancel := context.WithTimeout(ctx, k.m.timings.HubTimeout)
	defer cancel()
	var secret corev1.Secret
	err = k.m.hub.Get(call, name, &secret)
	switch {
	case ctx.Err() != nil:
		return false
	case apierrors.IsNotFound(err):
		k.creds.read, k.creds.readVersion = true, ""
		k.unusable(eventSecretMissing, fmt.Sprintf("Secret %s does not exist: create it with the %s under the key %q%s", name, source.holds, keys[0], source.labelled()))
		return false
	case apierrors.IsForbidden(err):
		k.creds.read = true
		wait := forbiddenWait(k.creds.forbidden, k.m.timings)
		k.creds.forbidden++
		k.creds.retryAt = k.m.clock.Now().Add(wait)
		k.apply(eventSecretForbidden, fmt.Sprintf("the hub may not read Secret %s: %s; the hub checks every %s", name, grantSecrets(name.Namespace), wait))
		return false
	case err != nil:
		k.creds.retryAt = k.m.clock.Now().Add(k.lostWait.Wait())
		k.apply(eventHubUnreadable, fmt.Sprintf("Secret %s cannot be read: %s", name, apierrors.ReasonForError(err)))
		return false
	}
	k.creds.read, k.creds.readVersion, k.creds.forbidden = true, secret.ResourceVersion, 0
	if !source.labels.AsSelector().Matches(labels.Set(secret.Labels)) { // The watch has not reported it yet.
		k.unusable(eventSecretMissing, fmt.Sprintf("Secret %s does not have the label %s, without which it is not used: kubectl label secret -n %s %s %s", name, source.labels, name.Namespace, name.Name, source.labels))
		return false
	}
	for _, key := range keys {
		if raw, ok := secret.Data[key]; ok {
			from := fmt.Sprintf("Secret %s, key %q", name, key)
			if source.kubeconfig != nil {
				if raw, err = source.kubeconfig(raw); err != nil {
					k.unusable(eventRefused, fmt.Sprintf("%s, with %s: %s", k.ref, from, err))
					return false
				}
				from = k.ref.String() + ", with " + from
			}
			return k.accept(ctx, raw, from)
		}
	}
	k.unusable(eventSecretMissing, fmt.Sprintf("Secret %s has no key %q: put the %s there", name, keys[0], source.holds))
	return false
}

// promptChecks is how often a forbidden Secret is read at intervals of ForbiddenRetry.
const promptChecks = 15

// forbiddenWait returns the wait before a Secret is read again that was forbidden n times
// before. No watch reports a new right, and an administrator who grants it waits for the
// effect: the wait is short at first. It has no jitter, because the message names it.
func forbiddenWait(n int, t Timings) time.Duration {
	if n < promptChecks {
		return t.ForbiddenRetry
	}
	return t.AuthRetryMax
}

// accept checks a kubeconfig and uses it. It returns true when the credentials changed.
func (k *keeper) accept(ctx context.Context, raw []byte, source string) bool {
	config, err := kubeconfig.Parse(raw, kubeconfig.Options{AllowLoopback: k.m.options.AllowLoopback})
	if err != nil {
		k.unusable(eventRefused, source+": "+err.Error())
		return false
	}
	change := kubeconfig.Endpoint
	current := k.connection()
	if current != nil {
		change = kubeconfig.Classify(current.fingerprint, config.Fingerprint())
	}
	switch {
	case current == nil:
		err = k.first(ctx, config)
	case change == kubeconfig.Endpoint:
		err = k.addCandidate(ctx, config, source)
	case change == kubeconfig.Same:
		k.dropCandidate()
	default:
		k.dropCandidate()
		err = current.rotate(config, change)
	}
	if err != nil {
		k.unusable(eventRefused, source+": "+err.Error())
		return false
	}
	had := k.creds.usable
	k.creds.usable, k.creds.retryAt = true, time.Time{}
	if (change == kubeconfig.Same && had) || k.handover.candidate != nil {
		return false // The credentials of the connection in use did not change.
	}
	if !had || k.health.rejected > 0 || !passes(k.outcome().State) {
		k.nextProbe, k.health.rejected = time.Time{}, 0 // The cause of the failure may be fixed.
	}
	if current != nil && change != kubeconfig.Same {
		k.m.metrics.rotated(change)
	}
	k.change(eventAccepted, "dialling "+config.Server.Host, func(s *keeperState) {
		s.snapshot.Server = config.Server.String()
		s.snapshot.Credential = config.Validity()
	})
	k.publish()
	return true
}

// first makes the first connection.
func (k *keeper) first(ctx context.Context, config *kubeconfig.Config) error {
	epoch := k.snapshot().Epoch + 1
	connection, err := k.m.newConnection(ctx, epoch, config, k.hooks())
	if err != nil {
		return err
	}
	k.health, k.waits, k.versionAt = health{}, false, time.Time{}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lockedState.connection, k.lockedState.snapshot.Epoch = connection, epoch
	return nil
}

// unusable applies an event about unusable credentials and plans a retry. Requests are not
// sent any more.
func (k *keeper) unusable(e event, message string) {
	k.creds.usable = false
	k.dropCandidate()
	k.creds.retryAt = k.m.clock.Now().Add(k.authWait.Wait())
	k.apply(e, message)
}
