package cli

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/eventing/admission"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// eventingSettings are the values of the flags about events and their backends.
type eventingSettings struct {
	name, natsURL, address, url     string
	validation, defaulting          string
	webhooks, secret, cert, certKey string
	allowLoopback                   bool
	// sources and sinks are namespaces; nil for the hub's own.
	sources, sinks []string
}

func defaultEventingSettings() eventingSettings {
	return eventingSettings{
		name: hub.DefaultName, address: ":8091", webhooks: ":9443",
		validation: string(admission.Warn), defaulting: string(admission.Required),
	}
}

// register binds the flags about events and their backends.
func (e *eventingSettings) register(f *pflag.FlagSet) {
	f.StringVar(&e.name, "hub-name", e.name, "name of this hub in the source of its events, /hubs/NAME; with --namespace and --leader-elect, also of its lease, of the label hub of its metrics, and of its claims of the namespaces, so that several hubs can share a management cluster")
	f.StringVar(&e.natsURL, "nats-url", "", "default of the key url of EventingBackends of type nats, such as nats://nats.nats.svc:4222; when empty, each EventingBackend must set it")
	f.StringVar(&e.address, "api-bind-address", e.address, "host:port that serves /backend and /schemas over plain HTTP, such as :8091; 0 disables it")
	f.StringVar(&e.url, "api-url", "", "URL of /schemas for receivers of events, such as http://capstan-hub-api.capstan-system.svc; when empty, events do not name their schema")
	f.StringSliceVar(&e.sources, schema.SourceNamespacesFlag, nil, "namespaces in which EventingBackends of type sqs may have role source, comma-separated; * for all; a queue labels machines of every namespace and, with the key remediate, lets Cluster API replace them; when not set, only the namespace in which the hub runs")
	f.StringSliceVar(&e.sinks, schema.SinkNamespacesFlag, nil, "namespaces in which EventingBackends of type sqs may have role sink, comma-separated; * for all; it uses the AWS credentials of the hub, and every role that they may assume; when not set, only the namespace in which the hub runs")
	f.StringVar(&e.validation, "eventing-validation", e.validation, "what the webhook does with an invalid EventingBackend: warn (admit it with a warning; its status reports the mistakes, too) or deny")
	f.StringVar(&e.defaulting, "eventing-defaulting", e.defaulting, "defaults that the webhook sets in an EventingBackend: required (its label, and required keys that have a default) or off")
	f.StringVar(&e.webhooks, "webhook-bind-address", e.webhooks, "host:port that serves the webhooks, such as :9443; it needs --webhook-cert-secret or --webhook-cert-file; 0 disables them")
	f.StringVar(&e.secret, "webhook-cert-secret", "", "NAMESPACE/NAME of a Secret in which the hub creates and rotates the certificate of the webhooks; config/webhook has the permissions for it")
	f.StringVar(&e.cert, "webhook-cert-file", "", "PEM file with the certificate of the webhooks, instead of a Secret; reloaded when it changes, for example by cert-manager")
	f.StringVar(&e.certKey, "webhook-key-file", "", "PEM file with the key of that certificate")
	f.BoolVar(&e.allowLoopback, "allow-loopback-backends", false, "allow EventingBackends with loopback addresses, for a fleet on one machine; by default they are refused")
}

// hubName matches names that need no escaping in a URI reference.
var hubName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// apply checks all settings and sets the hub's options. home is the hub's own namespace; empty
// when it is not known. The error joins all mistakes.
func (e *eventingSettings) apply(o *hub.Eventing, home string) error {
	var errs []error
	refuse := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	if !hubName.MatchString(e.name) {
		refuse("hub-name", fmt.Errorf("%q must consist of at most 63 letters, digits, dots, underscores and hyphens, and begin and end with a letter or digit", e.name))
	}
	_, err := schema.Types(schema.Options{NATSURL: e.natsURL})
	errs = append(errs, err) // It names the flag.
	for _, a := range []struct{ flag, address string }{{"api-bind-address", e.address}, {"webhook-bind-address", e.webhooks}} {
		if err := checkAddress(a.address); err != nil {
			refuse(a.flag, fmt.Errorf("%q is neither host:port (such as :8091) nor 0: %w", a.address, err))
		}
	}
	if u, err := url.Parse(e.url); e.url != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		refuse("api-url", fmt.Errorf("%q is not an http:// or https:// URL", e.url))
	}
	for _, n := range []struct {
		flag string
		list *[]string
	}{{schema.SourceNamespacesFlag, &e.sources}, {schema.SinkNamespacesFlag, &e.sinks}} {
		if *n.list == nil && home != "" {
			*n.list = []string{home}
		}
		for _, name := range *n.list {
			if problems := validation.IsDNS1123Label(name); name != schema.AllNamespaces && len(problems) > 0 {
				refuse(n.flag, fmt.Errorf("%q is neither the name of a namespace nor *: %s", name, problems[0]))
			}
		}
	}
	var secret types.NamespacedName
	if e.secret != "" {
		namespace, name, found := strings.Cut(e.secret, "/")
		if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			refuse("webhook-cert-secret", fmt.Errorf("%q is not NAMESPACE/NAME, such as capstan-system/capstan-hub-webhook", e.secret))
		}
		if e.cert != "" || e.certKey != "" {
			refuse("webhook-cert-secret", errors.New("the certificate is in a Secret or in files: set only one of --webhook-cert-secret and --webhook-cert-file"))
		}
		secret = types.NamespacedName{Namespace: namespace, Name: name}
	}
	if (e.cert == "") != (e.certKey == "") {
		refuse("webhook-cert-file", errors.New("a certificate needs its key and a key its certificate: set both --webhook-cert-file and --webhook-key-file, or neither"))
	}
	validated, err := admission.ParseValidation(e.validation)
	refuse("eventing-validation", err)
	defaulted, err := admission.ParseDefaulting(e.defaulting)
	refuse("eventing-defaulting", err)
	if e.webhooks == addressOff {
		secret, e.cert, e.certKey = types.NamespacedName{}, "", ""
	}
	*o = hub.Eventing{
		Name: e.name, NATSURL: e.natsURL, APIBindAddress: e.address, APIURL: strings.TrimSuffix(e.url, "/"), AllowLoopback: e.allowLoopback,
		SQSSourceNamespaces: e.sources, SQSSinkNamespaces: e.sinks,
		Webhooks: hub.Webhooks{
			BindAddress: e.webhooks, Secret: secret, CertFile: e.cert, KeyFile: e.certKey, Validation: validated, Defaulting: defaulted,
		},
	}
	return errors.Join(errs...)
}
