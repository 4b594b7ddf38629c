package hub

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/hub/promotion"
	"github.com/capstan-hub/capstan/internal/delivery"
	"github.com/capstan-hub/capstan/watchers"
)

const (
	// dashboardQPS and dashboardBurst are for the dashboard's own client, which checks the
	// permissions of viewers. A viewer with few of five hundred namespaces causes about four
	// thousand checks, most of them every five minutes.
	dashboardQPS, dashboardBurst = 400, 4000

	// reporter is the reporting controller of the hub's Events.
	reporter = "capstan"
)

// Dashboard is the part of the Options that says how the dashboard is served.
type Dashboard struct {
	// BindAddress, such as "127.0.0.1:8090"; "0" or empty for none. One that is not
	// loopback needs the certificate.
	BindAddress string
	// Auth is how users sign in; by token if empty.
	Auth dashboard.Auth
	// CertFile and KeyFile serve it with TLS; plain HTTP if empty.
	CertFile, KeyFile string
	// SessionKeyFile holds the key that seals sessions, the same on all replicas. If empty,
	// each replica makes its own key, and sessions end when the replica ends.
	SessionKeyFile string
	// URL at which browsers open it; needed for OIDC.
	URL string
	// OIDC is the provider at which users can sign in, besides tokens.
	OIDC DashboardOIDC
	// Version of the hub that it shows.
	Version string
}

// DashboardOIDC is an OpenID Connect provider at which users can sign in to the dashboard.
type DashboardOIDC struct {
	// IssuerURL of the provider; empty for none.
	IssuerURL string
	// ClientID of the dashboard at the provider, and the file with its secret; empty for a
	// public client.
	ClientID, ClientSecretFile string
	// Scopes to request besides openid.
	Scopes []string
	// CAFile has the PEM certificates of the authorities to trust; those of the system if empty.
	CAFile string
}

// options reads the files. It returns nil without a provider.
func (d Dashboard) options() (*dashboard.OIDC, error) {
	if d.OIDC.IssuerURL == "" {
		return nil, nil
	}
	o := &dashboard.OIDC{IssuerURL: d.OIDC.IssuerURL, URL: d.URL, ClientID: d.OIDC.ClientID, Scopes: d.OIDC.Scopes}
	if d.OIDC.ClientSecretFile != "" {
		secret, err := os.ReadFile(d.OIDC.ClientSecretFile)
		if err != nil {
			return nil, fmt.Errorf("--dashboard-oidc-client-secret-file: reading the secret of the client: %w", err)
		}
		if o.ClientSecret = strings.TrimSpace(string(secret)); o.ClientSecret == "" {
			return nil, fmt.Errorf("--dashboard-oidc-client-secret-file: %s is empty: write the secret of client %s into it, or remove the flag for a public client", d.OIDC.ClientSecretFile, d.OIDC.ClientID)
		}
	}
	if d.OIDC.CAFile != "" {
		authorities, err := os.ReadFile(d.OIDC.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--dashboard-oidc-ca-file: reading the certificate authorities: %w", err)
		}
		o.Roots = x509.NewCertPool()
		if !o.Roots.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("--dashboard-oidc-ca-file: %s has no certificate in PEM form", d.OIDC.CAFile)
		}
	}
	return o, nil
}

// served returns whether there is a dashboard.
func (d Dashboard) served() bool { return d.BindAddress != "0" && d.BindAddress != "" }

// addDashboard serves the dashboard, on every replica.
func addDashboard(mgr manager.Manager, s *stack, sharing *sharing, o Options) error {
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
	oidc, err := o.Dashboard.options()
	if err != nil {
		return err
	}
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = dashboardQPS, dashboardBurst
	own, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making the dashboard's client: %w", err)
	}
	var machines []watchers.Demand
	for _, kind := range dashboard.MachineKinds() {
		machines = append(machines, watchers.InNamespaces(watchers.Demand{Cluster: clusters.LocalName, Kind: kind}, o.Namespaces)...)
	}
	s.watchers.SetDemand("dashboard", machines)
	server, err := dashboard.New(dashboard.Options{
		BindAddress: o.Dashboard.BindAddress,
		Auth:        o.Dashboard.Auth,
		CertFile:    o.Dashboard.CertFile,
		KeyFile:     o.Dashboard.KeyFile,
		SessionKey:  key,
		OIDC:        oidc,
		Version:     o.Dashboard.Version,
		DryRun:      o.DryRun,
		Parts:       parts(o),
		Retention:   delivery.Retention{For: cmp.Or(o.PromotionRetention, promotion.DefaultRetention), Keep: o.PromotionKeep},
		Cache:       mgr.GetCache(),
		Live:        func() map[view.Cluster]view.Observed { return heard(s.connections, closed(mgr.Elected())) },
		Warm:        o.WarmStandby,
		Objects:     s.connections.Objects,
		Machines:    s.watchers.Reader(clusters.LocalName),
		Leads:       func() bool { return closed(mgr.Elected()) },
		Lease:       leaseReader(own, o),
		Sharing:     sharing.shown(),
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

// leaseReader returns a function that reads the lease of the leader; nil if there is none, or its
// namespace is not known.
func leaseReader(from client.Reader, o Options) func(context.Context) (dashboard.Lease, error) {
	namespace, err := o.leaseNamespace()
	if err != nil || !o.LeaderElect {
		return nil
	}
	at := client.ObjectKey{Namespace: namespace, Name: o.leaseName()}
	return func(ctx context.Context) (dashboard.Lease, error) {
		var lease coordinationv1.Lease
		if err := from.Get(ctx, at, &lease); err != nil {
			return dashboard.Lease{}, fmt.Errorf("reading the lease of the leader: %w", err)
		}
		var read dashboard.Lease
		if lease.Spec.RenewTime != nil {
			read.Renewed = lease.Spec.RenewTime.Time
		}
		if lease.Spec.LeaseDurationSeconds != nil {
			read.Duration = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
		}
		return read, nil
	}
}

// parts returns the parts of the hub that its options enable or disable, for the dashboard.
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
	if o.DryRun {
		return []view.Part{
			{Name: "Namespaces", Is: does(len(o.Namespaces) == 0, "all", "only "+strings.Join(o.Namespaces, ", "))},
			{Name: "Dry run", Is: "enabled: the hub shows what it would promote, and promotes, annotates, labels and publishes nothing"},
			{Name: "Metrics", Is: at(o.MetricsBindAddress, "/metrics")},
			{Name: "Health", Is: at(o.HealthAddress, "/healthz and /readyz")},
		}
	}
	webhooks := o.Eventing.Webhooks
	return []view.Part{
		{Name: "Namespaces", Is: does(len(o.Namespaces) == 0, "all", "only "+strings.Join(o.Namespaces, ", "))},
		{Name: "Annotations of node groups", Is: does(o.Annotator.AWS != nil, "enabled: capacity of the instance types from EC2", "disabled: there is no AWS configuration")},
		{Name: "Instances", Is: does(o.AWS != nil, "enabled: state from the queues of EventingBackends of type sqs with the role source", "disabled: there is no AWS configuration")},
		{Name: "Promotion hook", Is: at(o.Hook.BindAddress, "/promotion and /approval")},
		{Name: "Discovery of event backends", Is: at(o.Eventing.APIBindAddress, "/backend and /schemas")},
		{Name: "Webhooks of EventingBackends", Is: does(webhooks.Secret.Name != "" || webhooks.CertFile != "", at(webhooks.BindAddress, "validation ("+string(webhooks.Validation)+") and defaulting ("+string(webhooks.Defaulting)+")"), "not served")},
		{Name: "Metrics", Is: at(o.MetricsBindAddress, "/metrics")},
		{Name: "Health", Is: at(o.HealthAddress, "/healthz and /readyz")},
	}
}

// heard returns the states of the connections, for the dashboard. A standby that is about to connect has heard
// nothing yet, and the leader has.
func heard(connections *clusters.Manager, leads bool) map[view.Cluster]view.Observed {
	snapshots := connections.Snapshots()
	all := make(map[view.Cluster]view.Observed, len(snapshots))
	for _, s := range snapshots {
		ref, err := clusters.ParseClusterName(s.Name)
		if err != nil {
			continue // Cluster names are always valid.
		}
		if !leads && (s.State == capstanv1.ConnectionConnecting || s.State == capstanv1.ConnectionUnused) {
			continue
		}
		all[view.Cluster{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}] = view.Observed{
			State: s.State, Reason: s.Reason, Message: s.Message, Since: s.Since, LastContact: s.LastContact, Version: s.KubernetesVersion,
		}
	}
	return all
}
