package cli

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/promotion/measure"
	"github.com/capstan-hub/capstan/internal/egress"
)

func parse(t *testing.T, args ...string) *settings {
	t.Helper()
	s := defaultSettings()
	flags := pflag.NewFlagSet("capstan", pflag.ContinueOnError)
	s.register(flags)
	NewWithT(t).Expect(flags.Parse(args)).To(Succeed())
	return s
}

func TestDefaults(t *testing.T) {
	g := NewWithT(t)
	o, err := parse(t).options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.MetricsBindAddress).To(Equal(":8080"))
	g.Expect(o.HealthAddress).To(Equal(":9440"))
	g.Expect(o.Hook).To(Equal(hub.Hook{BindAddress: ":8082", RateLimit: 20}))
	g.Expect(o.Dashboard).To(And(HaveField("BindAddress", "127.0.0.1:8090"), HaveField("Auth", dashboard.AuthToken)))
	g.Expect(o.LeaderElect).To(BeFalse())
	g.Expect(o.LeaderElectionLease).To(Equal(30 * time.Second))
	g.Expect(o.StallAfter).To(Equal(30 * time.Minute))
	g.Expect(o.PullRequestDeadline).To(Equal(15 * time.Minute))
	g.Expect(o.PromotionRetention).To(Equal(30 * 24 * time.Hour))
	g.Expect(o.PromotionKeep).To(Equal(20))
	g.Expect(o.AllowLoopback).To(BeFalse())
	g.Expect(o.AppKinds).To(ConsistOf(
		schema.GroupKind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"},
		schema.GroupKind{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}))
}

func TestFlagsReachTheHub(t *testing.T) {
	g := NewWithT(t)
	o, err := parse(t,
		"--namespace=team-a", "--leader-elect", "--leader-elect-lease-duration=15s",
		"--metrics-bind-address=0", "--health-addr=[::1]:9440", "--events-addr=http://nc.flux-system/",
		"--promotion-hook-bind-address=127.0.0.1:8082", "--promotion-hook-tls-cert-file=tls.crt", "--promotion-hook-tls-key-file=tls.key",
		"--promotion-hook-rate-limit=100", "--legacy-signatures",
		"--dashboard-bind-address=:8443", "--dashboard-auth=token", "--dashboard-tls-cert-file=d.crt", "--dashboard-tls-key-file=d.key", "--dashboard-session-key-file=session.key",
		"--dashboard-url=https://capstan.example.org", "--dashboard-oidc-issuer-url=https://id.example.org/a", "--dashboard-oidc-client-id=capstan", "--dashboard-oidc-client-secret-file=secret", "--dashboard-oidc-scopes=email,groups", "--dashboard-oidc-ca-file=ca.crt",
		"--app-kinds=HelmRelease.helm.toolkit.fluxcd.io,Rollout.argoproj.io",
		"--no-cross-namespace-refs", "--stall-after=1h", "--pull-request-deadline=5m", "--promotion-retention=24h", "--promotion-keep=0", "--allow-loopback-clusters", "--clone-dir=/clones", "--allow-loopback-git", "--require-secret-hosts").options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.Namespaces).To(Equal([]string{"team-a"}))
	g.Expect(o.LeaderElectionNamespace).To(Equal("team-a"))
	g.Expect(o.LeaderElect).To(BeTrue())
	g.Expect(o.LeaderElectionLease).To(Equal(15 * time.Second))
	g.Expect(o.MetricsBindAddress).To(Equal("0"))
	g.Expect(o.HealthAddress).To(Equal("[::1]:9440"))
	g.Expect(o.Hook).To(Equal(hub.Hook{BindAddress: "127.0.0.1:8082", CertFile: "tls.crt", KeyFile: "tls.key", LegacySignatures: true, RateLimit: 100}))
	g.Expect(o.Dashboard).To(Equal(hub.Dashboard{BindAddress: ":8443", Auth: dashboard.AuthToken, CertFile: "d.crt", KeyFile: "d.key", SessionKeyFile: "session.key", Version: version(), URL: "https://capstan.example.org",
		OIDC: hub.DashboardOIDC{IssuerURL: "https://id.example.org/a", ClientID: "capstan", ClientSecretFile: "secret", Scopes: []string{"email", "groups"}, CAFile: "ca.crt"}}))
	g.Expect(o.EventsAddress).To(Equal("http://nc.flux-system/"))
	g.Expect(o.AppKinds).To(ContainElement(schema.GroupKind{Group: "argoproj.io", Kind: "Rollout"}))
	g.Expect(o.NoCrossNamespaceRefs).To(BeTrue())
	g.Expect(o.StallAfter).To(Equal(time.Hour))
	g.Expect(o.PullRequestDeadline).To(Equal(5 * time.Minute))
	g.Expect(o.PromotionRetention).To(Equal(24 * time.Hour))
	g.Expect(o.PromotionKeep).To(BeZero())
	g.Expect(o.AllowLoopback).To(BeTrue())
	g.Expect(o.CloneDir).To(Equal("/clones"))
	g.Expect(o.AllowLoopbackGit).To(BeTrue())
	g.Expect(o.RequireSecretHosts).To(BeTrue())
}

func TestMistakesAreNamed(t *testing.T) {
	for _, tc := range []struct{ flag, says string }{
		{"--namespace=a,b,a", `--namespace: a is in the list twice`},
		{"--namespace=Team_A", `--namespace: "Team_A" is not the name of a namespace`},
		{"--leader-elect-lease-duration=1s", "--leader-elect-lease-duration: 1s is too short"},
		{"--leader-elect-lease-duration=15500ms", "must be whole seconds"},
		{"--metrics-bind-address=8080", `--metrics-bind-address: "8080" is neither host:port`},
		{"--health-addr=:http", `--health-addr: ":http" is neither host:port`},
		{"--diagnostics-address=:6060", `--diagnostics-address: profiles and the state of the hub would be served to the network without sign-in: ":6060" is not a loopback address`},
		{"--diagnostics-address=localhost", `--diagnostics-address: "localhost" is neither host:port`},
		{"--kube-api-qps=-1", "--kube-api-qps: -1 is negative: set it to 1 or more, or to 0 for a number by CPUs"},
		{"--cluster-dials=-1", "--cluster-dials: -1 is negative"},
		{"--cluster-lists=-1", "--cluster-lists: -1 is negative"},
		{"--health-addr=:70000", `--health-addr: ":70000" is neither host:port`},
		{"--events-addr=notification-controller", "--events-addr: \"notification-controller\" is not an http:// or https:// URL"},
		{"--events-addr=ftp://x/", "is not an http:// or https:// URL"},
		{"--dashboard-bind-address=8090", `--dashboard-bind-address: "8090" is neither host:port`},
		{"--dashboard-bind-address=:8090", "would be sent to it unencrypted: serve it on 127.0.0.1 or over TLS"},
		{"--dashboard-bind-address=[::]:8090 --dashboard-auth=none", "sign-in is disabled"},
		{"--dashboard-auth=oidc", `--dashboard-auth: "oidc" is not token or none`},
		{"--dashboard-url=capstan.example.org", `--dashboard-url: "capstan.example.org" is not an https:// URL`},
		{"--dashboard-url=http://capstan.example.org", "--dashboard-url: \"http://capstan.example.org\" is not encrypted: use https://"},
		{"--dashboard-url=https://example.org/capstan", "has a path: the dashboard is served at the root of its host"},
		{"--dashboard-oidc-issuer-url=https://id.example.org --dashboard-url=https://a.example.org", "--dashboard-oidc-client-id: it is required with --dashboard-oidc-issuer-url"},
		{"--dashboard-oidc-issuer-url=https://id.example.org --dashboard-oidc-client-id=a", "--dashboard-url: it is required with --dashboard-oidc-issuer-url"},
		{"--dashboard-oidc-issuer-url=http://id.example.org", "--dashboard-oidc-issuer-url: \"http://id.example.org\" is not encrypted"},
		{"--dashboard-oidc-issuer-url=https://id.example.org --dashboard-auth=none", "--dashboard-oidc-issuer-url: sign-in is disabled by --dashboard-auth=none"},
		{"--dashboard-oidc-issuer-url=https://id.example.org --dashboard-oidc-scopes=email\\groups", "is not a scope: separate scopes by commas"},
		{"--dashboard-oidc-client-id=a", "--dashboard-oidc-client-id: it has no effect without an issuer: set --dashboard-oidc-issuer-url, too"},
		{"--dashboard-oidc-ca-file=a", "--dashboard-oidc-ca-file: it has no effect without an issuer"},
		{"--dashboard-tls-cert-file=d.crt", "--dashboard-tls-cert-file: a certificate needs its key"},
		{"--promotion-hook-bind-address=8082", `--promotion-hook-bind-address: "8082" is neither host:port`},
		{"--promotion-hook-tls-cert-file=tls.crt", "--promotion-hook-tls-cert-file: a certificate needs its key"},
		{"--promotion-hook-tls-key-file=tls.key", "--promotion-hook-tls-cert-file: a certificate needs its key"},
		{"--promotion-hook-rate-limit=0", "--promotion-hook-rate-limit: 0 is not a positive number of calls"},
		{"--stall-after=0s", "--stall-after: 0s must be a positive duration"},
		{"--pull-request-deadline=30s", "--pull-request-deadline: 30s is too short"},
		{"--promotion-retention=-1h", "--promotion-retention: -1h0m0s must be a positive duration"},
		{"--promotion-keep=-1", "--promotion-keep: -1 is negative"},
		{"--log-level=warn", `--log-level: "warn" is not one of trace, debug, info, error`},
		{"--log-encoding=text", `--log-encoding: "text" is not one of json, console`},
		{"--check-endpoint=main", "--check-endpoint: it must be NAME=URL, such as main=http://prometheus.monitoring:9090"},
		{"--check-endpoint=main=http://a,token-file=/t", "--check-endpoint: endpoint main: token-file needs an https:// URL"},
		{"--check-endpoint=main=http://a --check-endpoint=main=http://b", "--check-endpoint: endpoint main is given twice: give each its own name"},
		{"--git-proxy=proxy:3128", "--git-proxy: the URL of the proxy is not http://host:port or https://host:port"},
		{"--cluster-proxy=http://robot:canary@proxy:3128", "--cluster-proxy: the URL of the proxy has a user"},
		{"--cluster-proxy-credentials-file=/file", "--cluster-proxy: credentials are given, but no proxy"},
		{"--git-proxy=http://proxy:3128 --no-proxy=http://a", `--no-proxy: "http://a" is not a host`},
		{"--no-proxy=example.com", "--no-proxy: it has no effect without a proxy: set --git-proxy or --cluster-proxy, too"},
		{"--cluster-secret-namespaces=fleet,Team_A", `--cluster-secret-namespaces: "Team_A" is not the name of a namespace`},
		{"--app-kinds=", "--app-kinds: name at least one kind"},
		{"--app-kinds=helmreleases.helm.toolkit.fluxcd.io", "is not Kind.group"},
		{"--app-kinds=*.helm.toolkit.fluxcd.io", "is not Kind.group"},
		{"--app-kinds=Secret", `"Secret" is a kind of Kubernetes itself`},
		{"--app-kinds=Deployment.apps", `"Deployment.apps" is a kind of Kubernetes itself`},
		{"--app-kinds=ClusterRole.rbac.authorization.k8s.io", "is a kind of Kubernetes itself"},
		{"--app-kinds=Thing.Not_A_Group.io", `"Not_A_Group.io" is not an API group`},
	} {
		t.Run(strings.TrimPrefix(tc.flag, "--"), func(t *testing.T) {
			_, err := parse(t, strings.Fields(tc.flag)...).options()
			NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring(tc.says), Not(ContainSubstring("canary")))))
		})
	}
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	_, err := parse(t, "--log-level=warn", "--stall-after=0s").options()
	NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("--log-level"), ContainSubstring("--stall-after"))))
}

func TestNamespaceOfTheLease(t *testing.T) {
	g := NewWithT(t)
	t.Setenv(runtimeNamespace, "capstan-system")
	o, err := parse(t).options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.LeaderElectionNamespace).To(Equal("capstan-system"))
}

func TestProxies(t *testing.T) {
	g := NewWithT(t)
	o, err := parse(t).options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.GitProxy).To(BeNil())
	g.Expect(o.ClusterProxy).To(BeNil())
	o, err = parse(t, "--git-proxy=http://git.example.com:3128", "--git-proxy-credentials-file=/git", "--cluster-proxy=https://clusters.example.com", "--no-proxy=.intern.example.com,10.0.0.0/8").options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.GitProxy.String()).To(Equal("http://git.example.com:3128"))
	g.Expect(o.ClusterProxy.String()).To(Equal("https://clusters.example.com"))
	for _, p := range []*egress.Proxy{o.GitProxy, o.ClusterProxy} {
		g.Expect(p.Serves("example.com:443")).To(BeTrue())
		g.Expect(p.Serves("a.intern.example.com:443")).To(BeFalse())
		g.Expect(p.Serves("10.1.2.3:6443")).To(BeFalse())
	}
}

func TestCheckEndpoints(t *testing.T) {
	g := NewWithT(t)
	o, err := parse(t).options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.CheckEndpoints).To(BeEmpty())
	o, err = parse(t, "--check-endpoint=main=http://prometheus:9090", "--check-endpoint=team=https://example.com/p,token-file=/token,namespace=a,namespace=b").options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.CheckEndpoints).To(Equal([]measure.Endpoint{
		{Name: "main", URL: &url.URL{Scheme: "http", Host: "prometheus:9090"}},
		{Name: "team", URL: &url.URL{Scheme: "https", Host: "example.com", Path: "/p"}, TokenFile: "/token", Namespaces: []string{"a", "b"}},
	}))
}

// A hub that shares the management cluster has its lease where it runs, by its name; one of a namespace without a name
// has it in that namespace, and one of all namespaces under the name that it always had.
func TestLeasesOfSeveralHubs(t *testing.T) {
	g := NewWithT(t)
	t.Setenv(runtimeNamespace, "capstan-system")
	for _, c := range []struct {
		args   string
		shares bool
		lease  string
	}{
		{"--leader-elect", false, "capstan-system"},
		{"--leader-elect --hub-name=east", false, "capstan-system"},
		{"--leader-elect --namespace=team-a", false, "team-a"},
		{"--leader-elect --namespace=team-a --hub-name=east", true, "capstan-system"},
		{"--leader-elect --namespace=team-a,team-b --hub-name=east", true, "capstan-system"},
		{"--namespace=team-a,team-b --hub-name=east", false, "capstan-system"},
	} {
		o, err := parse(t, strings.Fields(c.args)...).options()
		g.Expect(err).NotTo(HaveOccurred(), c.args)
		g.Expect(o.SharesCluster()).To(Equal(c.shares), c.args)
		g.Expect(o.LeaderElectionNamespace).To(Equal(c.lease), c.args)
	}
	for args, want := range map[string]string{
		"--leader-elect --namespace=team-a,team-b":                                                    "--namespace: several namespaces need a hub with a name of its own: set --hub-name",
		"--leader-elect --namespace= --hub-name=east":                                                 "--namespace: the list is empty",
		"--leader-elect --namespace=team-a --hub-name=east --cluster-secret-namespaces=team-a,team-b": "--cluster-secret-namespaces: team-b is not in --namespace",
	} {
		_, err := parse(t, strings.Fields(args)...).options()
		g.Expect(err).To(MatchError(ContainSubstring(want)), args)
	}
	_, err := parse(t, "--hub-name=East.1").options()
	g.Expect(err).NotTo(HaveOccurred(), "it is only the source of events")
	_, err = parse(t, "--leader-elect", "--namespace=team-a", "--hub-name=East.1").options()
	g.Expect(err).To(MatchError(ContainSubstring(`--hub-name: "East.1" must consist of at most 40 small letters, digits and hyphens`)))
}

// When the namespace of the lease is not known, the error says what to set, before the
// first connection.
func TestLeaseWithoutNamespace(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "namespace")
	options := func(args ...string) error {
		s := parse(t, args...)
		s.podNamespace = file
		_, err := s.options()
		return err
	}
	t.Setenv(runtimeNamespace, "")
	g.Expect(options("--leader-elect")).To(MatchError(And(
		ContainSubstring("--leader-elect: the namespace of the lease is not known outside of a pod"), ContainSubstring(runtimeNamespace), ContainSubstring("--namespace"))))
	g.Expect(options()).To(Succeed())
	g.Expect(options("--leader-elect", "--namespace=team-a")).To(Succeed())
	t.Setenv(runtimeNamespace, "capstan-system")
	g.Expect(options("--leader-elect")).To(Succeed())

	t.Setenv(runtimeNamespace, "")
	g.Expect(os.WriteFile(file, []byte("capstan-system"), 0o600)).To(Succeed())
	g.Expect(options("--leader-elect")).To(Succeed(), "in a pod")
}

func TestLogLevelsAndEncodings(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	parse(t, "--log-level=info").logger(&out).V(1).Info("hidden")
	parse(t, "--log-level=debug").logger(&out).V(2).Info("hidden")
	parse(t, "--log-level=error").logger(&out).Info("hidden")
	g.Expect(out.String()).To(BeEmpty())
	parse(t, "--log-level=trace").logger(&out).V(2).Info("shown", "key", "value")
	g.Expect(out.String()).To(And(HavePrefix("{"), ContainSubstring(`"msg":"shown","key":"value"`)))
	out.Reset()
	parse(t, "--log-encoding=console").logger(&out).Info("shown", "key", "value")
	g.Expect(out.String()).To(ContainSubstring("shown\t{\"key\": \"value\"}"))
}

func TestExitCodes(t *testing.T) {
	t.Setenv("KUBECONFIG", "/does/not/exist")
	t.Setenv("HOME", t.TempDir())
	for _, tc := range []struct {
		name     string
		args     []string
		code     int
		out, err string
	}{
		{"version command", []string{"version"}, 0, "capstan ", ""},
		{"version flag", []string{"--version"}, 0, "capstan ", ""},
		{"without a command", nil, 0, "Available Commands:", ""},
		{"help", []string{"--help"}, 0, "Run the hub", ""},
		{"help of the hub", []string{"hub", "--help"}, 0, "--leader-elect-lease-duration", ""},
		{"flag of the hub without its command", []string{"--leader-elect", "--namespace=apps"}, 1, "", "--leader-elect is a flag of the command hub: the hub is started by `capstan hub --leader-elect`"},
		{"unknown flag", []string{"--leader-election"}, 1, "", "unknown flag: --leader-election (see capstan --help)"},
		{"unknown flag of the hub", []string{"hub", "--leader-election"}, 1, "", "unknown flag: --leader-election"},
		{"argument of the hub", []string{"hub", "run"}, 1, "", `unknown command "run" for "capstan hub"`},
		{"explain without a name", []string{"explain", "pipeline"}, 1, "", "accepts 1 arg"},
		{"explain what is no name", []string{"explain", "pipeline", "a/b/c", "--server=https://127.0.0.1:1"}, 1, "", `"a/b/c" is neither NAMESPACE/NAME, such as apps/shop, nor NAME`},
		{"explain in two namespaces", []string{"explain", "pipeline", "apps/shop", "-n", "web", "--server=https://127.0.0.1:1"}, 1, "", `"apps/shop" is in namespace apps, and --namespace is web: omit one of the two`},
		{"explain without credentials", []string{"explain", "pipeline", "apps/shop"}, 1, "", "no credentials of a management cluster"},
		{"explain shows its help", []string{"explain"}, 0, "Explain a Pipeline", ""},
		{"bad value", []string{"hub", "--stall-after=soon"}, 1, "", "stall-after"},
		{"argument", []string{"run"}, 1, "", "unknown command"},
		{"misspelt command", []string{"expain"}, 1, "", `unknown command "expain" for "capstan": did you mean explain?`},
		{"misspelt subcommand", []string{"explain", "pipline"}, 1, "", `unknown command "pipline" for "capstan explain": did you mean pipeline?`},
		{"unknown command with a flag", []string{"stauts", "--namespace=apps"}, 1, "", `unknown command "stauts" for "capstan": did you mean status? (see capstan --help)`},
		{"unknown command with a flag of another", []string{"sing", "--output=curl"}, 1, "", `unknown command "sing" for "capstan"`},
		{"unknown subcommand with a flag", []string{"explain", "pipelines", "apps/shop", "--kubeconfig=/does/not/exist"}, 1, "", `unknown command "pipelines" for "capstan explain": did you mean pipeline?`},
		{"unknown flag of a group", []string{"explain", "--kubeconfig=/does/not/exist"}, 1, "", "unknown flag: --kubeconfig"},
		{"approve without credentials", []string{"approve", "apps/shop"}, 1, "", "no credentials of a management cluster"},
		{"status of an unreachable cluster", []string{"status", "--server=https://127.0.0.1:1"}, 1, "", "the API server at https://127.0.0.1:1 is unreachable: check the network and the context"},
		{"rejection without a comment", []string{"reject", "apps/shop"}, 1, "", "--comment is required"},
		{"rollback without a reason", []string{"rollback", "apps/shop", "prod"}, 1, "", "--reason is required"},
		{"promote without an environment", []string{"promote", "apps/shop"}, 1, "", "accepts 2 arg(s), received 1"},
		{"dry run of the client", []string{"suspend", "apps/shop", "--dry-run=client"}, 1, "", `--dry-run: "client" is not one of none, server`},
		{"unknown condition", []string{"status", "--fail-on=late"}, 1, "", `--fail-on: "late" is not one of failed, stalled,`},
		{"no credentials", []string{"hub"}, 1, "", "no credentials of a management cluster"},
		{"no such file", []string{"hub", "--kubeconfig=/does/not/exist"}, 1, "", "/does/not/exist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			var out, errOut bytes.Buffer
			g.Expect(Main(context.Background(), tc.args, &out, &errOut)).To(Equal(tc.code))
			g.Expect(out.String()).To(ContainSubstring(tc.out))
			g.Expect(errOut.String()).To(ContainSubstring(tc.err))
		})
	}
}

// The level of a log can be changed while it is written.
func TestLogLevel(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	s := defaultSettings()
	log := s.logger(&out)
	g.Expect(s.logLevel.Name()).To(Equal("info"))
	log.V(1).Info("before")
	g.Expect(s.logLevel.Set("debug")).To(Succeed())
	g.Expect(s.logLevel.Name()).To(Equal("debug"))
	log.V(1).Info("after")
	g.Expect(s.logLevel.Set("loud")).To(MatchError(`"loud" is not a log level: use trace, debug, info, error`))
	g.Expect(out.String()).To(And(ContainSubstring("after"), Not(ContainSubstring("before"))))
}
