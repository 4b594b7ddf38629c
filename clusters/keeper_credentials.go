package clusters

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-hub/capstan/clusters/kubeconfig"
)

// readSecretIfDue reads the cluster's Secret the first time, when the watch tells
// of another version, when a request met 401, and when a retry is due.
func (k *keeper) readSecretIfDue(ctx context.Context, object clusterObject) {
	secret, _, err := credentialSource(k.ref, object)
	if err != nil {
		k.unusable(eventSecretMissing, fmt.Sprintf("%s: %s", k.ref, err))
		return
	}
	if secret != k.creds.secret {
		k.creds.read, k.creds.secret = false, secret
	}
	k.m.secrets.want(k.name, secret)
	// The watch may lag behind what was read, so only a version it tells for the
	// first time counts.
	version, known := k.m.secrets.version(secret)
	moved := known && version != k.creds.seenVersion && version != k.creds.readVersion
	if known {
		k.creds.seenVersion = version
	}
	now := k.m.clock.Now()
	retry := !k.creds.retryAt.IsZero() && !now.Before(k.creds.retryAt)
	if !k.creds.read || moved || retry || k.asked.rejected {
		if k.readSecret(ctx) {
			k.asked.rejected = false // the credentials changed, which answers the 401
		}
	}
}

// readSecret reads the Secret and brings the connection in line with it. It is
// true when the credentials changed.
func (k *keeper) readSecret(ctx context.Context) bool {
	object, found := k.m.objects.find(k.ref)
	if found != presencePresent {
		return false
	}
	name, keys, err := credentialSource(k.ref, object)
	if err != nil {
		return false
	}
	call, cancel := context.WithTimeout(ctx, k.m.timings.HubTimeout)
	defer cancel()
	var secret corev1.Secret
	err = k.m.hub.Get(call, name, &secret)
	switch {
	case ctx.Err() != nil:
		return false
	case apierrors.IsNotFound(err):
		k.creds.read, k.creds.readVersion = true, ""
		k.unusable(eventSecretMissing, fmt.Sprintf("Secret %s does not exist: create it with the kubeconfig under the key %q", name, keys[0]))
		return false
	case apierrors.IsForbidden(err):
		k.creds.read = true
		k.creds.retryAt = k.m.clock.Now().Add(k.authWait.wait())
		k.apply(eventSecretForbidden, fmt.Sprintf("the hub may not read Secret %s: give it get, list and watch on secrets in namespace %s", name, name.Namespace))
		return false
	case err != nil:
		k.creds.retryAt = k.m.clock.Now().Add(k.lostWait.wait())
		k.apply(eventHubSilent, fmt.Sprintf("Secret %s cannot be read: %s", name, apierrors.ReasonForError(err)))
		return false
	}
	k.creds.read, k.creds.readVersion = true, secret.ResourceVersion
	for _, key := range keys {
		if raw, ok := secret.Data[key]; ok {
			return k.accept(ctx, raw, fmt.Sprintf("Secret %s, key %q", name, key))
		}
	}
	k.unusable(eventSecretMissing, fmt.Sprintf("Secret %s has no key %q: put the kubeconfig there", name, keys[0]))
	return false
}

// accept judges a kubeconfig and uses it. It is true when the credentials changed.
func (k *keeper) accept(ctx context.Context, raw []byte, source string) bool {
	config, err := kubeconfig.Parse(raw, kubeconfig.Options{AllowLoopback: k.m.options.AllowLoopback})
	if err != nil {
		k.unusable(eventRefused, source+": "+err.Error())
		return false
	}
	fingerprint := config.Fingerprint()
	change := kubeconfig.Classify(k.creds.fingerprint, fingerprint)
	old := k.connection()
	e, next, epoch := eventAccepted, old, k.snapshot().Epoch
	switch {
	case old == nil || change == kubeconfig.Endpoint:
		epoch++
		if next, err = k.m.newConnection(ctx, k, epoch, config); err == nil && old != nil {
			e = eventReplaced
		}
	case change != kubeconfig.Same:
		err = old.transport.SetCredentials(config, change)
	case k.creds.usable:
		k.creds.retryAt = time.Time{}
		return false
	}
	if err != nil {
		k.unusable(eventRefused, source+": "+err.Error())
		return false
	}
	if old != nil && change != kubeconfig.Same {
		k.m.metrics.rotated(change)
	}
	if was := k.outcome(); !k.creds.usable || next != old || !passes(was.State) {
		k.nextProbe = time.Time{} // what was wrong may be mended
	}
	if next != old {
		k.health, k.doubted, k.versionAt = health{}, false, time.Time{}
	}
	k.creds.usable, k.creds.fingerprint, k.creds.retryAt = true, fingerprint, time.Time{}
	k.change(e, "dialling "+config.Server.Host, func(s *keeperState) {
		s.snapshot.Server = config.Server.String()
		s.snapshot.CredentialExpiry = config.Expiry()
		if next != old {
			s.connection, s.snapshot.Epoch = next, epoch
			s.snapshot.ClusterUID, s.snapshot.KubernetesVersion = "", ""
		}
	})
	k.publish()
	if old != nil && next != old {
		old.close() // listeners know of the new one by now
	}
	return true
}

// unusable stops traffic at once.
func (k *keeper) unusable(e event, message string) {
	k.creds.usable = false
	k.creds.retryAt = k.m.clock.Now().Add(k.authWait.wait())
	k.apply(e, message)
}
