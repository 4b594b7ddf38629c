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
	// lifetime of a certificate; renewBefore its end another is made. Both leave weeks
	// to a hub that stands still.
	lifetime    = 90 * 24 * time.Hour
	renewBefore = 30 * 24 * time.Hour
	// lookEvery is the time between two looks at the Secret; lookAgain after one that
	// failed.
	lookEvery = time.Minute
	lookAgain = 5 * time.Second

	// keyBundle holds, beside tls.crt and tls.key, the authorities that are trusted: the
	// present one first.
	keyBundle = "ca.crt"
	// maxTrusted authorities: the present one, and those before it that a replica may
	// still serve.
	maxTrusted = 3
)

// errNoCertificate is what a client is told before there is one.
var errNoCertificate = errors.New("there is no certificate yet")

// Keeper keeps the certificate of the webhooks in a Secret, and has the webhook
// configurations trust it.
type Keeper struct {
	// Client reads and writes at the API server.
	Client client.Client
	// Secret that there is, and that the Keeper writes.
	Secret types.NamespacedName
	// Host that the API server calls, such as capstan-hub-webhook.capstan-system.svc.
	Host string
	// Configuration is the name of both webhook configurations.
	Configuration string
	Clock         clock.WithTicker
	Logger        logr.Logger

	certificate atomic.Pointer[tls.Certificate]
	// said is the newest failure that was logged.
	said string
}

// GetCertificate is for a tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.certificate.Load(); c != nil {
		return c, nil
	}
	return nil, errNoCertificate
}

// Start keeps the certificate until the context ends. What fails is logged once, and
// tried again.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		wait := lookEvery
		switch err := k.look(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			wait = lookAgain
			if k.said != err.Error() {
				k.said = err.Error()
				k.Logger.Error(err, "the certificate of the webhooks cannot be kept; EventingBackends are admitted without them")
			}
		default:
			k.said = ""
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

// look at the Secret, and do what it calls for.
func (k *Keeper) look(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := k.Client.Get(ctx, k.Secret, secret); err != nil {
		return fmt.Errorf("reading Secret %s: %w", k.Secret, err)
	}
	pair, err := k.usable(secret.Data)
	if err != nil {
		k.Logger.Info("making a certificate for the webhooks", "why", err.Error())
		if err := k.renew(ctx, secret); err != nil {
			return err
		}
		if pair, err = k.usable(secret.Data); err != nil {
			return fmt.Errorf("the certificate that was made: %w", err)
		}
	}
	// Trusted first, served then.
	if err := k.trust(ctx, secret.Data[keyBundle]); err != nil {
		return err
	}
	k.certificate.Store(pair)
	return nil
}

// usable pair of a Secret; else the reason why it is not.
func (k *Keeper) usable(data map[string][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, errors.New("the Secret holds no pair of certificate and key")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data[keyBundle])
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: k.Host, Roots: roots, CurrentTime: k.Clock.Now().Add(renewBefore)})
	if err != nil {
		return nil, fmt.Errorf("the certificate is not good for %s more: %w", renewBefore, err)
	}
	return &pair, nil
}

// renew the certificate in a Secret, on its resourceVersion.
func (k *Keeper) renew(ctx context.Context, secret *corev1.Secret) error {
	chain, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: k.Host, MaxAge: lifetime})
	if err != nil {
		return fmt.Errorf("making a certificate: %w", err)
	}
	// The certificate comes first, its authority second.
	_, authority := pem.Decode(chain)
	bundle := append(bytes.Clone(authority), secret.Data[keyBundle]...)
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], secret.Data[keyBundle] = chain, key, first(bundle, maxTrusted)
	err = k.Client.Update(ctx, secret)
	if apierrors.IsConflict(err) { // Another replica was faster.
		err = k.Client.Get(ctx, k.Secret, secret)
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", k.Secret, err)
	}
	return nil
}

// first n certificates of a bundle.
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

// newest maxTrusted authorities of a bundle, each once, in an order that all replicas agree on: one
// that has read the Secret before another renewed it takes nothing back.
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

// trust a bundle in both webhook configurations, those of them that there are.
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
		return nil // Nobody asks.
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
		return fmt.Errorf("having %T %s trust the certificate: %w", o, k.Configuration, err)
	}
	return nil
}
