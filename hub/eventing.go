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
	"github.com/capstan-hub/capstan/internal/hubname"
)

const (
	// DefaultName is the default of Eventing.Name.
	DefaultName = hubname.Default

	// publisherDrain is shorter than shutdownGrace, to leave time for the rest of the hub.
	publisherDrain = 15 * time.Second
	// identityTimeout bounds the request for the management cluster's identity.
	identityTimeout = 30 * time.Second

	// webhookService is the Service of the webhooks, and webhookConfiguration the name of
	// both webhook configurations: config/webhook.
	webhookService       = "capstan-hub-webhook"
	webhookConfiguration = "capstan-eventingbackends"
)

// Eventing has the Options of publishing events.
type Eventing struct {
	// Name of the hub in the source of its events; DefaultName if empty.
	Name string
	// NATSURL is the default of the key url of type nats; empty for no default.
	NATSURL string
	// SQSSourceNamespaces and SQSSinkNamespaces are the namespaces whose EventingBackends of
	// type sqs are used, by role (schema.Options); none if empty.
	SQSSourceNamespaces, SQSSinkNamespaces []string
	// APIBindAddress of discovery, such as ":8091"; "0" or empty turns it off.
	APIBindAddress string
	// APIURL is the external URL of discovery, for the attribute dataschema. When it is
	// empty, events have no dataschema.
	APIURL string
	// Webhooks validate EventingBackends and set their defaults.
	Webhooks Webhooks
	// AllowLoopback allows brokers on this machine.
	AllowLoopback bool
	// Timings of the reconciler; zero means the default.
	Timings backend.Timings
}

// Webhooks has the Options of the webhooks. They are served when Secret or CertFile is set.
type Webhooks struct {
	// BindAddress is the address to listen on, such as ":9443".
	BindAddress string
	// Secret for the certificate that the hub creates and renews.
	Secret types.NamespacedName
	// CertFile and KeyFile are renewed by another program.
	CertFile, KeyFile string
	// Validation and Defaulting; Warn and Required if empty.
	Validation admission.Validation
	Defaulting admission.Defaulting
}

// eventing has the components that publish events.
type eventing struct {
	telling
	registry   *schema.Registry
	reconciler *backend.Reconciler
	queues     *queueReadings
}

// addEventing adds the components that publish events to backends. Every replica publishes
// its own events. Only the leader publishes those of promotions and clusters, and writes
// status.
func addEventing(mgr manager.Manager, o Options) (*eventing, error) {
	log := o.Logger.WithName("eventing")
	registry, err := schema.Types(schema.Options{
		NATSURL: o.Eventing.NATSURL, EventsAddress: o.EventsAddress, SQSSourceNamespaces: o.Eventing.SQSSourceNamespaces, SQSSinkNamespaces: o.Eventing.SQSSinkNamespaces,
	})
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
	// The outbox limits its concurrent requests itself. A client-side rate limit would delay
	// its last records beyond the shutdown.
	unlimited := rest.CopyConfig(mgr.GetConfig())
	unlimited.QPS, unlimited.RateLimiter = -1, nil
	records, err := client.New(unlimited, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("creating the client of the outbox: %w", err)
	}
	box := outbox.New(outbox.Options{Hub: self, Cache: mgr.GetCache(), Client: records, Clock: o.Clock, Logger: log.WithName("outbox")})
	secrets, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("wiring the watch of Secrets: %w", err)
	}
	options := backend.Options{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Metadata: secrets, Registry: registry, RequireSecretHosts: o.RequireSecretHosts,
		Openers:   backend.Openers(backend.SinkOptions{Hub: o.Eventing.Name, HubID: string(uid), AWS: o.AWS, DashboardURL: o.Dashboard.URL, GitProxy: o.GitProxy, AllowLoopback: o.Eventing.AllowLoopback, Clock: o.Clock}),
		Publisher: publisher.Options{Sources: []publisher.Source{box}, Drain: publisherDrain, Logger: log.WithName("publisher")},
		Elected:   mgr.Elected(), Recorder: mgr.GetEventRecorder(reporter), Timings: o.Eventing.Timings, Clock: o.Clock, Logger: log,
	}
	if o.AWS != nil {
		options.Reading = e.queues.of
	}
	e.reconciler = backend.New(options)
	e.telling = telling{publisher: e.reconciler.Publisher(), hub: self, clock: o.Clock}
	// The outbox and the publisher reference each other: the outbox is a source of the
	// publisher, and publishes through it.
	box.PublishTo(e.reconciler.Publisher())
	if err := mgr.Add(box); err != nil {
		return nil, err
	}
	if err := e.reconciler.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	if _, err := collectors.Register(o.Registerer, e.reconciler.Publisher(), box, &backend.Collector{Reader: mgr.GetCache()}); err != nil {
		return nil, err
	}
	if o.Eventing.APIBindAddress != "0" {
		if err := mgr.Add(&discovery.Server{BindAddress: o.Eventing.APIBindAddress, Registry: registry, Logger: log}); err != nil {
			return nil, err
		}
	}
	return e, addWebhooks(mgr, registry, o)
}

// addWebhooks adds the webhooks to the manager, if a Secret or a file is configured.
func addWebhooks(mgr manager.Manager, registry *schema.Registry, o Options) error {
	w := o.Eventing.Webhooks
	server := admission.Options{
		BindAddress: w.BindAddress, CertFile: w.CertFile, KeyFile: w.KeyFile, Scheme: mgr.GetScheme(), Registry: registry, Namespaces: o.Namespaces,
		Validation: w.Validation, Defaulting: w.Defaulting, Logger: o.Logger.WithName("webhooks"),
	}
	switch {
	case w.Secret.Name != "":
		// The Secret and the configurations are read by name: no cache may list them.
		direct, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
		if err != nil {
			return fmt.Errorf("creating the client of the webhooks: %w", err)
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

// identity of the management cluster: it distinguishes the events of hubs with equal names.
func identity(reader client.Reader) (types.UID, error) {
	ctx, cancel := context.WithTimeout(context.Background(), identityTimeout) //nolint:forbidigo // A hub is wired without one.
	defer cancel()
	system := &corev1.Namespace{}
	if err := reader.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("reading namespace kube-system, whose UID identifies the management cluster: %w", err)
	}
	return system.UID, nil
}
