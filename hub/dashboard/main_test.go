package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// hubUser is the hub's user name; it has the permissions of config/rbac.
const hubUser = "system:serviceaccount:capstan-system:capstan-hub"

// patience is the timeout of waits, for a machine that runs other tests, too.
const patience = "2m"

// loggedActions is how many log lines about actions a test may read afterwards.
const loggedActions = 64

var (
	// plane is started for the first test that needs one.
	plane    *controlplane.ControlPlane
	plane1   sync.Once
	admin    client.Client
	errPlane error
	scheme   = runtime.NewScheme()
	// stops end what was started for all tests.
	stops []func() error
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, pipelinesv1.AddToScheme, capstanv1.AddToScheme, eventingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	os.Exit(leaks.Main(func() int { return run(m) }))
}

func run(m *testing.M) int {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	for _, stop := range stops {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// management is a client of an administrator; rights and policies are those of config.
func management(t *testing.T) client.Client {
	t.Helper()
	plane1.Do(func() {
		if plane, errPlane = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan", "cluster-api", "cluster-api-provider-aws", "cluster-controller")}); errPlane == nil {
			stops = append(stops, plane.Stop)
			admin, errPlane = prepared(t.Context(), plane)
		}
	})
	NewWithT(t).Expect(errPlane).NotTo(HaveOccurred())
	return admin
}

// prepared applies the rights and policies of config to a control plane, and returns a client of
// an administrator.
func prepared(ctx context.Context, p *controlplane.ControlPlane) (client.Client, error) {
	c, err := client.New(p.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	for _, file := range []string{"rbac/hub_role.yaml", "rbac/hub_role_binding.yaml", "rbac/approver_role.yaml",
		"rbac/operator_role.yaml", "rbac/overrider_role.yaml", "rbac/promoter_role.yaml", "rbac/tenant_role.yaml", "rbac/window_admin_role.yaml",
		"admission/approval_policy.yaml", "admission/rejection_policy.yaml", "admission/override_policy.yaml", "admission/promotion_policy.yaml", "admission/request_policy.yaml"} {
		if err := apply(ctx, c, filepath.Join(controlplane.Root(), "config", file)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// apply the manifests of a file.
func apply(ctx context.Context, c client.Client, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	documents := yaml.NewYAMLOrJSONDecoder(f, 1<<16)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := c.Create(ctx, object); err != nil {
			return err
		}
	}
}

// steppedClock does not advance between steps, so that no test depends on the speed of the
// machine; its timers are real.
type steppedClock struct {
	clock.RealClock
	mu  sync.Mutex
	now time.Time // guarded by mu
}

func (c *steppedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *steppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *steppedClock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
}

// world is a dashboard over a real API server, in namespaces of its own. The test writes
// the status that the hub's reconcilers would write.
type world struct {
	*WithT
	t *testing.T
	c client.Client
	// fleet holds the clusters, apps the Pipelines.
	fleet, apps string
	clock       *steppedClock
	options     Options
	// server that was started last, and where it is.
	server *Server
	url    string
	// registry of the dashboard that was served last.
	registry *prometheus.Registry
	// lines of the log about actions.
	lines chan string

	mu    sync.Mutex
	heard map[view.Cluster]view.Observed
	leads bool
}

var worldsNow atomic.Int64

// newWorld starts a dashboard without sign-in; edit can change its options.
func newWorld(t *testing.T, edit func(*Options)) *world {
	t.Helper()
	c := management(t)
	return newWorldOn(t, plane, c, edit)
}

// newWorldOn is newWorld on a control plane that was prepared.
func newWorldOn(t *testing.T, plane *controlplane.ControlPlane, c client.Client, edit func(*Options)) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t, c: c, clock: &steppedClock{now: time.Now()}, heard: map[view.Cluster]view.Observed{}, leads: true, lines: make(chan string, loggedActions)}
	n := worldsNow.Add(1)
	w.fleet, w.apps = fmt.Sprintf("fleet-%d", n), fmt.Sprintf("apps-%d", n)
	for _, name := range []string{w.fleet, w.apps} {
		w.Expect(w.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	hub := plane.Config()
	hub.QPS, hub.Burst = 1000, 1000
	hub.Impersonate = rest.ImpersonationConfig{UserName: hubUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	objects, err := cache.New(hub, cache.Options{Scheme: scheme, ByObject: CacheOptions("capstan"), DefaultNamespaces: map[string]cache.Config{w.fleet: {}, w.apps: {}}})
	w.Expect(err).NotTo(HaveOccurred())
	asks, err := client.New(hub, client.Options{Scheme: scheme})
	w.Expect(err).NotTo(HaveOccurred())
	w.options = Options{
		BindAddress: "127.0.0.1:0", Auth: AuthNone, Version: "v1.2.3", Cache: objects, Client: asks, Config: plane.Config(), Clock: w.clock, Logger: logr.Discard(),
		Leads: func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.leads },
		Live:  func() map[view.Cluster]view.Observed { w.mu.Lock(); defer w.mu.Unlock(); return maps.Clone(w.heard) },
	}
	if edit != nil {
		edit(&w.options)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- objects.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.serve()
	return w
}

// serve starts a dashboard, as at the start of a hub. It ends with the test, or by stop.
func (w *world) serve() (stop func()) {
	w.t.Helper()
	addresses := make(chan string, 1)
	o := w.options
	o.Logger = logr.New(listening{addresses, w.lines})
	w.registry = prometheus.NewRegistry()
	o.Registerer = w.registry
	s, err := New(o)
	w.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	scheme := "http://"
	if o.CertFile != "" {
		scheme = "https://"
	}
	w.url = scheme + <-addresses
	w.Eventually(s.source.ready.Load, patience).Should(BeTrue())
	w.server = s
	return stop
}

// seen waits until the dashboard has an object as it was written: each kind comes by a
// watch of its own, and they lag behind each other.
func (w *world) seen(o client.Object) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		f, err := w.server.source.facts(w.t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		versions := map[types.UID]string{}
		for i := range f.Connections {
			versions[f.Connections[i].UID] = f.Connections[i].ResourceVersion
		}
		for i := range f.Pipelines {
			versions[f.Pipelines[i].UID] = f.Pipelines[i].ResourceVersion
		}
		for i := range f.Promotions {
			versions[f.Promotions[i].UID] = f.Promotions[i].ResourceVersion
		}
		for _, e := range f.Events {
			versions[e.UID] = e.ResourceVersion
		}
		g.Expect(versions).To(HaveKeyWithValue(o.GetUID(), o.GetResourceVersion()))
	}, patience).Should(Succeed())
}

// listening reads the chosen address from its log line, and passes on the lines about actions.
type listening struct {
	to, actions chan<- string
}

func (listening) Init(logr.RuntimeInfo)            {}
func (listening) Enabled(int) bool                 { return true }
func (listening) Error(error, string, ...any)      {}
func (l listening) WithValues(...any) logr.LogSink { return l }
func (l listening) WithName(string) logr.LogSink   { return l }
func (l listening) Info(_ int, said string, with ...any) {
	if said == "serving dashboard" {
		l.to <- fmt.Sprint(with[1])
	}
	if strings.HasPrefix(said, "action of a user") {
		select {
		case l.actions <- fmt.Sprintf("%s %v", said, with):
		default: // Nothing reads them.
		}
	}
}

// cluster creates a ClusterConnection as clusters.Manager writes it, with a contact now.
func (w *world) cluster(name string) *capstanv1.ClusterConnection {
	w.t.Helper()
	c := &capstanv1.ClusterConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.fleet, Name: "cluster." + name},
		Spec:       capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: w.fleet, Name: name}},
	}
	w.Expect(w.c.Create(w.t.Context(), c)).To(Succeed())
	c.Status = capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionReady, Reason: "Connected", KubernetesVersion: "v1.36.3"}
	w.Expect(w.c.Status().Update(w.t.Context(), c)).To(Succeed())
	w.seen(c)
	w.hear(name, view.Observed{State: capstanv1.ConnectionReady, Reason: "Connected", LastContact: w.clock.Now()})
	return c
}

func (w *world) hear(name string, h view.Observed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard[view.Cluster{Kind: "Cluster", Namespace: w.fleet, Name: name}] = h
	w.clock.step(factsFor) // After which it is looked at again.
}

// lead makes the replica the leader or a standby.
func (w *world) lead(does bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leads = does
	w.clock.step(factsFor)
}

// pipeline creates a Pipeline with one environment for each cluster; all run a revision.
func (w *world) pipeline(name, revision string, clusters ...string) *pipelinesv1.Pipeline {
	w.t.Helper()
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.apps, Name: name},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: name},
			Promotion: &pipelinesv1.Promotion{Manual: true, Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
		},
	}
	for _, c := range clusters {
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: c, Targets: []pipelinesv1.Target{
			{Namespace: name, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: w.fleet, Name: c}},
		}})
	}
	w.Expect(w.c.Create(w.t.Context(), p)).To(Succeed())
	for _, c := range clusters {
		w.runs(p, c, revision)
	}
	return p
}

// runs writes into the status that an environment runs a revision.
func (w *world) runs(p *pipelinesv1.Pipeline, environment, revision string) {
	w.t.Helper()
	w.status(p, environment, func(e *pipelinesv1.EnvironmentStatus) {
		e.Targets = []pipelinesv1.TargetStatus{{ClusterAppRef: pipelinesv1.ClusterAppReference{LocalAppReference: p.Spec.AppRef}, Ready: true, Revision: revision}}
		e.Agreed = &pipelinesv1.AgreedRevision{Revision: revision, Sequence: 1}
	})
}

func (w *world) status(p *pipelinesv1.Pipeline, environment string, edit func(*pipelinesv1.EnvironmentStatus)) {
	w.t.Helper()
	if p.Status.Environments == nil {
		p.Status.Environments = map[string]*pipelinesv1.EnvironmentStatus{}
	}
	if p.Status.Environments[environment] == nil {
		p.Status.Environments[environment] = &pipelinesv1.EnvironmentStatus{}
	}
	edit(p.Status.Environments[environment])
	w.Expect(w.c.Status().Update(w.t.Context(), p)).To(Succeed())
	w.seen(p)
}

// waits creates a promotion that waits for an approval.
func (w *world) waits(p *pipelinesv1.Pipeline, environment, revision string) *capstanv1.Promotion {
	w.t.Helper()
	promotion := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.apps, Name: p.Name + "-" + environment + "-1", Labels: map[string]string{capstanv1.PipelineUIDLabel: string(p.UID)}},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: p.Name, UID: p.UID}, App: p.Spec.AppRef, Environment: environment, Number: 1,
			Revision: revision, Source: capstanv1.PromotionSource{Environment: "dev", Sequence: 1}, Strategy: p.Spec.Promotion.Strategy, Manual: true,
		},
	}
	w.Expect(w.c.Create(w.t.Context(), promotion)).To(Succeed())
	promotion.Status = capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval}
	w.Expect(w.c.Status().Update(w.t.Context(), promotion)).To(Succeed())
	w.seen(promotion)
	w.status(p, environment, func(e *pipelinesv1.EnvironmentStatus) {
		e.Promotion = &pipelinesv1.PromotionSummary{Name: promotion.Name, Revision: revision, Phase: string(capstanv1.PhaseAwaitingApproval)}
		e.WaitingApproval.Revision = revision
	})
	return promotion
}

// account creates a ServiceAccount and returns its token.
func (w *world) account(name string) string {
	w.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.apps, Name: name}}
	w.Expect(w.c.Create(w.t.Context(), account)).To(Succeed())
	return w.token(name)
}

// token returns a token of a ServiceAccount.
func (w *world) token(name string) string {
	w.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.apps, Name: name}}
	request := &authenticationv1.TokenRequest{}
	w.Expect(w.c.SubResource("token").Create(w.t.Context(), account, request)).To(Succeed())
	return request.Status.Token
}

// may permits a subject to list the shown kinds of a namespace.
func (w *world) may(namespace string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	w.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "may-"}, Rules: rules}
	w.Expect(w.c.Create(w.t.Context(), role)).To(Succeed())
	w.Expect(w.c.Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role.Name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	})).To(Succeed())
	w.granted(namespace, subject, rules...)
}

// granted waits until the API server has new permissions: it watches roles and bindings
// with a delay, and the dashboard caches a repeated denial for deniedFor.
func (w *world) granted(namespace string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	w.t.Helper()
	for _, rule := range rules {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: rule.Verbs[0]},
		}}
		if subject.Kind == rbacv1.GroupKind {
			review.Spec.Groups = []string{subject.Name}
		} else {
			review.Spec.User = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
		}
		w.Eventually(func(g Gomega) {
			asked := review.DeepCopy()
			g.Expect(w.c.Create(w.t.Context(), asked)).To(Succeed())
			g.Expect(asked.Status.Allowed).To(BeTrue())
		}, patience).Should(Succeed())
	}
}

// approver binds config's ClusterRole for approvers.
func (w *world) approver(subject rbacv1.Subject) {
	w.t.Helper()
	w.binds(subject, "capstan-approver", rbacv1.PolicyRule{APIGroups: []string{capstanv1.GroupVersion.Group}, Resources: []string{"promotions"}, Verbs: []string{"approve"}})
}

// binds a ClusterRole of config in the namespace of the Pipelines, and waits until it has one of its rules.
func (w *world) binds(subject rbacv1.Subject, role string, rule rbacv1.PolicyRule) {
	w.t.Helper()
	w.Expect(w.c.Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.apps, GenerateName: role + "-"}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	})).To(Succeed())
	w.granted(w.apps, subject, rule)
}

func (w *world) subject(account string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: w.apps, Name: account}
}

var (
	lists       = rbacv1.PolicyRule{APIGroups: []string{"pipelines.weave.works", "capstan.dev"}, Resources: []string{"pipelines", "promotions", "clusterconnections"}, Verbs: []string{"list"}}
	listsEvents = rbacv1.PolicyRule{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"list"}}
)

// verifyNone fails the test if it leaves goroutines. The test must not be parallel.
func verifyNone(t *testing.T) {
	t.Helper()
	leaks.AtEnd(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
}
