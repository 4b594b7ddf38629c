package browser

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/promotion/measure"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/flux"
	"github.com/capstan-hub/capstan/playground/ports"
	"github.com/capstan-hub/capstan/watchers"
)

var screenshots = flag.Bool("screenshots", false, "write docs/images anew")

// asked is the environment variable that enables the tests: they need more than Go.
var asked = os.Getenv("CAPSTAN_BROWSER") != ""

// patience is the timeout of waits, for a slow machine that runs other tests at the same time.
const patience = "2m"

// Names in the management cluster.
const (
	fleetNamespace, appsNamespace, approverName = "fleet", "apps", "release-manager"
	// teamNamespace is the only namespace that teamName may see.
	teamNamespace, teamName = "team", "developer"
	// largeNamespace is the namespace of a separate hub.
	largeNamespace = "large"
	// endpointName is the Prometheus server that checks may query.
	endpointName = "main"
)

// world is shared by all tests: an API server, which is also behind the proxies of three
// clusters, and a hub. A test that changes something uses a Pipeline of its own.
var world struct {
	plane   *controlplane.ControlPlane
	admin   client.Client
	proxies map[string]*controlplane.Proxy
	clock   *movedClock
	hub     hub.Options
	url     string
	stop    func() error
	// token belongs to a user who may approve in apps, teamToken to a user of one namespace.
	token, teamToken string
	// browser is the context of the browser, in which tabs are opened.
	browser context.Context
	aws     *awsconfig.Config
	sqs     *sqs.Service
	// queueURL of queueName, from which the hub receives events of instances.
	queueURL string
	// measured is the result of every query of a check.
	measured atomic.Value
	// endpoint is the address of the server that answers with it.
	endpoint *url.URL
	// dir has the files that the tests write.
	dir string
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if !asked {
		fmt.Println("skipped: `make browser` runs these, with the Chromium that it finds or installs")
		return 0, nil
	}
	chromium, err := find()
	if err != nil {
		return 1, err
	}
	if world.dir, err = os.MkdirTemp("", "capstan-browser-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(world.dir)) }()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if world.plane, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan", "cluster-api", "cluster-api-provider-aws", "helm-controller", "kustomize-controller")}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, world.plane.Stop()) }()
	if err := declare(); err != nil {
		return 1, err
	}
	defer func() {
		for _, p := range world.proxies {
			err = errors.Join(err, p.Close())
		}
	}()
	stopAWS, err := startAWS()
	if err != nil {
		return 1, err
	}
	defer stopAWS()
	stopPrometheus, err := startPrometheus()
	if err != nil {
		return 1, err
	}
	defer stopPrometheus()
	if err := start(); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, world.stop()) }()

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.Flag("lang", "en"))
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	defer cancel()
	browser, cancel := chromedp.NewContext(allocator)
	defer cancel()
	if err := chromedp.Do(browser); err != nil {
		return 1, fmt.Errorf("starting chromium: %w", err)
	}
	world.browser = browser
	return m.Run(), nil
}

// startPrometheus starts a server that answers queries as Prometheus does.
func startPrometheus() (stop func(), err error) {
	world.measured.Store("0.004")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"scalar","result":[1700000000,%q]}}`, world.measured.Load())
	}))
	world.endpoint, err = url.Parse(server.URL)
	return server.Close, err
}

// find finds Chromium, by the names that hack/browser.sh uses.
func find() (string, error) {
	for _, name := range []string{os.Getenv("CAPSTAN_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no chromium: run `make browser`")
}

// movedClock is the machine's clock plus an offset.
type movedClock struct {
	clock.RealClock
	mu     sync.Mutex
	offset time.Duration // guarded by mu
}

func (c *movedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *movedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *movedClock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += by
}

// declare creates the objects of administrators and teams.
func declare() error {
	ctx := context.Background()
	scheme, err := flux.Scheme()
	if err != nil {
		return err
	}
	for _, add := range []func(*runtime.Scheme) error{pipelinesv1.AddToScheme, capstanv1.AddToScheme, eventingv1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	if world.admin, err = client.New(world.plane.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	for _, name := range []string{fleetNamespace, appsNamespace, teamNamespace, largeNamespace} {
		if err := world.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	world.proxies = map[string]*controlplane.Proxy{}
	for _, name := range []string{"dev", "staging", "prod"} {
		if err := declareCluster(ctx, name, nil); err != nil {
			return err
		}
	}
	return declareUsers(ctx)
}

func declareCluster(ctx context.Context, name string, labels map[string]string) error {
	proxy, err := controlplane.NewProxy(world.plane.Config().Host)
	if err != nil {
		return err
	}
	world.proxies[name] = proxy
	host, port, err := net.SplitHostPort(strings.TrimPrefix(proxy.URL(), "https://"))
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return err
	}
	if err := world.admin.Create(ctx, &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: name, Labels: labels},
		Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: host, Port: int32(number)}},
	}); err != nil {
		return err
	}
	kubeconfig, err := world.plane.Kubeconfig(proxy.URL())
	if err != nil {
		return err
	}
	return world.admin.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: name + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: name}},
		Type:       clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig},
	})
}

// declareUsers creates a user who may see everything and approve in apps, and a user who
// may see one namespace.
func declareUsers(ctx context.Context) error {
	lists := rbacv1.PolicyRule{
		APIGroups: []string{"capstan.dev", "pipelines.weave.works", "events.k8s.io", "eventing.kyma-project.io", "cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io"},
		Resources: []string{"*"}, Verbs: []string{"list"},
	}
	approves := rbacv1.PolicyRule{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotions"}, Verbs: []string{"approve", "get", "patch"}}
	subject := func(namespace, name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
	}
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sees"}, Rules: []rbacv1.PolicyRule{lists, approves}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "sees"}, Subjects: subject(appsNamespace, approverName), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sees"},
		},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: teamNamespace, Name: "lists"}, Rules: []rbacv1.PolicyRule{lists}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: teamNamespace, Name: "lists"}, Subjects: subject(teamNamespace, teamName), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "lists"},
		},
	} {
		if err := world.admin.Create(ctx, object); err != nil {
			return err
		}
	}
	var err error
	if world.token, err = tokenOf(ctx, appsNamespace, approverName); err != nil {
		return err
	}
	world.teamToken, err = tokenOf(ctx, teamNamespace, teamName)
	return err
}

// tokenOf creates a ServiceAccount and returns a token of it.
func tokenOf(ctx context.Context, namespace, name string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := world.admin.Create(ctx, account); err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{}
	err := world.admin.SubResource("token").Create(ctx, account, request)
	return request.Status.Token, err
}

// start starts the hub, at its previous address if it ran before.
func start() error {
	if world.clock == nil {
		address, err := ports.Free()
		if err != nil {
			return err
		}
		key := filepath.Join(world.dir, "session-key")
		if err := os.WriteFile(key, []byte(strings.Repeat("k", dashboard.MinSessionKey)), 0o600); err != nil {
			return err
		}
		world.clock, world.url = &movedClock{}, "http://"+address
		world.hub = hub.Options{
			Config: world.plane.Config(), AllowLoopback: true, Logger: logr.Discard(), Clock: world.clock, AWS: world.aws,
			CheckEndpoints: []measure.Endpoint{{Name: endpointName, URL: world.endpoint}},
			Eventing:       hub.Eventing{SQSSourceNamespaces: []string{fleetNamespace}},
			Dashboard:      hub.Dashboard{BindAddress: address, Auth: dashboard.AuthToken, SessionKeyFile: key, Version: "v0.1.0"},
			ClusterTimings: clusters.Timings{ProbeInterval: time.Second, ProbeTimeout: time.Second, ProbeRetry: 200 * time.Millisecond, WriteDelay: 50 * time.Millisecond},
			WatcherTimings: watchers.Timings{Check: 200 * time.Millisecond, Retry: time.Second},
		}
	}
	var err error
	world.stop, err = launch(world.hub)
	return err
}

// launch runs one hub, until it is stopped.
func launch(o hub.Options) (stop func() error, err error) {
	o.Registerer = prometheus.NewRegistry()
	h, err := hub.New(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Start(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	}), nil
}

// release returns an application, in the namespace that represents a cluster.
func release(app, environment string) flux.Release {
	return flux.Release{Client: world.admin, Key: types.NamespacedName{Namespace: app + "-" + environment, Name: app}}
}

// pipeline creates a Pipeline over the clusters, which all run 1.0.0.
func pipeline(t *testing.T, app string, environments ...string) {
	t.Helper()
	pipelineIn(t, appsNamespace, app, nil, environments...)
}

// pipelineIn is pipeline in a namespace, with a change of its spec.
func pipelineIn(t *testing.T, namespace, app string, change func(*pipelinesv1.PipelineSpec), environments ...string) {
	t.Helper()
	g := NewWithT(t)
	by := pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: app},
			Promotion: &pipelinesv1.Promotion{Strategy: by},
		},
	}
	for _, name := range environments {
		env := pipelinesv1.Environment{Name: name, Targets: []pipelinesv1.Target{{
			Namespace:  app + "-" + name,
			ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: fleetNamespace, Name: name},
		}}}
		if name == "prod" {
			env.Promotion = &pipelinesv1.Promotion{Manual: true, Strategy: by}
		}
		p.Spec.Environments = append(p.Spec.Environments, env)
		g.Expect(release(app, name).Deploy(t.Context(), "1.0.0")).To(Succeed())
	}
	if change != nil {
		change(&p.Spec)
	}
	temporary(t, p)
}
