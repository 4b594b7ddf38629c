package hub

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/watchers"
)

const (
	// dashboardQPS and dashboardBurst of the dashboard's own client, which asks what
	// viewers may see: a viewer of few namespaces among five hundred is some four
	// thousand questions, most of them each five minutes.
	dashboardQPS, dashboardBurst = 400, 4000

	// reporter is the name under which the hub tells Events.
	reporter = "capstan"
)

// Dashboard is the part of the Options that says how the dashboard is served.
type Dashboard struct {
	// BindAddress, such as "127.0.0.1:8090"; "0" or empty for none. One that is not
	// loopback needs the certificate.
	BindAddress string
	// Auth is how one signs in; by token when empty.
	Auth dashboard.Auth
	// CertFile and KeyFile serve it by TLS; plain HTTP when empty.
	CertFile, KeyFile string
	// SessionKeyFile holds what seals sessions, the same on all replicas; when empty,
	// each has its own, and sessions end with it.
	SessionKeyFile string
	// Version of the hub that it shows.
	Version string
}

// served says whether there is a dashboard.
func (d Dashboard) served() bool { return d.BindAddress != "0" && d.BindAddress != "" }

// addDashboard serves the dashboard, on every replica.
func addDashboard(mgr manager.Manager, s *stack, o Options) error {
	if !o.Dashboard.served() {
		return nil
	}
	if o.Dashboard.Auth == "" {
		o.Dashboard.Auth = dashboard.AuthToken
	}
	var key []byte
	if o.Dashboard.SessionKeyFile != "" {
		var err error
		if key, err = os.ReadFile(o.Dashboard.SessionKeyFile); err != nil {
			return fmt.Errorf("reading the session key: %w", err)
		}
	}
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = dashboardQPS, dashboardBurst
	own, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making the dashboard's client: %w", err)
	}
	var machines []watchers.Demand
	for _, kind := range dashboard.MachineKinds() {
		machines = append(machines, watchers.Demand{Cluster: clusters.LocalName, Kind: kind, Namespace: o.Namespace})
	}
	s.watchers.SetDemand("dashboard", machines)
	server, err := dashboard.New(dashboard.Options{
		BindAddress: o.Dashboard.BindAddress,
		Auth:        o.Dashboard.Auth,
		CertFile:    o.Dashboard.CertFile,
		KeyFile:     o.Dashboard.KeyFile,
		SessionKey:  key,
		Version:     o.Dashboard.Version,
		Parts:       parts(o),
		Cache:       mgr.GetCache(),
		Live:        func() map[view.Cluster]view.Observed { return heard(s.connections) },
		Machines:    s.watchers.Reader(clusters.LocalName),
		Leads:       func() bool { return closed(mgr.Elected()) },
		Client:      own,
		Config:      o.Config,
		Registerer:  o.Registerer,
		Clock:       o.Clock,
		Logger:      o.Logger.WithName("dashboard"),
	})
	if err != nil {
		return err
	}
	return mgr.Add(server)
}

// parts of the hub that its options turn on and off, as the dashboard tells of them.
func parts(o Options) []view.Part {
	at := func(address, what string) string {
		if address == "0" || address == "" {
			return "not served"
		}
		return what + " at " + address
	}
	does := func(is bool, what, not string) string {
		if is {
			return what
		}
		return not
	}
	webhooks := o.Eventing.Webhooks
	return []view.Part{
		{Name: "Looks after", Is: does(o.Namespace == "", "all namespaces", "the namespace "+o.Namespace)},
		{Name: "Annotations of node groups", Is: does(o.Annotator.AWS != nil, "what EC2 says of their instance types", "off: there is no AWS configuration")},
		{Name: "Instances", Is: does(o.AWS != nil, "followed by the queues of EventingBackends of type sqs with the role source", "not followed: there is no AWS configuration")},
		{Name: "Promotion hook", Is: at(o.Hook.BindAddress, "/promotion and /approval")},
		{Name: "Discovery of event backends", Is: at(o.Eventing.APIBindAddress, "/backend and /schemas")},
		{Name: "Webhooks of EventingBackends", Is: does(webhooks.Secret.Name != "" || webhooks.CertFile != "", at(webhooks.BindAddress, "validation ("+string(webhooks.Validation)+") and defaulting ("+string(webhooks.Defaulting)+")"), "not served")},
		{Name: "Metrics", Is: at(o.MetricsBindAddress, "/metrics")},
		{Name: "Health", Is: at(o.HealthAddress, "/healthz and /readyz")},
	}
}

// heard is what the connections know, as the dashboard shows it.
func heard(connections *clusters.Manager) map[view.Cluster]view.Observed {
	snapshots := connections.Snapshots()
	all := make(map[view.Cluster]view.Observed, len(snapshots))
	for _, s := range snapshots {
		ref, err := clusters.ParseClusterName(s.Name)
		if err != nil {
			continue // No cluster has a name that is none.
		}
		all[view.Cluster{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}] = view.Observed{
			State: s.State, Reason: s.Reason, Message: s.Message, Since: s.Since, LastContact: s.LastContact, Version: s.KubernetesVersion,
		}
	}
	return all
}
