package promotionwindow_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/promotionwindow"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

var management = controlplane.Share("capstan")

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(30 * time.Second)
	os.Exit(leaks.Main(func() int { return controlplane.StopShared(m.Run(), os.Stderr, management) }))
}

func scheme(g Gomega) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, pipelinesv1.AddToScheme, capstanv1.AddToScheme} {
		g.Expect(add(s)).To(Succeed())
	}
	return s
}

func pipeline(namespace, name string, environments ...string) *pipelinesv1.Pipeline {
	p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: pipelinesv1.PipelineSpec{
		Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
		AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: name},
	}}
	for _, e := range environments {
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: e, Targets: []pipelinesv1.Target{{Namespace: e}}})
	}
	return p
}

// A status that another program changed is corrected, also of a window that does not change by itself.
func TestStatusIsWrittenAgain(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	c, err := client.New(management.Get(t).Config(), client.Options{Scheme: scheme(g)})
	g.Expect(err).NotTo(HaveOccurred())
	stop := &capstanv1.PromotionWindow{ObjectMeta: metav1.ObjectMeta{Name: "always"}, Spec: capstanv1.PromotionWindowSpec{WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow}}}
	g.Expect(c.Create(ctx, stop)).To(Succeed())
	r := promotionwindow.New(promotionwindow.Options{Client: c, Recorder: events.NewFakeRecorder(10), Clock: testclock.NewFakePassiveClock(time.Now())})
	again := func() {
		result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stop)})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.RequeueAfter).To(BeNumerically("~", 5*time.Minute, time.Minute))
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(stop), stop)).To(Succeed())
		g.Expect(stop.Status.Active).To(BeTrue())
	}
	again()
	stop.Status.Active = false
	g.Expect(c.Status().Update(ctx, stop)).To(Succeed())
	again()
}

// outdated is a client whose Get returns an earlier version, as a cache may.
type outdated struct {
	client.Client
	window *capstanv1.PromotionWindow
}

func (o outdated) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	o.window.DeepCopyInto(into.(*capstanv1.PromotionWindow))
	return nil
}

// Of several hubs that share the management cluster, one reports that a window begins, and none counts the Pipelines of its
// own namespaces.
func TestShared(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	c, err := client.New(management.Get(t).Config(), client.Options{Scheme: scheme(g)})
	g.Expect(err).NotTo(HaveOccurred())
	now := time.Now().Truncate(time.Second)
	w := &capstanv1.PromotionWindow{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Spec: capstanv1.PromotionWindowSpec{WindowSpec: pipelinesv1.WindowSpec{
		Type: pipelinesv1.DenyWindow, From: now.Add(-time.Hour).UTC().Format(time.RFC3339), Until: now.Add(time.Hour).UTC().Format(time.RFC3339),
	}}}
	g.Expect(c.Create(ctx, w)).To(Succeed())
	created := w.DeepCopy()
	recorder := events.NewFakeRecorder(10)
	for _, reader := range []client.Client{c, outdated{c, created}, c} {
		r := promotionwindow.New(promotionwindow.Options{Client: reader, Recorder: recorder, Shared: true, Clock: testclock.NewFakePassiveClock(now)})
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w)})
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(recorder.Events).To(HaveLen(1))
	g.Expect(<-recorder.Events).To(HaveSuffix("the window is active"))
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(w), w)).To(Succeed())
	g.Expect(w.Status).To(And(HaveField("Active", true), HaveField("Pipelines", BeZero())))
	g.Expect(c.Delete(ctx, w)).To(Succeed())
}

// A window says whether it is valid and active, when that changes, and how many Pipelines it selects; so
// do its Events and the metric.
func TestStatus(t *testing.T) {
	g, ctx, now := NewWithT(t), t.Context(), time.Now().Truncate(time.Second)
	clock := testclock.NewFakePassiveClock(now)
	registry, recorder := prometheus.NewRegistry(), events.NewFakeRecorder(100)
	mgr, err := ctrl.NewManager(management.Get(t).Config(), ctrl.Options{Scheme: scheme(g), Metrics: metricsserver.Options{BindAddress: "0"}})
	g.Expect(err).NotTo(HaveOccurred())
	r := promotionwindow.New(promotionwindow.Options{Client: mgr.GetClient(), Recorder: recorder, Registerer: registry, Clock: clock})
	g.Expect(r.SetupWithManager(mgr)).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { g.Expect(<-ended).To(Succeed()) })
	c, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	g.Expect(err).NotTo(HaveOccurred())

	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"tier": "dev"}}}
	g.Expect(c.Create(ctx, team)).To(Succeed())
	g.Expect(c.Create(ctx, pipeline("team", "shop", "dev", "prod"))).To(Succeed())
	g.Expect(c.Create(ctx, pipeline("default", "web", "prod", "dr"))).To(Succeed())
	g.Expect(c.Create(ctx, pipeline("default", "one", "prod"))).To(Succeed())

	stored := func(o *capstanv1.PromotionWindow) func() capstanv1.PromotionWindowStatus {
		return func() capstanv1.PromotionWindowStatus {
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			return o.Status
		}
	}
	create := func(name string, spec capstanv1.PromotionWindowSpec) *capstanv1.PromotionWindow {
		o := &capstanv1.PromotionWindow{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		g.Expect(c.Create(ctx, o)).To(Succeed())
		return o
	}
	valid := func(status metav1.ConditionStatus, message string) gomegatypes.GomegaMatcher {
		return ContainElement(And(HaveField("Type", capstanv1.ValidCondition), HaveField("Status", status), HaveField("Message", ContainSubstring(message))))
	}

	// A freeze that begins in an hour, of one environment and the namespaces of one tier.
	later := create("later", capstanv1.PromotionWindowSpec{
		WindowSpec: pipelinesv1.WindowSpec{
			Type: pipelinesv1.DenyWindow, From: now.Add(time.Hour).UTC().Format(time.RFC3339), Until: now.Add(3 * time.Hour).UTC().Format(time.RFC3339),
		},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "prod"}}, Environments: []string{"prod"},
	})
	g.Eventually(stored(later)).Should(And(HaveField("Active", false), HaveField("Pipelines", BeZero()), HaveField("ObservedGeneration", int64(1)),
		HaveField("NextChangeTime.Time", BeTemporally("==", now.Add(time.Hour))), HaveField("Conditions", valid(metav1.ConditionTrue, "the spec is valid"))))

	// The namespace gets the label: its Pipeline is counted, that of another namespace is not.
	before := team.DeepCopy()
	team.Labels["tier"] = "prod"
	g.Expect(c.Patch(ctx, team, client.MergeFrom(before))).To(Succeed())
	g.Eventually(stored(later)).Should(HaveField("Pipelines", int32(1)))

	// It begins.
	clock.SetTime(now.Add(time.Hour))
	result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(later)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(Equal(5*time.Minute), "the clock may be set")
	g.Eventually(stored(later)).Should(And(HaveField("Active", true), HaveField("LastTransitionTime.Time", BeTemporally("==", now.Add(time.Hour)))))
	g.Eventually(recorder.Events).Should(Receive(Equal("Normal Activated the window is active; it selects 1 Pipelines")))

	// All of the cluster; nothing is promoted into the only environment of a Pipeline.
	stop := create("stop", capstanv1.PromotionWindowSpec{WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow}})
	g.Eventually(stored(stop)).Should(And(HaveField("Active", true), HaveField("Pipelines", int32(2)), HaveField("NextChangeTime", BeNil())))
	g.Eventually(recorder.Events).Should(Receive(Equal("Normal Activated the window is active; it selects 2 Pipelines")))

	// One that is not valid names all its fields, and is corrected.
	bad := create("bad", capstanv1.PromotionWindowSpec{
		WindowSpec:        pipelinesv1.WindowSpec{Type: pipelinesv1.AllowWindow, Schedule: "0 9 * * 1-5", Duration: "8h", TimeZone: "Europe/Rigo"},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Is"}}},
	})
	g.Eventually(stored(bad)).Should(And(HaveField("Active", false), HaveField("Pipelines", int32(2)), HaveField("Conditions", And(
		valid(metav1.ConditionFalse, `correct spec.namespaceSelector: "Is" is not a valid label selector operator; spec.timeZone: `),
		valid(metav1.ConditionFalse, "until then, the window is not active, so that nothing is promoted by mistake")))))
	g.Eventually(recorder.Events).Should(Receive(HavePrefix("Warning InvalidSpec correct spec.namespaceSelector")))
	g.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP capstan_promotion_windows PromotionWindows, by type (Allow, Deny) and state (active, inactive, invalid). One that is invalid denies, or allows nothing.
# TYPE capstan_promotion_windows gauge
capstan_promotion_windows{state="active",type="Allow"} 0
capstan_promotion_windows{state="active",type="Deny"} 2
capstan_promotion_windows{state="inactive",type="Allow"} 0
capstan_promotion_windows{state="inactive",type="Deny"} 0
capstan_promotion_windows{state="invalid",type="Allow"} 1
capstan_promotion_windows{state="invalid",type="Deny"} 0
`))).To(Succeed())
	fixed := bad.DeepCopy()
	fixed.Spec.NamespaceSelector, fixed.Spec.TimeZone = nil, "Europe/Riga"
	g.Expect(c.Patch(ctx, fixed, client.MergeFrom(bad))).To(Succeed())
	g.Eventually(stored(bad)).Should(HaveField("Conditions", valid(metav1.ConditionTrue, "the spec is valid")))
	g.Eventually(recorder.Events).Should(Receive(Equal("Normal Valid the spec is valid")))

	// Nothing changes: nothing is written.
	version := bad.ResourceVersion
	_, err = r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(bad)})
	g.Expect(err).NotTo(HaveOccurred())
	stored(bad)()
	g.Expect(bad.ResourceVersion).To(Equal(version))

	g.Expect(c.Create(ctx, &capstanv1.PromotionWindow{ObjectMeta: metav1.ObjectMeta{Name: "neither"}, Spec: capstanv1.PromotionWindowSpec{
		WindowSpec: pipelinesv1.WindowSpec{Type: "deny"},
	}})).To(MatchError(ContainSubstring("type must be Allow or Deny")))
}
