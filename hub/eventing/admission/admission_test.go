package admission

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/ports"
)

const configuration = "capstan-eventingbackends"

var plane = controlplane.Share("capstan")

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(30 * time.Second)
	os.Exit(controlplane.StopShared(m.Run(), os.Stderr, plane))
}

// world is an API server that calls the webhooks as in config/webhook, but by URL: the
// test has no Services.
type world struct {
	g *WithT
	client.Client
	namespace, address string
	registry           *schema.Registry
	warnings           *warnings
	keeper             *Keeper
	server             *Server
}

// warnings that the client received.
type warnings struct {
	mu  sync.Mutex
	all []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if clientgoscheme.AddToScheme(s) != nil || eventingv1.AddToScheme(s) != nil {
		panic("types clash")
	}
	return s
}

func newWorld(t *testing.T, v Validation, d Defaulting) *world {
	t.Helper()
	config := plane.Get(t).Config()
	leaks.AtEnd(t)
	w := &world{g: NewWithT(t), warnings: &warnings{}, namespace: strings.ToLower(t.Name())}
	config.WarningHandler = w.warnings
	var err error
	w.Client, err = client.New(config, client.Options{Scheme: scheme()})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.address, err = ports.Free()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.registry, err = schema.Types(schema.Options{NATSURL: "nats://nats:4222", SQSSourceNamespaces: []string{w.namespace}, SQSSinkNamespaces: []string{w.namespace}})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "webhook"}})
	w.configure(t, "validating_webhook.yaml", &admissionregistrationv1.ValidatingWebhookConfiguration{})
	w.configure(t, "mutating_webhook.yaml", &admissionregistrationv1.MutatingWebhookConfiguration{})
	w.keeper = &Keeper{
		Client: w.Client, Secret: types.NamespacedName{Namespace: w.namespace, Name: "webhook"}, Host: "127.0.0.1",
		Configuration: configuration, Clock: clock.RealClock{}, Logger: logr.Discard(),
	}
	w.server = NewServer(Options{
		BindAddress: w.address, Keeper: w.keeper, Scheme: scheme(), Registry: w.registry, Validation: v, Defaulting: d, Logger: logr.Discard(),
	})
	return w
}

// start the server; the returned function stops it.
func (w *world) start(t *testing.T) func() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Start(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		w.g.Expect(<-ended).To(Succeed())
	})
	t.Cleanup(stop)
	return stop
}

func (w *world) create(t *testing.T, o client.Object) {
	t.Helper()
	w.g.Expect(w.Create(t.Context(), o)).To(Succeed())
	t.Cleanup(func() { w.g.Expect(w.Delete(context.Background(), o)).To(Succeed()) })
}

// configure creates a webhook configuration of config/webhook that calls the test's server.
func (w *world) configure(t *testing.T, file string, o client.Object) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../config/webhook", file))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(yaml.UnmarshalStrict(text, o)).To(Succeed())
	by := func(c *admissionregistrationv1.WebhookClientConfig) {
		url := "https://" + w.address + *c.Service.Path
		c.Service, c.URL = nil, &url
	}
	switch o := o.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		by(&o.Webhooks[0].ClientConfig)
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		by(&o.Webhooks[0].ClientConfig)
	}
	w.create(t, o)
}

func (w *world) object(name, spec string) *eventingv1.EventingBackend {
	b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	w.g.Expect(yaml.UnmarshalStrict([]byte(spec), &b.Spec)).To(Succeed())
	return b
}

// answered waits until the API server calls the webhooks.
func (w *world) answered(t *testing.T) {
	t.Helper()
	w.g.Eventually(func() bool {
		err := w.Create(t.Context(), w.object("probe", "{type: none}"), client.DryRunAll)
		return err != nil || len(w.warnings.take()) > 0
	}).Should(BeTrue())
}

const mistaken = `{type: nats, config: [{maxInFlightMessages: "ten"}, {foo: bar}, {requestTimeout: 1h}]}`

func keys(b *eventingv1.EventingBackend) []string {
	var all []string
	for _, entry := range b.Spec.Config {
		for key, value := range entry {
			all = append(all, key+"="+string(value.Raw))
		}
	}
	return all
}

// By default an invalid object is admitted, with warnings, and gets the required keys with
// a default. The certificate is created and trusted first.
func TestWarn(t *testing.T) {
	w := newWorld(t, Warn, Required)
	ctx := t.Context()
	// The webhooks do not answer yet: the object is admitted.
	w.create(t, w.object("early", mistaken))
	lean := w.object("lean", `{type: sqs, config: [{queueName: events}]}`)
	w.create(t, lean)
	w.g.Expect(w.warnings.take()).To(BeEmpty())
	w.start(t)
	w.answered(t)
	// The API server may call the other webhook later.
	w.g.Eventually(func() map[string]string {
		probe := w.object("probe", "{type: none}")
		w.g.Expect(w.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		return probe.Labels
	}).ShouldNot(BeEmpty())
	w.warnings.take()

	b := w.object("wrong", mistaken)
	w.create(t, b)
	w.g.Expect(w.warnings.take()).To(Equal([]string{
		"spec.config[maxInFlightMessages]: should be of type int invalid-data-type-error",
		"spec.config[foo]: config does not exist for backend type nats unsupported-config-error",
		"spec.config[requestTimeout]: must be set between 100ms and 1m invalid-value-error",
	}))
	w.g.Expect(b.Labels).To(Equal(map[string]string{eventingv1.BackendLabel: eventingv1.BackendLabelValue}))
	w.g.Expect(keys(b)).To(Equal([]string{`maxInFlightMessages="ten"`, `foo="bar"`, `requestTimeout="1h"`}), "nats has no required key here")

	sqs := w.object("sqs", `{type: SQS, config: [{queueName: events}]}`)
	w.create(t, sqs)
	w.g.Expect(w.warnings.take()).To(BeEmpty())
	w.g.Expect(keys(sqs)).To(Equal([]string{`queueName="events"`, `role="sink"`}), "required keys with a default only")

	// An update of other fields adds no defaults.
	lean.Finalizers = []string{eventingv1.BackendFinalizer}
	w.g.Expect(w.Update(ctx, lean)).To(Succeed())
	w.g.Expect(keys(lean)).To(Equal([]string{`queueName="events"`}))
	w.g.Expect(lean.Labels).To(BeEmpty())
	lean.Finalizers = nil
	w.g.Expect(w.Update(ctx, lean)).To(Succeed())

	// An update without a change of the spec has no warnings. A label with another value is
	// not replaced.
	b.Labels = map[string]string{eventingv1.BackendLabel: "mine"}
	b.Finalizers = nil
	w.g.Expect(w.Update(ctx, b)).To(Succeed())
	w.g.Expect(w.warnings.take()).To(BeEmpty())
	w.g.Expect(b.Labels).To(Equal(map[string]string{eventingv1.BackendLabel: "mine"}))
	b.Spec.Type = "kafka"
	w.g.Expect(w.Update(ctx, b)).To(Succeed())
	w.g.Expect(w.warnings.take()).To(Equal([]string{"spec.type: must be one of nats, beb, sqs, http, flux, slack, msteams, commitstatus invalid-value-error"}))
}

// Replicas that have read different versions of the Secret trust the same authorities.
func TestNewestAuthorities(t *testing.T) {
	g := NewWithT(t)
	var authorities [][]byte // The newest is the last.
	for i := range 5 {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		g.Expect(err).NotTo(HaveOccurred())
		c, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "hub", NotBefore: time.Unix(1_700_000_000, 0).Add(time.Duration(i) * time.Hour)}, key)
		g.Expect(err).NotTo(HaveOccurred())
		authority := pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})
		authorities = append(authorities, authority)
	}
	want := slices.Concat(authorities[4], authorities[3], authorities[2])
	g.Expect(newest(slices.Concat(authorities...))).To(Equal(want))
	g.Expect(newest(slices.Concat(authorities[0], authorities[2], want))).To(Equal(want), "an older bundle removes nothing")
	g.Expect(newest([]byte("nothing"))).To(BeEmpty())
}

// With deny, the webhook rejects invalid objects. Existing ones can be labelled and deleted.
func TestDeny(t *testing.T) {
	w := newWorld(t, Deny, Off)
	ctx := t.Context()
	early := w.object("early", mistaken)
	early.Finalizers = []string{eventingv1.BackendFinalizer}
	w.g.Expect(w.Create(ctx, early)).To(Succeed())
	w.start(t)
	w.answered(t)

	w.g.Expect(w.Create(ctx, w.object("wrong", mistaken))).To(MatchError(And(
		ContainSubstring(`is invalid`), ContainSubstring(`spec.config[maxInFlightMessages]: Invalid value: "ten": should be of type int`),
		ContainSubstring("spec.config[foo]: Forbidden: config does not exist for backend type nats"),
		ContainSubstring("spec.config[requestTimeout]"))))
	w.g.Expect(w.Create(ctx, w.object("bus", `{type: nats, config: [{deadLetterBackend: bus}]}`))).To(MatchError(ContainSubstring(
		`spec.config[deadLetterBackend]: Invalid value: "bus": must be the name of another EventingBackend`)))
	good := w.object("good", `{type: nats, config: [{streamStorage: file}]}`)
	w.create(t, good)
	w.g.Expect(good.Labels).To(BeEmpty(), "defaulting is off")
	good.Status = eventingv1.EventingBackendStatus{BackendType: "nats", FixedConfig: map[string]string{"streamStorage": "file"}}
	w.g.Expect(w.Status().Update(ctx, good)).To(Succeed())
	good.Spec = w.object("good", `{type: nats, config: [{streamStorage: memory}]}`).Spec
	w.g.Expect(w.Update(ctx, good)).To(MatchError(ContainSubstring("cannot be changed from file while the backend exists")))

	early.Labels = map[string]string{"team": "a"}
	w.g.Expect(w.Update(ctx, early)).To(Succeed())
	w.g.Expect(w.Delete(ctx, early)).To(Succeed())
	w.g.Expect(w.Get(ctx, client.ObjectKeyFromObject(early), early)).To(Succeed())
	early.Finalizers = nil
	w.g.Expect(w.Update(ctx, early)).To(Succeed())
}

// A certificate that ends soon is replaced. The previous authority stays trusted, for
// replicas that still serve it. Two replicas use the same certificate.
func TestRotation(t *testing.T) {
	w := newWorld(t, Warn, Required)
	ctx := t.Context()
	old, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: "127.0.0.1", MaxAge: renewBefore - time.Hour})
	w.g.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{}
	w.g.Expect(w.Get(ctx, w.keeper.Secret, secret)).To(Succeed())
	secret.Data = map[string][]byte{corev1.TLSCertKey: old, corev1.TLSPrivateKeyKey: key, keyBundle: old}
	w.g.Expect(w.Update(ctx, secret)).To(Succeed())

	other := &Keeper{Client: w.Client, Secret: w.keeper.Secret, Host: w.keeper.Host, Configuration: configuration, Clock: clock.RealClock{}, Logger: logr.Discard()}
	errs := make(chan error, 2)
	for _, k := range []*Keeper{w.keeper, other} {
		go func() { errs <- k.check(ctx) }()
	}
	for range 2 {
		if err := <-errs; err != nil {
			w.g.Expect(err).To(MatchError(ContainSubstring("adding the authority to")), "a conflict, which is retried")
		}
	}
	w.g.Expect(w.keeper.check(ctx)).To(Succeed())
	w.g.Expect(other.check(ctx)).To(Succeed())
	one, err := w.keeper.GetCertificate(nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	two, err := other.GetCertificate(nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(one.Certificate[0]).To(Equal(two.Certificate[0]))
	w.g.Expect(one.Leaf.NotAfter).To(BeTemporally(">", time.Now().Add(lifetime-2*time.Hour)))

	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	w.g.Expect(w.Get(ctx, types.NamespacedName{Name: configuration}, mutating)).To(Succeed())
	roots := x509.NewCertPool()
	w.g.Expect(roots.AppendCertsFromPEM(mutating.Webhooks[0].ClientConfig.CABundle)).To(BeTrue())
	before, err := tls.X509KeyPair(old, key)
	w.g.Expect(err).NotTo(HaveOccurred())
	for _, leaf := range []*x509.Certificate{one.Leaf, before.Leaf} {
		_, err := leaf.Verify(x509.VerifyOptions{DNSName: "127.0.0.1", Roots: roots})
		w.g.Expect(err).NotTo(HaveOccurred())
	}
	version := mutating.ResourceVersion
	w.g.Expect(w.keeper.check(ctx)).To(Succeed())
	w.g.Expect(w.Get(ctx, types.NamespacedName{Name: configuration}, mutating)).To(Succeed())
	w.g.Expect(mutating.ResourceVersion).To(Equal(version), "nothing is written again")

	// A user damages the Secret, or deletes it.
	w.g.Expect(w.Get(ctx, w.keeper.Secret, secret)).To(Succeed())
	secret.Data = map[string][]byte{corev1.TLSCertKey: []byte("x")}
	w.g.Expect(w.Update(ctx, secret)).To(Succeed())
	w.g.Expect(w.keeper.check(ctx)).To(Succeed())
	w.start(t)
	w.answered(t)
	missing := &Keeper{Client: w.Client, Secret: types.NamespacedName{Namespace: w.namespace, Name: "missing"}, Clock: clock.RealClock{}, Logger: logr.Discard()}
	w.g.Expect(missing.check(ctx)).To(MatchError(ContainSubstring("reading Secret " + w.namespace + "/missing")))
	_, err = missing.GetCertificate(nil)
	w.g.Expect(err).To(MatchError(errNoCertificate))
}

// Files of another program are served; a missing file is an error.
func TestFiles(t *testing.T) {
	w := newWorld(t, Warn, Required)
	folder := t.TempDir()
	o := w.server.Options
	o.Keeper, o.CertFile, o.KeyFile = nil, filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	w.server = NewServer(o)
	w.g.Expect(w.server.Start(t.Context())).To(MatchError(ContainSubstring("reading the certificate " + o.CertFile)))

	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(os.WriteFile(o.CertFile, chain, 0o600)).To(Succeed())
	w.g.Expect(os.WriteFile(o.KeyFile, key, 0o600)).To(Succeed())
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	w.g.Expect(w.Get(t.Context(), types.NamespacedName{Name: configuration}, validating)).To(Succeed())
	validating.Webhooks[0].ClientConfig.CABundle = chain
	w.g.Expect(w.Update(t.Context(), validating)).To(Succeed())
	w.start(t)
	w.answered(t)
	w.g.Expect(NewServer(o).Start(t.Context())).To(MatchError(ContainSubstring("address already in use")))
}

func TestFlags(t *testing.T) {
	g := NewWithT(t)
	for _, text := range []string{"warn", "deny"} {
		g.Expect(ParseValidation(text)).To(BeEquivalentTo(text))
	}
	for _, text := range []string{"off", "required"} {
		g.Expect(ParseDefaulting(text)).To(BeEquivalentTo(text))
	}
	_, err := ParseValidation("maybe")
	g.Expect(err).To(MatchError(`"maybe" is not a validation mode: must be warn or deny`))
	_, err = ParseDefaulting("all")
	g.Expect(err).To(MatchError(`"all" is not a defaulting mode: must be off or required`))
}

// The number of warnings is limited.
func TestManyMistakes(t *testing.T) {
	g := NewWithT(t)
	r, err := schema.Types(schema.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	b := &eventingv1.EventingBackend{Spec: eventingv1.EventingBackendSpec{Type: "http"}}
	for i := range 50 {
		b.Spec.Config = append(b.Spec.Config, eventingv1.ConfigEntry{fmt.Sprintf("key%d", i): {Raw: []byte("1")}})
	}
	found, err := validator{registry: r, mode: Warn}.ValidateCreate(t.Context(), b)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(HaveLen(maxWarnings + 1))
	g.Expect(found[maxWarnings]).To(Equal("and 31 more"))

	// Of several hubs that share the webhooks, only the one that serves the namespace knows the settings.
	b.Namespace = "team-b"
	found, err = validator{registry: r, mode: Deny, namespaces: []string{"team-a"}}.ValidateCreate(t.Context(), b)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(BeEmpty())
	_, err = validator{registry: r, mode: Deny, namespaces: []string{"team-a", "team-b"}}.ValidateCreate(t.Context(), b)
	g.Expect(err).To(HaveOccurred())
}
