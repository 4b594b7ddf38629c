package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
)

// fleet resolves every reference, except those of clusters named "nowhere".
type fleet struct{}

func (fleet) Resolve(r clusters.Ref) (multicluster.ClusterName, error) {
	if r.Name == "nowhere" {
		return "", fmt.Errorf("%s not found: %w", r, clusters.ErrNotFound)
	}
	return r.ClusterName(), nil
}

func (fleet) Select(string, string, labels.Selector) ([]clusters.Ref, error) { return nil, nil }
func (fleet) Labels(clusters.Ref) (labels.Set, error)                        { return nil, clusters.ErrNotFound }

func (fleet) WaitForObjects(context.Context) error { return nil }

type noDemand struct{}

func (noDemand) SetDemand(string, []watchers.Demand) {}
func (noDemand) Confirm(watchers.Demand)             {}

func (noDemand) SetDemands(map[string][]watchers.Demand) {}

// scene has one Pipeline of dev and prod, in the management cluster.
type scene struct {
	g          *WithT
	r          *Reconciler
	p          *pipelinesv1.Pipeline
	recorder   *events.FakeRecorder
	promotions []capstanv1.Promotion
	clock      *testclock.FakeClock
	// next is the time after which the last reconcile asks for another.
	next time.Duration
}

func newScene(t *testing.T) *scene {
	s := &scene{g: NewWithT(t), recorder: events.NewFakeRecorder(20), clock: testclock.NewFakeClock(time.Unix(1_700_000_000, 0))}
	s.start()
	s.p = pipelineNamed("shop")
	s.p.CreationTimestamp = metav1.NewTime(s.r.Clock.Now().Add(time.Minute))
	return s
}

// start is a new process.
func (s *scene) start() {
	s.r = New(Options{
		Clusters: fleet{}, Watchers: noDemand{}, Index: index.New(), Recorder: s.recorder, Clock: s.clock,
		AppKinds: []schema.GroupKind{{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}},
	})
}

func pipelineNamed(name string) *pipelinesv1.Pipeline {
	return &pipelinesv1.Pipeline{
		Status:     pipelinesv1.PipelineStatus{Schema: pipelinesv1.StatusSchema, SchemaFleets: pipelinesv1.StatusSchemaFleets},
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name, UID: types.UID(name), Generation: 1},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:       pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Environments: []pipelinesv1.Environment{{Name: "dev", Targets: []pipelinesv1.Target{{Namespace: "dev"}}}, {Name: "prod", Targets: []pipelinesv1.Target{{Namespace: "prod"}}}},
			Promotion:    &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
		},
	}
}

var helmReleases = index.Kind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}

// runs makes the release in a namespace appear as observed.
func (s *scene) runs(namespace string, o index.Observation) {
	s.r.observe(s.p) // So that it is used.
	s.r.Index.SetFreshness(index.LocalCluster, helmReleases, index.Freshness{Fresh: true})
	o.Found = true
	s.r.Index.Observe(index.Object{Kind: helmReleases, Namespace: namespace, Name: "web"}, o)
}

func ready10() index.Observation { return index.Observation{Ready: true, Revision: "1.0"} }

// reconcile writes the status, as Reconcile does, and returns the Events.
func (s *scene) reconcile() []string {
	of, seen, found := s.r.observe(s.p)
	s.r.stand(of, seen)
	before := s.p.DeepCopy()
	s.p.Status, s.next = s.r.status(of, seen, s.promotions, found)
	s.r.reportTransitions(context.Background(), before, s.p, seen.clusterFault())
	var all []string
	for {
		select {
		case e := <-s.recorder.Events:
			all = append(all, e)
			continue
		default:
		}
		return all
	}
}

func (s *scene) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(s.p.Status.Conditions, kind)
}

func (s *scene) promotion(env, revision string, status capstanv1.PromotionStatus) {
	s.promotions = append(s.promotions, capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "shop-" + env + "-1"},
		Spec:       capstanv1.PromotionSpec{Pipeline: capstanv1.PipelineReference{Name: s.p.Name, UID: s.p.UID}, Environment: env, Revision: revision, Number: 1},
		Status:     status,
	})
}

// `kubectl get pipelines` says what keeps a Pipeline from promoting, although every cluster
// can be read.
func TestReadySaysWhatDoesNotWork(t *testing.T) {
	stalled := []metav1.Condition{{Type: capstanv1.StalledCondition, Status: metav1.ConditionTrue, Reason: "TooOld", Message: "in AwaitingMerge since yesterday"}}
	for name, tc := range map[string]struct {
		edit     func(*scene)
		message  string
		stalled  bool
		inFlight string
	}{
		"nothing": {func(*scene) {}, "All clusters checked", false, ""},
		"suspended": {func(s *scene) { s.p.Spec.Suspend = true },
			"All clusters checked; suspended: nothing is promoted until spec.suspend is false", false, ""},
		"no strategy": {func(s *scene) { s.p.Spec.Promotion.Strategy.Notification = nil },
			`All clusters checked; the promotion into environment "prod" cannot be carried out`, true, ""},
		"two strategies": {func(s *scene) { s.p.Spec.Promotion.Strategy.PullRequest = &pipelinesv1.PullRequestPromotion{} },
			`All clusters checked; the promotion into environment "prod" cannot be carried out`, true, ""},
		"no targets": {func(s *scene) { s.p.Spec.Environments[1].Targets = nil },
			`All clusters checked; environment "prod" has no targets`, true, ""},
		"failed": {func(s *scene) {
			s.promotion("prod", "1.1", capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "MarkerNotFound", Message: "the long story"})
		}, `All clusters checked; the promotion of 1.1 into environment "prod" failed (MarkerNotFound)`, true, ""},
		"stalled": {func(s *scene) {
			s.promotion("prod", "1.1", capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingMerge, Conditions: stalled})
		}, `All clusters checked; the promotion of 1.1 into environment "prod" is stalled (TooOld)`, true, "prod 1.1 AwaitingMerge"},
		"retried": {func(s *scene) {
			s.promotion("prod", "1.1", capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting, Attempt: &capstanv1.Attempt{Number: 7, Failures: 7}})
		}, `All clusters checked; the promotion of 1.1 into environment "prod" is being retried after a failure`, false, "prod 1.1 Promoting"},
		"under way": {func(s *scene) { s.promotion("prod", "1.1", capstanv1.PromotionStatus{}) }, "All clusters checked", false, "prod 1.1 Created"},
		"failed, and it arrived": {func(s *scene) {
			s.promotion("prod", "1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "MarkerNotFound"})
		}, "All clusters checked", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			tc.edit(s)
			s.runs("dev", ready10())
			s.runs("prod", ready10())
			s.reconcile()
			s.g.Expect(s.condition(pipelinesv1.ReadyCondition)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Message", HavePrefix(tc.message))))
			if tc.message == allChecked {
				s.g.Expect(s.condition(pipelinesv1.ReadyCondition).Message).To(Equal(allChecked))
			}
			s.g.Expect(s.condition(pipelinesv1.StalledCondition) != nil).To(Equal(tc.stalled))
			s.g.Expect(s.p.Status.InFlight).To(Equal(tc.inFlight))
		})
	}
}

// A target shows what the application says about itself.
func TestTargetShowsTheApplicationsOwnReason(t *testing.T) {
	s := newScene(t)
	s.runs("dev", ready10())
	s.runs("prod", index.Observation{Revision: "1.0", Reason: "UpgradeFailed", Message: "Helm upgrade failed: " + strings.Repeat("ä", 300)})
	s.reconcile()
	prod := s.p.Status.Environments["prod"].Targets[0]
	s.g.Expect(prod.Reason).To(Equal("UpgradeFailed"))
	s.g.Expect(prod.Message).To(HavePrefix("Helm upgrade failed: ä"))
	s.g.Expect(len(prod.Message)).To(BeNumerically("<=", 256))
	s.g.Expect(utf8.ValidString(prod.Message)).To(BeTrue())
	s.g.Expect(prod.Error).To(BeEmpty())
	dev := s.p.Status.Environments["dev"].Targets[0]
	s.g.Expect(dev.Reason + dev.Message).To(BeEmpty())

	s.runs("prod", ready10())
	s.reconcile()
	prod = s.p.Status.Environments["prod"].Targets[0]
	s.g.Expect(prod.Reason + prod.Message).To(BeEmpty())
}

// A stale target names the cause, and so does one whose cluster or application does not exist,
// or whose application does not say what it runs.
func TestTargetNamesWhyItIsNotReadable(t *testing.T) {
	s := newScene(t)
	s.p.Spec.Environments = append(s.p.Spec.Environments, pipelinesv1.Environment{Name: "far", Targets: []pipelinesv1.Target{
		{Namespace: "far", ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "nowhere"}},
		{Namespace: "absent"},
	}})
	s.runs("dev", index.Observation{Reason: index.ReasonNoRevision, Message: "is Ready, but status.history is empty"})
	s.runs("prod", ready10())
	s.r.Index.Observe(index.Object{Kind: helmReleases, Namespace: "absent", Name: "web"}, index.Observation{})
	s.reconcile()
	far := s.p.Status.Environments["far"].Targets
	s.g.Expect(far[0]).To(And(HaveField("Reason", pipelinesv1.TargetClusterNotFoundReason), HaveField("Error", ContainSubstring("not found"))))
	s.g.Expect(far[1]).To(And(HaveField("Reason", "AppNotFound"), HaveField("Error", ContainSubstring("HelmRelease absent/web not found"))))
	s.g.Expect(s.p.Status.Environments["dev"].Targets[0]).To(And(HaveField("Reason", "NoRevision"),
		HaveField("Error", "HelmRelease dev/web in the management cluster is Ready, but status.history is empty")))

	s.r.Index.SetFreshness(index.LocalCluster, helmReleases, index.Freshness{Reason: watchers.ReasonAuthFailed, Message: "the API server answered 401"})
	s.reconcile()
	s.g.Expect(s.p.Status.Environments["prod"].Targets[0]).To(And(HaveField("Stale", true), HaveField("Revision", "1.0"),
		HaveField("Reason", "AuthFailed"), HaveField("Error", "the API server answered 401")))
}

// An object that cannot be read for long makes Ready False, and is not waited for as one that
// was not observed yet.
func TestObjectThatCannotBeReadMakesThePipelineNotReady(t *testing.T) {
	s := newScene(t)
	s.runs("dev", ready10())
	s.r.Index.SetUnread(index.Object{Kind: helmReleases, Namespace: "prod", Name: "web"}, index.Freshness{Reason: watchers.ReasonUnreadable, Message: "HelmRelease prod/web cannot be read: 500"})
	_, seen, _ := s.r.observe(s.p)
	s.g.Expect(early(seen)).To(BeZero())
	s.reconcile()
	s.g.Expect(s.condition(pipelinesv1.ReadyCondition)).To(And(HaveField("Status", metav1.ConditionFalse),
		HaveField("Reason", pipelinesv1.TargetNotReadableReason), HaveField("Message", "HelmRelease prod/web cannot be read: 500")))
	s.runs("prod", ready10())
	s.reconcile()
	s.g.Expect(s.condition(pipelinesv1.ReadyCondition).Status).To(Equal(metav1.ConditionTrue))
}

// TestNoEventForEachPipelineOfAFirstStart: of those that are older than the process, only what does
// not work, and what works again.
func TestNoEventForEachPipelineOfAFirstStart(t *testing.T) {
	s := newScene(t)
	s.p.CreationTimestamp = metav1.NewTime(s.r.Clock.Now().Add(-time.Minute))
	s.runs("dev", ready10())
	s.runs("prod", ready10())
	s.g.Expect(s.reconcile()).To(BeEmpty())
	s.g.Expect(s.condition(pipelinesv1.ReadyCondition).Status).To(Equal(metav1.ConditionTrue))
	s.r.Index.SetFreshness(index.LocalCluster, helmReleases, index.Freshness{Reason: "Unreachable", Message: "it does not answer"})
	s.g.Expect(s.reconcile()).To(ContainElement(HavePrefix("Warning ")))
	s.r.Index.SetFreshness(index.LocalCluster, helmReleases, index.Freshness{Fresh: true})
	s.g.Expect(s.reconcile()).To(Equal([]string{"Normal Updated All clusters checked"}))

	// After the first status, it may be Unknown in between.
	s.r.observed.Store(client.ObjectKeyFromObject(s.p), observedAs{uid: s.p.UID})
	s.condition(pipelinesv1.ReadyCondition).Status = metav1.ConditionUnknown
	s.g.Expect(s.reconcile()).To(Equal([]string{"Normal Updated All clusters checked"}))
}

// A failure has one Event on the Pipeline, in its own words: the Promotion has the cause.
func TestOneEventForEachFailure(t *testing.T) {
	s := newScene(t)
	s.runs("dev", ready10())
	s.runs("prod", ready10())
	s.g.Expect(s.reconcile()).To(Equal([]string{"Normal Updated All clusters checked"}))
	s.promotion("prod", "1.1", capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "MarkerNotFound", Message: "the long story"})
	s.g.Expect(s.reconcile()).To(Equal([]string{`Warning PromotionFailed The promotion of 1.1 into environment "prod" failed (MarkerNotFound): see Promotion shop-prod-1`}))
	s.g.Expect(s.reconcile()).To(BeEmpty())
	s.promotions[0].Status.Phase = capstanv1.PhasePromoting // It was tried again.
	s.g.Expect(s.reconcile()).To(BeEmpty())
	s.promotions[0].Status.Phase = capstanv1.PhaseFailed
	s.g.Expect(s.reconcile()).To(HaveLen(1))
}

func TestInvalidSpecHasOneEvent(t *testing.T) {
	s := newScene(t)
	s.p.Spec.Environments = nil
	s.g.Expect(s.reconcile()).To(Equal([]string{"Warning InvalidSpec spec.environments is empty: name at least one environment"}))
}

// An alert on weave's Event reasons finds failures of clusters under GetClusterError, and
// missing applications under GetAppError.
func TestEventsHaveWeavesReasons(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*scene)
		want string
	}{
		"no such cluster": {func(s *scene) {
			s.p.Spec.Environments[1].Targets[0].ClusterRef = &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "nowhere"}
		}, "Warning GetClusterError "},
		"the Secret of the cluster cannot be read": {func(s *scene) {
			s.r.Index.SetFreshness(index.LocalCluster, helmReleases, index.Freshness{Reason: watchers.ReasonAuthFailed, Message: "the hub may not read the Secret"})
		}, "Warning GetClusterError the hub may not read the Secret"},
		"the kind is not installed": {func(s *scene) {
			s.r.Index.SetFreshness(index.LocalCluster, helmReleases, index.Freshness{Reason: watchers.ReasonNotInstalled, Message: "install its CRD"})
		}, "Warning GetAppError install its CRD"},
		"no such application": {func(s *scene) {
			s.r.Index.Observe(index.Object{Kind: helmReleases, Namespace: "prod", Name: "web"}, index.Observation{})
		}, "Warning GetAppError HelmRelease prod/web not found"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.runs("dev", ready10())
			s.runs("prod", ready10())
			tc.edit(s)
			s.g.Expect(s.reconcile()).To(ConsistOf(HavePrefix(tc.want)))
		})
	}
}

// The condition names each target that is not ready, once, and what it says.
func TestPromotionPendingSaysWhatIsNotReady(t *testing.T) {
	s := newScene(t)
	dev := &s.p.Spec.Environments[0]
	dev.Targets = append(dev.Targets, pipelinesv1.Target{Namespace: "dev"}, pipelinesv1.Target{Namespace: "prod"})
	s.runs("dev", index.Observation{Message: "has not reported Ready yet"})
	s.runs("prod", ready10())
	s.reconcile()
	s.g.Expect(s.condition(pipelinesv1.PromotionPendingCondition)).To(And(HaveField("Reason", "EnvironmentNotReady"),
		HaveField("Message", `Environment "dev" is not ready: dev/web in the management cluster has not reported Ready yet`)))
	s.runs("dev", index.Observation{Revision: "1.1", Reason: "UpgradeFailed", Message: "timed out"})
	s.reconcile()
	s.g.Expect(s.condition(pipelinesv1.PromotionPendingCondition).Message).To(Equal(`Environment "dev" is not ready: dev/web in the management cluster: UpgradeFailed: timed out`))
	s.runs("dev", index.Observation{Ready: true, Revision: "1.1"})
	s.reconcile()
	s.g.Expect(s.condition(pipelinesv1.PromotionPendingCondition).Message).To(Equal(
		`The targets of environment "dev" run different revisions: dev/web in the management cluster has 1.1; prod/web in the management cluster has 1.0`))
}

// Two Pipelines that promote into one application name each other, until one of them does not
// any more. Pipelines that only read it may share it.
func TestTwoPipelinesOnOneApplicationNameEachOther(t *testing.T) {
	s := newScene(t)
	var woken []string
	s.r.wake = func(keys []types.NamespacedName) {
		for _, k := range keys {
			woken = append(woken, k.Name)
		}
	}
	s.runs("dev", ready10())
	s.runs("prod", ready10())
	s.reconcile()
	other := pipelineNamed("other")
	other.Spec.Promotion = nil
	s.r.observe(other)
	s.reconcile()
	s.g.Expect(s.condition(pipelinesv1.AppSharedCondition)).To(BeNil(), "the other only shows it")
	s.g.Expect(woken).To(BeEmpty())

	other.Spec.Promotion = s.p.Spec.Promotion
	s.r.observe(other)
	s.g.Expect(woken).To(Equal([]string{"shop"}))
	s.g.Expect(s.reconcile()).To(ConsistOf(HavePrefix("Warning PromotedByOtherPipeline Pipeline apps/other also promotes into HelmRelease prod/web in the management cluster")))
	s.g.Expect(s.condition(pipelinesv1.AppSharedCondition)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Message", ContainSubstring("apps/other"))))
	s.g.Expect(shared(s.r.Index.Rivals(types.NamespacedName{Namespace: "apps", Name: "other"})).Message).To(ContainSubstring("Pipeline apps/shop also promotes into"))

	woken = nil
	s.r.forget(types.NamespacedName{Namespace: "apps", Name: "other"})
	s.g.Expect(woken).To(Equal([]string{"shop"}))
	s.g.Expect(s.reconcile()).To(BeEmpty())
	s.g.Expect(s.condition(pipelinesv1.AppSharedCondition)).To(BeNil())
}
