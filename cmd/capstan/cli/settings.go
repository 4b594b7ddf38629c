package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/annotator"
	"github.com/capstan-hub/capstan/hub/approval"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/diagnostics"
	"github.com/capstan-hub/capstan/hub/promotion"
	"github.com/capstan-hub/capstan/hub/promotion/measure"
	"github.com/capstan-hub/capstan/strategy/pullrequest"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

const (
	// minLease is the shortest lease. A lease is renewed within two thirds of its
	// duration, every two fifteenths: 5 s leaves a slow API server two tries of 1 s each.
	minLease = 5 * time.Second
	// maxSharingName is the longest name of a hub that shares the management cluster: it is part of the names of Deployments.
	maxSharingName = 40

	// clusterSecretNamespacesFlag names Options.ClusterSecretNamespaces.
	clusterSecretNamespacesFlag = "cluster-secret-namespaces"

	// runtimeNamespace is the environment variable with the namespace of the lease when
	// the process is not in a pod, as in Flux's controllers.
	runtimeNamespace = "RUNTIME_NAMESPACE"

	// podNamespace is the file with the namespace of the pod.
	podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

	addressOff = "0"

	// dashboardAddress is loopback: only kubectl port-forward reaches it.
	dashboardAddress = "127.0.0.1:8090"
)

// settings are the values of the hub's flags.
type settings struct {
	hub        hub.Options
	annotator  annotatorSettings
	eventing   eventingSettings
	appKinds   []string
	proxies    proxySettings
	endpoints  []string
	kubeconfig string
	level      string
	encoding   string
	logLevel   *logLevel
	flags      *pflag.FlagSet
	// podNamespace is the file with the namespace of the pod.
	podNamespace string
}

func defaultSettings() *settings {
	s := &settings{
		hub: hub.Options{
			ManagementMaxObjects: watchers.DefaultMaxLocalObjects,
			MetricsBindAddress:   ":8080",
			HealthAddress:        ":9440",
			Hook:                 hub.Hook{BindAddress: ":8082", RateLimit: approval.DefaultRateLimit},
			Dashboard:            hub.Dashboard{BindAddress: dashboardAddress, Auth: dashboard.AuthToken, Version: version(), OIDC: hub.DashboardOIDC{Scopes: oidcScopes()}},
			Diagnostics:          hub.Diagnostics{BindAddress: addressOff, Version: version()},
			LeaderElectionLease:  hub.DefaultLease,
			StallAfter:           promotion.DefaultStallAfter,
			PullRequestDeadline:  pullrequest.DefaultDeadline,
			PromotionRetention:   promotion.DefaultRetention,
			PromotionKeep:        promotion.DefaultKeep,
		},
		annotator: defaultAnnotatorSettings(awsconfig.AuthDefault),
		eventing:  defaultEventingSettings(),
		level:     levelInfo, encoding: encodingJSON, podNamespace: podNamespace,
	}
	for _, k := range apps.DefaultKinds() {
		s.appKinds = append(s.appKinds, k.String())
	}
	return s
}

// register binds the flags of the hub. The values of s are the defaults.
func (s *settings) register(f *pflag.FlagSet) {
	s.registerProcess(f)
	s.registerHub(f)
	f.BoolVar(&s.annotator.on, "annotator", s.annotator.on, "annotate node groups on AWS with the capacity of a node, so that cluster-autoscaler can scale them from zero")
	s.annotator.register(f)
	s.eventing.register(f)
	s.registerLogging(f)
}

// registerProcess binds the flags that all programs share.
func (s *settings) registerProcess(f *pflag.FlagSet) {
	o := &s.hub
	f.SortFlags = false
	s.flags = f
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "file with the credentials of the management cluster; when empty, the one that $KUBECONFIG names, else the pod's own service account")
	f.StringSliceVar(&o.Namespaces, "namespace", o.Namespaces, "the only namespaces of the management cluster to serve, comma-separated, such as team-a,team-b; all when not set")
	f.IntVar(&o.ManagementMaxObjects, watchers.MaxLocalObjectsFlag, o.ManagementMaxObjects, "maximum number of objects of one kind of the management cluster in memory, such as AWSMachines; a kind with more is not read; for each, a list may have 26 KiB and the memory 3.3 KiB")
	f.IntVar(&o.KubeAPIQPS, "kube-api-qps", o.KubeAPIQPS, "maximum number of requests per second of the reconcilers to the API server of the management cluster, and twice as many at once; watches do not count; 0 for 500 for each CPU")
	f.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "work only while this replica holds the lease, so that further replicas stand by; a replica that loses the lease ends")
	f.DurationVar(&o.LeaderElectionLease, "leader-elect-lease-duration", o.LeaderElectionLease, "how long the lease is valid without renewal, such as 30s; another replica takes over this long after a crash; at least "+minLease.String())
	f.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, "host:port that serves /metrics over plain HTTP, such as :8080 or 127.0.0.1:8080; 0 disables it")
	f.StringVar(&o.HealthAddress, "health-addr", o.HealthAddress, "host:port that serves /healthz and /readyz over plain HTTP, such as :9440; 0 disables it")
	f.StringVar(&o.Diagnostics.BindAddress, "diagnostics-address", o.Diagnostics.BindAddress, "loopback host:port that serves profiles, the log level and the state of connections, informers and queues over plain HTTP, such as 127.0.0.1:6060; 0 disables it")
}

func (s *settings) registerLogging(f *pflag.FlagSet) {
	f.StringVar(&s.level, "log-level", s.level, "log level: "+strings.Join(levels, ", "))
	f.StringVar(&s.encoding, "log-encoding", s.encoding, "log encoding: "+strings.Join(encodings, ", "))
}

func (s *settings) registerHub(f *pflag.FlagSet) {
	o := &s.hub
	f.BoolVar(&o.DryRun, "dry-run", o.DryRun, "observe and decide, and promote nothing: the hub writes only status.dryRun of Pipelines, ClusterConnections and Events, calls no Git provider, sends no notification, publishes no event, annotates and labels nothing, and reads no queue; it can run next to another controller that promotes")
	f.StringVar(&o.Hook.BindAddress, "promotion-hook-bind-address", o.Hook.BindAddress, "host:port that serves /promotion and /approval, such as :8082; 0 disables them")
	f.StringVar(&o.Hook.CertFile, "promotion-hook-tls-cert-file", "", "PEM file with the certificate chain that serves /promotion and /approval over TLS; reloaded when it changes; when empty, they are served over plain HTTP")
	f.StringVar(&o.Hook.KeyFile, "promotion-hook-tls-key-file", "", "PEM file with the key of that certificate")
	f.IntVar(&o.Hook.RateLimit, "promotion-hook-rate-limit", o.Hook.RateLimit, "maximum number of calls of /promotion and /approval from one IPv4 address or IPv6 /64 in 30s; raise it when all calls come through one proxy")
	f.BoolVar(&o.Hook.LegacySignatures, "legacy-signatures", false, "also accept the signatures of weave pipeline-controller, which do not expire: they cover only the body of a promotion and nothing of an approval, so that a client can replay them")
	f.StringVar(&o.Dashboard.BindAddress, "dashboard-bind-address", o.Dashboard.BindAddress, "host:port that serves the dashboard, such as 127.0.0.1:8090; an address that is not loopback needs a certificate; 0 disables it")
	f.StringVar((*string)(&o.Dashboard.Auth), "dashboard-auth", string(o.Dashboard.Auth), "how users sign in to the dashboard: token (with a bearer token of the management cluster; a user sees what the token may list) or none (each client that can connect sees everything; only for loopback addresses)")
	f.StringVar(&o.Dashboard.CertFile, "dashboard-tls-cert-file", "", "PEM file with the certificate chain that serves the dashboard over TLS; reloaded when it changes; when empty, it is served over plain HTTP")
	f.StringVar(&o.Dashboard.KeyFile, "dashboard-tls-key-file", "", "PEM file with the key of that certificate")
	f.StringVar(&o.Dashboard.SessionKeyFile, "dashboard-session-key-file", "", "file with at least 32 random bytes that encrypt sessions, the same on all replicas, read at the start; when empty, a session is valid only on the replica that created it, until that replica ends")
	f.StringVar(&o.Dashboard.URL, "dashboard-url", "", "address at which browsers open the dashboard, such as https://capstan.example.org; users who sign in with OpenID Connect are sent back to it; required with --dashboard-oidc-issuer-url")
	f.StringVar(&o.Dashboard.OIDC.IssuerURL, "dashboard-oidc-issuer-url", "", "issuer of an OpenID Connect provider at which users can sign in to the dashboard, such as https://id.example.org, besides tokens; the API server of the management cluster must accept its ID tokens (--oidc-issuer-url of kube-apiserver); when empty, users sign in with tokens only")
	f.StringVar(&o.Dashboard.OIDC.ClientID, "dashboard-oidc-client-id", "", "name of the dashboard at the OpenID Connect provider, the audience of the ID tokens; its redirect URI there is that of --dashboard-url with the path /signin/oidc/callback")
	f.StringVar(&o.Dashboard.OIDC.ClientSecretFile, "dashboard-oidc-client-secret-file", "", "file with the secret of that client, read at the start; when empty, the client is public; PKCE is used in either case")
	f.StringSliceVar(&o.Dashboard.OIDC.Scopes, "dashboard-oidc-scopes", o.Dashboard.OIDC.Scopes, "scopes to request besides openid, comma-separated; add the scope that makes your provider send groups, such as groups; offline_access, for sessions that are longer than an ID token, is not requested from a provider that does not list it")
	f.StringVar(&o.Dashboard.OIDC.CAFile, "dashboard-oidc-ca-file", "", "PEM file with the only certificate authorities to trust for the OpenID Connect provider, read at the start; when empty, those of the system")
	f.IntVar(&o.ClusterDials, "cluster-dials", o.ClusterDials, "maximum number of connections to clusters that are made at the same time; clusters that failed before get at most a quarter of them; 0 for 32 for each CPU")
	f.IntVar(&o.ClusterLists, "cluster-lists", o.ClusterLists, "maximum number of initial lists of clusters that are read at the same time, which bounds the memory and CPU of a start; 0 for 8 for each CPU")
	f.StringVar(&o.EventsAddress, "events-addr", o.EventsAddress, "URL to which the hub posts Flux events, such as http://notification-controller.flux-system/; when empty, the hub creates only Kubernetes Events")
	f.StringSliceVar(&s.appKinds, "app-kinds", s.appKinds, "kinds of applications that Pipelines may follow, as Kind.group, comma-separated; kinds of Kubernetes itself are refused")
	f.BoolVar(&o.WarmStandby, "warm-standby", o.WarmStandby, "connect to the clusters and watch what Pipelines use on replicas that do not hold the lease, too, so that one of them takes over at once; each replica then needs the memory, and makes the connections and watches, of the leader; needs --leader-elect")
	f.BoolVar(&o.NoCrossNamespaceRefs, "no-cross-namespace-refs", o.NoCrossNamespaceRefs, "allow a Pipeline to reference only clusters of its own namespace and, in the management cluster itself, only its own namespace")
	f.StringSliceVar(&o.ClusterSecretNamespaces, clusterSecretNamespacesFlag, nil, "namespaces whose Secrets may name clusters (clusterRef.kind Secret), comma-separated; such a Secret has a kubeconfig and the label "+pipelinesv1.ClusterSecretLabel+"=true; the hub needs config/rbac/cluster-secrets in each; none when not set")
	f.DurationVar(&o.StallAfter, "stall-after", o.StallAfter, "how long a promotion may take before its condition Stalled becomes True, such as 30m or 2h")
	f.DurationVar(&o.PullRequestDeadline, pullrequest.DeadlineFlag, o.PullRequestDeadline, "how long one attempt of a promotion by pull request may take, with its clone of the repository, such as 15m; raise it for a large repository behind a slow line; after a crash of the hub during an attempt, the next attempt waits until this time has passed; at least "+pullrequest.MinDeadline.String())
	f.DurationVar(&o.PromotionRetention, "promotion-retention", o.PromotionRetention, "how long finished Promotions are kept, such as 720h (30 days); the newest Promotion into each environment, and the newest that succeeded, are always kept")
	f.IntVar(&o.PromotionKeep, "promotion-keep", o.PromotionKeep, "how many finished Promotions into each environment are kept, the newest first; older ones are deleted before --promotion-retention, but not in the first hour; 0 for no limit by number")
	f.StringArrayVar(&s.endpoints, measure.EndpointFlag, nil, "Prometheus server that the checks of Pipelines may query, as NAME=URL[,token-file=PATH][,ca-file=PATH][,namespace=NAME]..., such as main=http://prometheus.monitoring:9090; token-file has a bearer token and ca-file the only certificate authorities to trust, both read for each query; only Pipelines of the named namespaces may use it, all if none is named; may be repeated")
	s.proxies.register(f)
	f.BoolVar(&o.AllowLoopback, "allow-loopback-clusters", o.AllowLoopback, "allow kubeconfigs with loopback addresses, for a fleet on one machine; by default they are refused")
	f.StringVar(&o.CloneDir, "clone-dir", o.CloneDir, "directory for clones of Git repositories, which the hub removes after seconds; when empty, the system's directory for temporary files")
	f.BoolVar(&o.AllowLoopbackGit, "allow-loopback-git", o.AllowLoopbackGit, "allow Pipelines with Git services at loopback addresses, for a fleet on one machine; by default they are refused")
	f.BoolVar(&o.RequireSecretHosts, "require-secret-hosts", o.RequireSecretHosts, "send the credentials of a Secret of a Pipeline or an EventingBackend only to hosts that its annotation capstan.dev/allowed-hosts names; by default a Secret without the annotation allows every host")
}

// options checks all settings and returns the hub's options. The error joins all mistakes.
func (s *settings) options() (hub.Options, error) {
	o := s.hub
	var errs []error
	refuse := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	for i, namespace := range o.Namespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			refuse("namespace", "%q is not the name of a namespace: %s", namespace, problems[0])
		}
		if slices.Contains(o.Namespaces[:i], namespace) {
			refuse("namespace", "%s is in the list twice", namespace)
		}
	}
	for _, namespace := range o.ClusterSecretNamespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			refuse(clusterSecretNamespacesFlag, "%q is not the name of a namespace: %s", namespace, problems[0])
		}
	}
	if o.ManagementMaxObjects < 1 {
		refuse(watchers.MaxLocalObjectsFlag, "%d is too small: the hub could read no object; set it to more than the objects of the most frequent kind", o.ManagementMaxObjects)
	}
	for _, n := range []struct {
		flag  string
		value int
	}{{"kube-api-qps", o.KubeAPIQPS}, {"cluster-dials", o.ClusterDials}, {"cluster-lists", o.ClusterLists}} {
		if n.value < 0 {
			refuse(n.flag, "%d is negative: set it to 1 or more, or to 0 for a number by CPUs", n.value)
		}
	}
	if o.LeaderElectionLease < minLease {
		refuse("leader-elect-lease-duration", "%s is too short: the leader would lose the lease when the API server is slow; set it to %s or more", o.LeaderElectionLease, minLease)
	}
	if o.LeaderElectionLease%time.Second != 0 {
		refuse("leader-elect-lease-duration", "%s must be whole seconds, the unit of a Lease", o.LeaderElectionLease)
	}
	for _, a := range []struct{ flag, address string }{{"metrics-bind-address", o.MetricsBindAddress}, {"health-addr", o.HealthAddress}, {"promotion-hook-bind-address", o.Hook.BindAddress}, {"dashboard-bind-address", o.Dashboard.BindAddress}, {"diagnostics-address", o.Diagnostics.BindAddress}} {
		if err := checkAddress(a.address); err != nil {
			refuse(a.flag, "%q is neither host:port (such as :8080) nor 0: %v", a.address, err)
		}
	}
	if (o.Hook.CertFile == "") != (o.Hook.KeyFile == "") {
		refuse("promotion-hook-tls-cert-file", "a certificate needs its key and a key its certificate: set both --promotion-hook-tls-cert-file and --promotion-hook-tls-key-file, or neither")
	}
	if (o.Dashboard.CertFile == "") != (o.Dashboard.KeyFile == "") {
		refuse("dashboard-tls-cert-file", "a certificate needs its key and a key its certificate: set both --dashboard-tls-cert-file and --dashboard-tls-key-file, or neither")
	}
	switch auth := o.Dashboard.Auth; {
	case auth != dashboard.AuthToken && auth != dashboard.AuthNone:
		refuse("dashboard-auth", "%q is not token or none", auth)
	case o.Dashboard.BindAddress != addressOff && checkAddress(o.Dashboard.BindAddress) == nil:
		if err := dashboard.CheckExposure(o.Dashboard.BindAddress, auth, o.Dashboard.CertFile != ""); err != nil {
			refuse("dashboard-bind-address", "%v", err)
		}
	}
	checkOIDC(o.Dashboard, refuse)
	s.proxies.apply(&o, refuse)
	if a := o.Diagnostics.BindAddress; a != addressOff && checkAddress(a) == nil {
		if err := diagnostics.CheckExposure(a); err != nil {
			refuse("diagnostics-address", "%v", err)
		}
	}
	if o.Hook.RateLimit < 1 {
		refuse("promotion-hook-rate-limit", "%d is not a positive number of calls: set it to 1 or more, or disable the hook with --promotion-hook-bind-address=0", o.Hook.RateLimit)
	}
	if o.EventsAddress != "" {
		if u, err := url.Parse(o.EventsAddress); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			refuse("events-addr", "%q is not an http:// or https:// URL", o.EventsAddress)
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"stall-after", o.StallAfter}, {"promotion-retention", o.PromotionRetention}} {
		if d.value <= 0 {
			refuse(d.flag, "%s must be a positive duration, such as 30m", d.value)
		}
	}
	if o.PullRequestDeadline < pullrequest.MinDeadline {
		refuse(pullrequest.DeadlineFlag, "%s is too short: the hub could not distinguish a slow server from one that does not respond; set it to %s or more", o.PullRequestDeadline, pullrequest.MinDeadline)
	}
	if o.PromotionKeep < 0 {
		refuse("promotion-keep", "%d is negative: set it to 1 or more, or to 0 for no limit", o.PromotionKeep)
	}
	if !slices.Contains(levels, s.level) {
		refuse("log-level", "%q is not one of %s", s.level, strings.Join(levels, ", "))
	}
	if !slices.Contains(encodings, s.encoding) {
		refuse("log-encoding", "%q is not one of %s", s.encoding, strings.Join(encodings, ", "))
	}
	errs = append(errs, s.annotator.apply(&o.Annotator), s.eventing.apply(&o.Eventing, s.home()))
	kinds, err := parseAppKinds(s.appKinds)
	if err != nil {
		refuse("app-kinds", "%v", err)
	}
	o.AppKinds = kinds
	o.CheckEndpoints, err = parseEndpoints(s.endpoints)
	if err != nil {
		refuse(measure.EndpointFlag, "%v", err)
	}
	o.Annotator.Namespace = s.home()
	o.LeaderElectionNamespace = leaseNamespace(o)
	if name := s.flags.Lookup("hub-name"); name != nil && o.LeaderElect && len(o.Namespaces) > 1 && !o.SharesCluster() {
		refuse("namespace", "several namespaces need a hub with a name of its own: set --hub-name, such as east")
	}
	if s.flags.Changed("hub-name") && s.flags.Changed("namespace") && len(o.Namespaces) == 0 {
		refuse("namespace", "the list is empty: name at least one namespace, or remove the flag for a hub that serves all")
	}
	for _, namespace := range o.ClusterSecretNamespaces {
		if o.SharesCluster() && !slices.Contains(o.Namespaces, namespace) {
			refuse(clusterSecretNamespacesFlag, "%s is not in --namespace: another hub may serve it", namespace)
		}
	}
	if o.SharesCluster() && (len(validation.IsDNS1123Label(o.Eventing.Name)) > 0 || len(o.Eventing.Name) > maxSharingName) {
		refuse("hub-name", "%q must consist of at most %d small letters, digits and hyphens, and begin and end with a letter or digit: with --namespace and --leader-elect, it is part of the name of a Lease", o.Eventing.Name, maxSharingName)
	}
	if o.WarmStandby && !o.LeaderElect {
		refuse("warm-standby", "there is no standby without --leader-elect: set it, or remove --warm-standby")
	}
	if o.LeaderElect && o.LeaderElectionNamespace == "" && !s.inPod() {
		refuse("leader-elect", "the namespace of the lease is not known outside of a pod: set %s to a namespace, such as capstan-system, or set --namespace to one", runtimeNamespace)
	}
	return o, errors.Join(errs...)
}

// checkAddress accepts 0 and host:port with a numeric port, the form of net.Listen.
func checkAddress(address string) error {
	if address == addressOff {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	const bits = 16
	if _, err := strconv.ParseUint(port, 10, bits); err != nil {
		return fmt.Errorf("port %q", port)
	}
	return nil
}

// parseAppKinds parses Kind.group and refuses kinds of Kubernetes itself. A Pipeline can
// name any object of an allowed kind, so its author would get data about Secrets, Roles
// and workloads in clusters that the author may not read.
func parseAppKinds(given []string) ([]schema.GroupKind, error) {
	if len(given) == 0 {
		return nil, errors.New("name at least one kind")
	}
	var kinds []schema.GroupKind
	for _, g := range given {
		kind := schema.ParseGroupKind(strings.TrimSpace(g))
		switch {
		case kind.Kind == "" || strings.ToUpper(kind.Kind[:1]) != kind.Kind[:1] || strings.Contains(g, "*"):
			return nil, fmt.Errorf("%q is not Kind.group, such as HelmRelease.helm.toolkit.fluxcd.io", g)
		case !strings.Contains(kind.Group, ".") || strings.HasSuffix(kind.Group, ".k8s.io"):
			// Groups of Kubernetes itself have no dot (core, apps, batch) or end in .k8s.io
			// (rbac.authorization.k8s.io); those of Cluster API end in .x-k8s.io.
			return nil, fmt.Errorf("%q is a kind of Kubernetes itself, which Pipelines may not follow", g)
		case annotated(kind):
			return nil, fmt.Errorf("%q cannot be an application: the annotator already watches this kind", g)
		case len(validation.IsDNS1123Subdomain(kind.Group)) > 0:
			return nil, fmt.Errorf("%q is not an API group", kind.Group)
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// parseEndpoints parses the values of --check-endpoint.
func parseEndpoints(given []string) ([]measure.Endpoint, error) {
	var endpoints []measure.Endpoint
	for _, g := range given {
		e, err := measure.ParseEndpoint(g)
		switch {
		case err != nil:
			return nil, err
		case slices.ContainsFunc(endpoints, func(other measure.Endpoint) bool { return other.Name == e.Name }):
			return nil, fmt.Errorf("endpoint %s is given twice: give each its own name", e.Name)
		}
		endpoints = append(endpoints, e)
	}
	return endpoints, nil
}

func annotated(kind schema.GroupKind) bool {
	_, is := annotator.Kind(kind)
	return is
}

// leaseNamespace is the namespace of the lease: the only one of --namespace, or that of the environment variable.
// When it is empty, the hub uses the pod's namespace. Hubs that share the management cluster have their leases in one
// namespace.
func leaseNamespace(o hub.Options) string {
	if len(o.Namespaces) == 1 && !o.SharesCluster() {
		return o.Namespaces[0]
	}
	return os.Getenv(runtimeNamespace)
}

// home returns the namespace in which the hub runs; empty when it is not known. That of --namespace
// is only what it serves: its users need not be trusted with the hub's AWS credentials.
func (s *settings) home() string {
	if namespace := os.Getenv(runtimeNamespace); namespace != "" {
		return namespace
	}
	pod, err := os.ReadFile(s.podNamespace)
	if err != nil {
		return "" // The process is not in a pod.
	}
	return strings.TrimSpace(string(pod))
}

// inPod reports whether controller-runtime can read the pod's namespace for the lease.
func (s *settings) inPod() bool {
	_, err := os.Stat(s.podNamespace)
	return err == nil
}

// config of the management cluster, by kubectl's rules.
func (s *settings) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no credentials of a management cluster: set --kubeconfig or KUBECONFIG, or run in a pod")
	case err != nil:
		return nil, fmt.Errorf("reading the credentials of the management cluster: %w", err)
	}
	return config, nil
}
