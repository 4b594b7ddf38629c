package flux_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/fluxcd/pkg/apis/meta"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/flux"
	"github.com/capstan-hub/capstan/playground/leaks"
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	log.SetLogger(logr.Discard())
	var err error
	plane, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("helm-controller", "source-controller")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = plane.Stop() }()
	return m.Run()
}

func newClient(t *testing.T) client.WithWatch {
	t.Helper()
	scheme, err := flux.Scheme()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	c, err := client.NewWithWatch(plane.Config(), client.Options{Scheme: scheme})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

func newRelease(t *testing.T) flux.Release {
	t.Helper()
	r := flux.Release{Client: newClient(t), Key: types.NamespacedName{Namespace: "apps", Name: nameOf(t)}}
	t.Cleanup(func() {
		obj := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Key.Namespace, Name: r.Key.Name}}
		NewWithT(t).Expect(client.IgnoreNotFound(r.Client.Delete(context.Background(), obj))).To(Succeed())
	})
	return r
}

// nameOf is the test's name in the letters that Kubernetes admits.
func nameOf(t *testing.T) string {
	name := []byte(t.Name())
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			name[i] = b + 'a' - 'A'
		}
	}
	return string(name)
}

func read(g Gomega, r flux.Release) *helmv2.HelmRelease {
	obj := &helmv2.HelmRelease{}
	g.Expect(r.Client.Get(context.Background(), r.Key, obj)).To(Succeed())
	return obj
}

func TestInstallThenUpgrade(t *testing.T) {
	g := NewWithT(t)
	r := newRelease(t)
	g.Expect(r.Deploy(t.Context(), "1.0.0")).To(Succeed())

	obj := read(g, r)
	ready := apimeta.FindStatusCondition(obj.Status.Conditions, meta.ReadyCondition)
	g.Expect(ready.Status).To(Equal(metav1.ConditionTrue))
	g.Expect(ready.Reason).To(Equal(helmv2.InstallSucceededReason))
	g.Expect(ready.Message).To(Equal("Helm install succeeded for release apps/testinstallthenupgrade.v1 with chart testinstallthenupgrade@1.0.0"))
	g.Expect(obj.Status.History).To(HaveLen(1))

	g.Expect(r.Deploy(t.Context(), "1.1.0")).To(Succeed())
	g.Expect(r.Deploy(t.Context(), "1.2.0")).To(Succeed())
	obj = read(g, r)
	g.Expect(obj.Status.Conditions[0].Type).To(Equal(meta.ReadyCondition), "Ready stands first")
	g.Expect(obj.Status.Conditions[0].Reason).To(Equal(helmv2.UpgradeSucceededReason))
	g.Expect(apimeta.FindStatusCondition(obj.Status.Conditions, meta.ReconcilingCondition)).To(BeNil())
	g.Expect(obj.Status.ObservedGeneration).To(Equal(obj.Generation))
	g.Expect(obj.Status.LastAttemptedRevision).To(Equal("1.2.0"))
	g.Expect(obj.Status.HelmChart).To(Equal("apps/apps-testinstallthenupgrade"))
	g.Expect(obj.Status.History).To(HaveLen(2), "the deployed one and the one before")
	g.Expect(obj.Status.History[0].ChartVersion).To(Equal("1.2.0"))
	g.Expect(obj.Status.History[0].Status).To(Equal("deployed"))
	g.Expect(obj.Status.History[0].Version).To(Equal(3))
	g.Expect(obj.Status.History[1].ChartVersion).To(Equal("1.1.0"))
	g.Expect(obj.Status.History[1].Status).To(Equal("superseded"))
}

// A watcher must see what helm-controller lets it see, in that order.
func TestStepsOfAnUpgrade(t *testing.T) {
	g := NewWithT(t)
	r := newRelease(t)
	g.Expect(r.Deploy(t.Context(), "1.0.0")).To(Succeed())
	start := read(g, r)

	watcher, err := newClient(t).Watch(t.Context(), &helmv2.HelmReleaseList{}, client.InNamespace(r.Key.Namespace),
		client.MatchingFields{"metadata.name": r.Key.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: start.ResourceVersion}})
	g.Expect(err).NotTo(HaveOccurred())
	defer watcher.Stop()
	g.Expect(r.Deploy(t.Context(), "1.1.0")).To(Succeed())

	var seen []string
	for e := range watcher.ResultChan() {
		g.Expect(e.Type).To(Equal(watch.Modified))
		obj := e.Object.(*helmv2.HelmRelease)
		ready := apimeta.FindStatusCondition(obj.Status.Conditions, meta.ReadyCondition)
		seen = append(seen, fmt.Sprintf("generation %d/%d, Ready %s %s, running %s, attempted %s",
			obj.Status.ObservedGeneration, obj.Generation, ready.Status, ready.Reason,
			obj.Status.History[0].ChartVersion, obj.Status.LastAttemptedRevision))
		if obj.Status.ObservedGeneration == obj.Generation {
			break
		}
	}
	g.Expect(seen).To(Equal([]string{
		"generation 1/2, Ready True InstallSucceeded, running 1.0.0, attempted 1.0.0",
		"generation 1/2, Ready True InstallSucceeded, running 1.0.0, attempted 1.0.0",
		"generation 1/2, Ready False SourceNotReady, running 1.0.0, attempted 1.0.0",
		"generation 1/2, Ready Unknown Progressing, running 1.0.0, attempted 1.1.0",
		"generation 1/2, Ready True UpgradeSucceeded, running 1.1.0, attempted 1.1.0",
		"generation 2/2, Ready True UpgradeSucceeded, running 1.1.0, attempted 1.1.0",
	}))
}

func TestFailedUpgradeKeepsWhatIsDeployed(t *testing.T) {
	g := NewWithT(t)
	r := newRelease(t)
	g.Expect(r.Deploy(t.Context(), "1.0.0")).To(Succeed())
	g.Expect(r.Fail(t.Context(), "1.1.0", errors.New("context deadline exceeded"))).To(Succeed())

	obj := read(g, r)
	g.Expect(obj.Status.Conditions[0].Status).To(Equal(metav1.ConditionFalse))
	g.Expect(obj.Status.Conditions[0].Reason).To(Equal(helmv2.UpgradeFailedReason))
	g.Expect(obj.Status.Conditions[0].Message).To(HaveSuffix("with chart testfailedupgradekeepswhatisdeployed@1.1.0: context deadline exceeded"))
	stalled := apimeta.FindStatusCondition(obj.Status.Conditions, meta.StalledCondition)
	g.Expect(stalled.Message).To(Equal("Failed to upgrade after 1 attempt(s)"))
	g.Expect(obj.Status.UpgradeFailures).To(Equal(int64(1)))
	g.Expect(obj.Status.History[0].Status).To(Equal("failed"))
	g.Expect(obj.Status.History[1].Status).To(Equal("deployed"))
	g.Expect(obj.Status.History[1].ChartVersion).To(Equal("1.0.0"))

	g.Expect(r.Deploy(t.Context(), "1.1.1")).To(Succeed())
	obj = read(g, r)
	g.Expect(obj.Status.Conditions[0].Status).To(Equal(metav1.ConditionTrue))
	g.Expect(apimeta.FindStatusCondition(obj.Status.Conditions, meta.StalledCondition)).To(BeNil())
	g.Expect(obj.Status.Failures).To(BeZero())
}

func TestFailedInstallHasNothingDeployed(t *testing.T) {
	g := NewWithT(t)
	r := newRelease(t)
	g.Expect(r.Fail(t.Context(), "1.0.0", errors.New("no such image"))).To(Succeed())
	obj := read(g, r)
	g.Expect(obj.Status.Conditions[0].Reason).To(Equal(helmv2.InstallFailedReason))
	g.Expect(obj.Status.History).To(HaveLen(1))
	g.Expect(obj.Status.History[0].Status).To(Equal("failed"))
}

func TestOCIChartReportsItsDigest(t *testing.T) {
	g := NewWithT(t)
	r := newRelease(t)
	r.OCIDigest = "sha256:1e80e5c66d2f4b1e0a6d3f3ea2d8a4b0a8b1d3a7d6c5b4a39281706f5e4d3c2b"
	g.Expect(r.Deploy(t.Context(), "6.0.1")).To(Succeed())
	obj := read(g, r)
	g.Expect(obj.Spec.Chart).To(BeNil())
	g.Expect(obj.Status.History[0].ChartVersion).To(Equal("6.0.1+1e80e5c66d2f"))
	g.Expect(obj.Status.History[0].OCIDigest).To(Equal(r.OCIDigest))
	g.Expect(obj.Status.LastAttemptedRevision).To(Equal("6.0.1+1e80e5c66d2f"))
	g.Expect(obj.Status.LastAttemptedRevisionDigest).To(Equal(r.OCIDigest))

	generation := obj.Generation
	g.Expect(r.Deploy(t.Context(), "6.0.2")).To(Succeed())
	obj = read(g, r)
	g.Expect(obj.Generation).To(Equal(generation), "the version of an OCI chart is not in the HelmRelease")
	g.Expect(obj.Status.History[0].ChartVersion).To(Equal("6.0.2+1e80e5c66d2f"))
}

func TestRangesAreRefused(t *testing.T) {
	g := NewWithT(t)
	g.Expect(newRelease(t).Deploy(t.Context(), ">=1.0.0")).To(MatchError(flux.ErrVersion))
}

func TestAgentFollowsTheSpec(t *testing.T) {
	g := NewWithT(t)
	r := newRelease(t)
	g.Expect(r.Declare(t.Context(), "1.0.0")).To(Succeed()) // The test's own connection is there.
	defer leaks.VerifyNone(t, goleak.IgnoreCurrent())
	agent, err := flux.NewAgent(flux.AgentOptions{Config: plane.Config(), Logger: logr.Discard()})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- agent.Start(ctx) }()

	deployed := func(version string) func(Gomega) {
		return func(g Gomega) {
			obj := read(g, r)
			g.Expect(obj.Status.ObservedGeneration).To(Equal(obj.Generation))
			g.Expect(obj.Status.History[0].ChartVersion).To(Equal(version))
		}
	}
	for _, version := range []string{"1.0.0", "1.1.0", "1.0.0"} {
		g.Expect(r.Declare(t.Context(), version)).To(Succeed())
		g.Eventually(deployed(version), 10*time.Second, 20*time.Millisecond).Should(Succeed())
	}
	obj := read(g, r)
	g.Expect(obj.Status.History[0].Version).To(Equal(3), "one Helm release for each change")

	stop()
	g.Eventually(ended, 10*time.Second).Should(Receive(BeNil()))
}
