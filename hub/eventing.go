package hub

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/eventing/admission"
	"github.com/capstan-hub/capstan/hub/eventing/backend"
	"github.com/capstan-hub/capstan/hub/eventing/discovery"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/outbox"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/internal/collectors"
)

const (
	// DefaultName of a hub in the source of its events.
	DefaultName = "capstan"

	// publisherDrain is shorter than shutdownGrace, so that the other parts can end, too.
	publisherDrain = 15 * time.Second
	// identityTimeout bounds the request for the management cluster's identity.
	identityTimeout = 30 * time.Second

	// webhookService is the Service of the webhooks, and webhookConfiguration the name of
	// both webhook configurations: config/webhook.
	webhookService       = "capstan-hub-webhook"
	webhookConfiguration = "capstan-eventingbackends"
)

// Eventing is the part of the Options that says how events are published.
type Eventing struct {
	// Name of the hub in the source of its events; DefaultName if empty.
	Name string
	// NATSURL is the default of the key url of backends of type nats; none if empty.
	NATSURL string
	// APIBindAddress of discovery, such as ":8091"; "0" or empty for none.
	APIBindAddress string
	// APIURL is the external URL of discovery, for the attribute dataschema. If empty, events
	// do not have the attribute.
	APIURL string
	// Webhooks is how EventingBackends are validated and defaulted when they are applied.
	Webhooks Webhooks
	// AllowLoopback lets backends be on this machine.
	AllowLoopback bool
	// Timings that are not zero replace the defaults.
	Timings backend.Timings
}

// Webhooks says how the webhooks for the API server are served. They are served if there is
// a Secret or a file for their certificate.
type Webhooks struct {
	// BindAddress, such as ":9443".
	BindAddress string
	// Secret in which the hub keeps their certificate.
	Secret types.NamespacedName
	// CertFile and KeyFile are files that the hub does not manage.
	CertFile, KeyFile string
	// Validation and Defaulting; Warn and Required if empty.
	Validation admission.Validation
	Defaulting admission.Defaulting
}

// eventing publishes the hub's events.
type eventing struct {
	telling
	registry   *schema.Registry
	reconciler *backend.Reconciler
	queues     *queueReadings
}

// addEventing publishes events to backends. Every replica publishes its events. Only the
// leader observes the outcome of promotions and the states of clusters, and writes status.
func addEventing(mgr manager.Manager, o Options) (*eventing, error) {
	log := o.Logger.WithName("eventing")
	registry, err := schema.Types(schema.Options{NATSURL: o.Eventing.NATSURL})
	if err != nil {
		return nil, err
	}
	uid, err := identity(mgr.GetAPIReader())
	if err != nil {
		return nil, err
	}
	e := &eventing{registry: registry, queues: &queueReadings{}}
	self := event.Hub{Name: o.Eventing.Name, UID: uid}
	if o.Eventing.APIURL != "" {
		self.SchemaBase = o.Eventing.APIURL + discovery.SchemasPath
	}
	// The outbox bounds its own requests. A client-side limit would lose records that it
	// writes at shutdown.
	unlimited := rest.CopyConfig(mgr.GetConfig())
	unlimited.QPS, unlimited.RateLimiter = -1, nil
	records, err := client.New(unlimited, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making the outbox's client: %w", err)
	}
	box := outbox.New(outbox.Options{Hub: self, Cache: mgr.GetCache(), Client: records, Clock: o.Clock, Logger: log.WithName("outbox")})
	secrets, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("wiring the watch of Secrets: %w", err)
	}
	options := backend.Options{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Metadata: secrets, Registry: registry,
		Openers:   backend.Openers(backend.World{Hub: o.Eventing.Name, AWS: o.AWS, AllowLoopback: o.Eventing.AllowLoopback, Clock: o.Clock}),
		Publisher: publisher.Options{Sources: []publisher.Source{box}, Drain: publisherDrain, Logger: log.WithName("publisher")},
		Elected:   mgr.Elected(), Recorder: mgr.GetEventRecorder(reporter), Timings: o.Eventing.Timings, Clock: o.Clock, Logger: log,
	}
	if o.AWS != nil {
		options.Reading = e.queues.of
	}
	e.reconciler = backend.New(options)
	e.telling = telling{publisher: e.reconciler.Publisher(), hub: self, clock: o.Clock}
	// The outbox and the publisher need each other: the outbox is a source of the publisher,
	// and publishes through it.
	box.PublishTo(e.reconciler.Publisher())
	if err := mgr.Add(box); err != nil {
		return nil, err
	}
	if err := e.reconciler.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	if _, err := collectors.Register(o.Registerer, e.reconciler.Publisher(), &backend.Collector{Reader: mgr.GetCache()}); err != nil {
		return nil, err
	}
	if o.Eventing.APIBindAddress != "0" {
		if err := mgr.Add(&discovery.Server{BindAddress: o.Eventing.APIBindAddress, Registry: registry, Logger: log}); err != nil {
			return nil, err
		}
	}
	return e, addWebhooks(mgr, registry, o)
}

// addWebhooks adds the webhooks to the manager, if there is a certificate or a Secret for
// one.
func addWebhooks(mgr manager.Manager, registry *schema.Registry, o Options) error {
	w := o.Eventing.Webhooks
	server := admission.Options{
		BindAddress: w.BindAddress, CertFile: w.CertFile, KeyFile: w.KeyFile, Scheme: mgr.GetScheme(), Registry: registry,
		Validation: w.Validation, Defaulting: w.Defaulting, Logger: o.Logger.WithName("webhooks"),
	}
	switch {
	case w.Secret.Name != "":
		// The Secret and the configurations are read by name: no cache may list them.
		direct, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
		if err != nil {
			return fmt.Errorf("making the webhooks' client: %w", err)
		}
		server.Keeper = &admission.Keeper{
			Client: direct, Secret: w.Secret, Host: webhookService + "." + w.Secret.Namespace + ".svc",
			Configuration: webhookConfiguration, Clock: o.Clock, Logger: server.Logger,
		}
	case w.CertFile == "":
		return nil
	}
	return mgr.Add(admission.NewServer(server))
}

// identity returns the identity of the management cluster, which distinguishes the events
// of two hubs with the same name.
func identity(reader client.Reader) (types.UID, error) {
	ctx, cancel := context.WithTimeout(context.Background(), identityTimeout) //nolint:forbidigo // A hub is wired without one.
	defer cancel()
	system := &corev1.Namespace{}
	if err := reader.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("reading the identity of the management cluster (Namespace kube-system): %w", err)
	}
	return system.UID, nil
}
