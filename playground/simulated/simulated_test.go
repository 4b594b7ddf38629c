package simulated_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/flux"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/simulated"
)

const (
	patience = 30 * time.Second
	polling  = 20 * time.Millisecond
)

var (
	releases = schema.GroupVersionResource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Resource: "helmreleases"}
	plane    *controlplane.ControlPlane
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(polling)
	var err error
	if plane, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("helm-controller", "kustomize-controller")}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = plane.Stop() }()
	return m.Run()
}

func newFleet(t *testing.T, o simulated.Options) *simulated.Fleet {
	t.Helper()
	leaks.AtEnd(t)
	f, err := simulated.New(o)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(f.Close)
	return f
}

func config(t *testing.T, c *simulated.Cluster) *rest.Config {
	t.Helper()
	got, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return got
}

// subject is an API server with three HelmReleases, app-0 to app-2, at 1.0.0.
type subject struct {
	config *rest.Config
	deploy func(t *testing.T, app int, revision string)
	remove func(t *testing.T, app int)
}

func subjects(t *testing.T) map[string]subject {
	peer := newFleet(t, simulated.Options{Clusters: 1, Applications: 3}).Clusters()[0]
	scheme, err := flux.Scheme()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	c, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	release := func(app int) flux.Release {
		return flux.Release{Client: c, Key: types.NamespacedName{Namespace: simulated.Namespace, Name: fmt.Sprintf("app-%d", app)}}
	}
	deploy := func(t *testing.T, app int, revision string) {
		t.Helper()
		NewWithT(t).Expect(release(app).Deploy(t.Context(), revision)).To(Succeed())
	}
	remove := func(t *testing.T, app int) {
		t.Helper()
		r := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: simulated.Namespace, Name: fmt.Sprintf("app-%d", app)}}
		NewWithT(t).Expect(c.Delete(t.Context(), r)).To(Succeed())
	}
	for app := range 3 {
		deploy(t, app, "1.0.0")
	}
	t.Cleanup(func() {
		_ = c.DeleteAllOf(context.Background(), &helmv2.HelmRelease{}, client.InNamespace(simulated.Namespace))
	})
	return map[string]subject{
		"a real API server": {plane.Config(), deploy, remove},
		"a simulated one": {
			config(t, peer),
			func(_ *testing.T, app int, revision string) { peer.Deploy(app, revision) },
			func(_ *testing.T, app int) { peer.DeleteApp(app) },
		},
	}
}

// TestAsARealAPIServer: whatever the hub asks, both answer alike.
func TestAsARealAPIServer(t *testing.T) {
	for name, s := range subjects(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			set, err := kubernetes.NewForConfig(s.config)
			g.Expect(err).NotTo(HaveOccurred())
			raw, err := set.RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(raw)).To(Equal("ok"))
			version, err := set.ServerVersion()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(version.GitVersion).To(Equal("v1.37.2"))
			system, err := set.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(system.UID).NotTo(BeEmpty())

			for path, found := range map[string]bool{
				"/apis/helm.toolkit.fluxcd.io": true, "/apis/helm.toolkit.fluxcd.io/v2": true,
				"/apis/helm.toolkit.fluxcd.io/v7": false, "/apis/none.example.org": false,
			} {
				raw, err := set.RESTClient().Get().AbsPath(path).DoRaw(t.Context())
				g.Expect(err == nil).To(Equal(found), path)
				g.Expect(found || apierrors.IsNotFound(err)).To(BeTrue(), path)
				g.Expect(!found || strings.Contains(string(raw), `"v2"`) || strings.Contains(string(raw), `"helmreleases"`)).To(BeTrue(), path)
			}

			d, err := dynamic.NewForConfig(s.config)
			g.Expect(err).NotTo(HaveOccurred())
			one, err := d.Resource(releases).Namespace(simulated.Namespace).Get(t.Context(), "app-1", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			obj := &helmv2.HelmRelease{}
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(one.Object, obj, true)).To(Succeed())
			g.Expect(obj.Status.History.Latest().ChartVersion).To(Equal("1.0.0"))
			_, err = d.Resource(releases).Namespace(simulated.Namespace).Get(t.Context(), "none", metav1.GetOptions{})
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue())

			page, err := d.Resource(releases).List(t.Context(), metav1.ListOptions{Limit: 2})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(page.Items).To(HaveLen(2))
			rest, err := d.Resource(releases).List(t.Context(), metav1.ListOptions{Limit: 2, Continue: page.GetContinue()})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(rest.Items).To(HaveLen(1))
			g.Expect(rest.GetContinue()).To(BeEmpty())
			elsewhere, err := d.Resource(releases).Namespace("elsewhere").List(t.Context(), metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(elsewhere.Items).To(BeEmpty())

			initial, err := d.Resource(releases).Watch(t.Context(), metav1.ListOptions{
				SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			})
			g.Expect(err).NotTo(HaveOccurred())
			defer initial.Stop()
			for range 3 {
				g.Expect(next(g, initial).Type).To(Equal(watch.Added))
			}
			end := next(g, initial)
			g.Expect(end.Type).To(Equal(watch.Bookmark))
			mark, ok := end.Object.(*unstructured.Unstructured)
			g.Expect(ok).To(BeTrue())
			g.Expect(mark.GetAnnotations()).To(HaveKeyWithValue(metav1.InitialEventsAnnotationKey, "true"))
			s.deploy(t, 2, "1.1.0")
			s.remove(t, 0)
			g.Expect(until(g, initial, watch.Deleted).GetName()).To(Equal("app-0"))

			resumed, err := d.Resource(releases).Watch(t.Context(), metav1.ListOptions{ResourceVersion: mark.GetResourceVersion(), TimeoutSeconds: ptr.To[int64](2)})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(until(g, resumed, watch.Deleted).GetName()).To(Equal("app-0"))
			g.Eventually(resumed.ResultChan()).Should(BeClosed(), "when the time that was asked for is over")

			old, err := d.Resource(releases).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
			g.Expect(err).NotTo(HaveOccurred())
			defer old.Stop()
			said := next(g, old)
			g.Expect(said.Type).To(Equal(watch.Error))
			g.Expect(apierrors.IsResourceExpired(apierrors.FromObject(said.Object))).To(BeTrue())

			stranger, err := kubernetes.NewForConfig(unknown(s.config))
			g.Expect(err).NotTo(HaveOccurred())
			_, err = stranger.RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
			g.Expect(apierrors.IsUnauthorized(err)).To(BeTrue(), "a token that is presented is checked")
		})
	}
}

// unknown is the configuration with a token that nobody issued.
func unknown(c *rest.Config) *rest.Config {
	c = rest.AnonymousClientConfig(c)
	c.BearerToken = "nobody's"
	return c
}

func next(g *WithT, w watch.Interface) watch.Event {
	var event watch.Event
	g.Eventually(w.ResultChan()).Should(Receive(&event))
	return event
}

// until skips to the next event of a type.
func until(g *WithT, w watch.Interface, kind watch.EventType) *unstructured.Unstructured {
	for {
		if event := next(g, w); event.Type == kind {
			u, _ := event.Object.(*unstructured.Unstructured)
			return u
		}
	}
}

// TestInformer: client-go's own informer follows a simulated server through what
// becomes of it, and lists again only when it must.
func TestInformer(t *testing.T) {
	g := NewWithT(t)
	c := newFleet(t, simulated.Options{Clusters: 1, Applications: 2, BookmarkEvery: 50 * time.Millisecond}).Clusters()[0]
	d, err := dynamic.NewForConfig(config(t, c))
	g.Expect(err).NotTo(HaveOccurred())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(d, 0)
	informer := factory.ForResource(releases).Informer()
	ctx, stop := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer stop()
	runs := func() string {
		o, exists, err := informer.GetStore().GetByKey(simulated.Namespace + "/app-0")
		if err != nil || !exists {
			return "nothing"
		}
		u, _ := o.(*unstructured.Unstructured)
		raw, _ := json.Marshal(u.Object)
		r := &helmv2.HelmRelease{}
		_ = json.Unmarshal(raw, r)
		return r.Status.History.Latest().ChartVersion
	}
	g.Eventually(runs).Should(Equal("1.0.0"))
	c.Deploy(0, "1.1.0")
	g.Eventually(runs).Should(Equal("1.1.0"))
	lists := c.Counts().Lists + c.Counts().WatchLists
	c.EndWatches()
	c.Deploy(0, "1.2.0")
	g.Eventually(runs).Should(Equal("1.2.0"))
	g.Expect(c.Counts().Lists+c.Counts().WatchLists).To(Equal(lists), "the watch resumed")
	c.Set(simulated.Gone)
	c.EndWatches()
	c.Deploy(0, "1.3.0")
	g.Eventually(runs).Should(Equal("1.3.0"))
	g.Eventually(func() int64 { return c.Counts().Lists + c.Counts().WatchLists }).Should(BeNumerically(">", lists))
	c.Set(simulated.Serve)
	c.DeleteApp(0)
	g.Eventually(runs).Should(Equal("nothing"))
}

// TestModes: each is what it says.
func TestModes(t *testing.T) {
	c := newFleet(t, simulated.Options{Clusters: 1, Applications: 1}).Clusters()[0]
	type expectation func(error) bool
	for _, tc := range []struct {
		mode   simulated.Mode
		expect expectation
	}{
		{simulated.Unauthorized, apierrors.IsUnauthorized},
		{simulated.Forbidden, apierrors.IsForbidden},
		{simulated.TooMany, func(err error) bool { return err != nil }}, // client-go tries until its context ends.
		{simulated.Broken, apierrors.IsInternalError},
		{simulated.NoCRD, apierrors.IsNotFound},
		{simulated.Refuse, func(err error) bool { return err != nil && strings.Contains(err.Error(), "connection refused") }},
		{simulated.Tarpit, func(err error) bool { return err != nil && !strings.Contains(err.Error(), "TLS handshake timeout") }},
		{simulated.HalfOpen, func(err error) bool { return err != nil }},
		{simulated.Garbage, func(err error) bool { return err != nil }},
		{simulated.Serve, func(err error) bool { return err == nil }},
	} {
		c.Set(tc.mode)
		func() {
			g := NewWithT(t)
			to := config(t, c)
			to.Timeout = time.Second
			d, err := dynamic.NewForConfig(to)
			g.Expect(err).NotTo(HaveOccurred())
			// A connection of the mode before may end in the first answer.
			g.Eventually(func() error {
				// The client's own patience with 429 is cut short.
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := d.Resource(releases).List(ctx, metav1.ListOptions{})
				return err
			}, 20*time.Second).Should(Satisfy(tc.expect), "mode %d", tc.mode)
		}()
	}
}
