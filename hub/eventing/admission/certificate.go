package admission

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// lifetime of a certificate. It is renewed renewBefore its end, so that a stopped hub
	// has weeks until then.
	lifetime    = 90 * 24 * time.Hour
	renewBefore = 30 * 24 * time.Hour
	// checkEvery is the time between two checks of the Secret; retryAfter the time after
	// one that failed.
	checkEvery = time.Minute
	retryAfter = 5 * time.Second

	// keyBundle is the key, next to tls.crt and tls.key, of the trusted authorities. The
	// present one is first.
	keyBundle = "ca.crt"
	// maxTrusted is the number of trusted authorities: the present one, and previous ones
	// that a replica may still serve.
	maxTrusted = 3
)

// errNoCertificate is the error of TLS handshakes before there is a certificate.
var errNoCertificate = errors.New("the certificate of the webhooks does not exist yet")

// Keeper renews the certificate of the webhooks in a Secret, and adds its authority to the
// webhook configurations.
type Keeper struct {
	// Client reads from the API server and writes to it.
	Client client.Client
	// Secret of the certificate. It must exist; the Keeper writes its data.
	Secret types.NamespacedName
	// Host that the API server calls, such as capstan-hub-webhook.capstan-system.svc.
	Host string
	// Configuration is the name of both webhook configurations.
	Configuration string
	Clock         clock.WithTicker
	Logger        logr.Logger

	certificate atomic.Pointer[tls.Certificate]
	// logged is the last error that was logged.
	logged string
}

// GetCertificate returns the certificate, for a tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.certificate.Load(); c != nil {
		return c, nil
	}
	return nil, errNoCertificate
}

// Start checks the certificate until the context ends. An error is logged once, and
// retried.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		wait := checkEvery
		switch err := k.check(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			wait = retryAfter
			if k.logged != err.Error() {
				k.logged = err.Error()
				k.Logger.Error(err, "cannot create or renew the certificate of the webhooks; EventingBackends are admitted without validation until then")
			}
		default:
			k.logged = ""
		}
		timer := k.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// check the Secret, and renew its certificate if needed.
func (k *Keeper) check(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := k.Client.Get(ctx, k.Secret, secret); err != nil {
		return fmt.Errorf("reading Secret %s: %w", k.Secret, err)
	}
	pair, err := k.usable(secret.Data)
	if err != nil {
		k.Logger.Info("creating a certificate for the webhooks", "reason", err.Error())
		if err := k.renew(ctx, secret); err != nil {
			return err
		}
		if pair, err = k.usable(secret.Data); err != nil {
			return fmt.Errorf("checking the new certificate: %w", err)
		}
	}
	// The authority must be trusted before the certificate is served.
	if err := k.trust(ctx, secret.Data[keyBundle]); err != nil {
		return err
	}
	k.certificate.Store(pair)
	return nil
}

// usable returns the certificate of a Secret, or an error when it is missing or ends soon.
func (k *Keeper) usable(data map[string][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, errors.New("the Secret has no certificate with its key")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data[keyBundle])
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: k.Host, Roots: roots, CurrentTime: k.Clock.Now().Add(renewBefore)})
	if err != nil {
		return nil, fmt.Errorf("the certificate is not valid for another %s: %w", renewBefore, err)
	}
	return &pair, nil
}

// renew the certificate in a Secret, with its resourceVersion.
func (k *Keeper) renew(ctx context.Context, secret *corev1.Secret) error {
	chain, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: k.Host, MaxAge: lifetime})
	if err != nil {
		return fmt.Errorf("creating a certificate: %w", err)
	}
	// The chain is the certificate and then its authority.
	_, authority := pem.Decode(chain)
	bundle := append(bytes.Clone(authority), secret.Data[keyBundle]...)
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], secret.Data[keyBundle] = chain, key, first(bundle, maxTrusted)
	err = k.Client.Update(ctx, secret)
	if apierrors.IsConflict(err) { // Another replica has renewed it.
		err = k.Client.Get(ctx, k.Secret, secret)
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", k.Secret, err)
	}
	return nil
}

// first returns the first n certificates of a bundle.
func first(bundle []byte, n int) []byte {
	var kept []byte
	for range n {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		kept = append(kept, pem.EncodeToMemory(block)...)
	}
	return kept
}

// newest returns the newest maxTrusted authorities of a bundle, each once. All replicas
// use the same order, so that one that read the Secret before a renewal removes nothing.
func newest(bundle []byte) []byte {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *x509.Certificate) int {
		return cmp.Or(b.NotBefore.Compare(a.NotBefore), bytes.Compare(a.Raw, b.Raw))
	})
	all = slices.CompactFunc(all, (*x509.Certificate).Equal)
	var kept []byte
	for _, c := range all[:min(len(all), maxTrusted)] {
		kept = append(kept, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})...)
	}
	return kept
}

// trust adds a bundle to those of the two webhook configurations that exist.
func (k *Keeper) trust(ctx context.Context, bundle []byte) error {
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := k.patch(ctx, validating, func() {
		for i := range validating.Webhooks {
			to := &validating.Webhooks[i].ClientConfig
			to.CABundle = newest(append(bytes.Clone(bundle), to.CABundle...))
		}
	}); err != nil {
		return err
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	return k.patch(ctx, mutating, func() {
		for i := range mutating.Webhooks {
			to := &mutating.Webhooks[i].ClientConfig
			to.CABundle = newest(append(bytes.Clone(bundle), to.CABundle...))
		}
	})
}

func (k *Keeper) patch(ctx context.Context, o client.Object, edit func()) error {
	err := k.Client.Get(ctx, types.NamespacedName{Name: k.Configuration}, o)
	if apierrors.IsNotFound(err) {
		return nil // The API server does not call the webhook.
	}
	if err != nil {
		return fmt.Errorf("reading %T %s: %w", o, k.Configuration, err)
	}
	before, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", o)
	}
	edit()
	if equality.Semantic.DeepEqual(before, o) {
		return nil
	}
	if err := k.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding the authority to %T %s: %w", o, k.Configuration, err)
	}
	return nil
}
