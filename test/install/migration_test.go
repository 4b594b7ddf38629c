package install

import (
	"context"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// A team migrates from pipeline-controller. It holds prod at an older revision. A shell runs
// the commands of the guide, word for word: the hub runs dry beside the old controller and says what it
// would promote, and promotes that when the team switches it on.
func TestTheMigrationGuide(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("cluster-api", "cluster-controller", "helm-controller")})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = plane.Stop() })
	scheme := hub.Scheme()
	g.Expect(helmv2.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	_, typed := newShell(t, plane)

	// What is there before: the old controller, its CRD, the applications and a Pipeline.
	typed("kubectl create namespace flux-system; kubectl create namespace apps; kubectl create namespace dev; kubectl create namespace prod; kubectl create namespace fleet")
	labels := map[string]string{"app": "pipeline-controller"}
	g.Expect(c.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "pipeline-controller"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "pipeline-controller"}}},
		}},
	})).To(Succeed())
	g.Expect(c.Create(t.Context(), formerCRD(g))).To(Succeed())
	deploy(g, c, "dev", "1.1.0")
	deploy(g, c, "prod", "1.0.0")
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "shop"},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:       pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2beta1", Kind: "HelmRelease", Name: "shop"},
			Environments: []pipelinesv1.Environment{{Name: "dev", Targets: []pipelinesv1.Target{{Namespace: "dev"}}}, {Name: "prod", Targets: []pipelinesv1.Target{{Namespace: "prod"}}}},
			Promotion:    &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
		},
	}
	g.Eventually(func() error { return c.Create(t.Context(), p) }).Should(Succeed(), "the API server serves the CRD soon")

	promotions := func() []capstanv1.Promotion {
		var all capstanv1.PromotionList
		g.Expect(c.List(t.Context(), &all)).To(Succeed())
		return all.Items
	}
	var stop func()
	user, err := plane.UserConfig(hubUser, "system:serviceaccounts", "system:authenticated")
	g.Expect(err).NotTo(HaveOccurred())
	scaledDown := func() bool {
		var old appsv1.Deployment
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "flux-system", Name: "pipeline-controller"}, &old)).To(Succeed())
		return old.Spec.Replicas != nil && *old.Spec.Replicas == 0
	}
	left := maps.Clone(notTypedToMigrate)
	for _, command := range commands(t, "docs/migrating-from-pipeline-controller.md") {
		if begins, not := beginsWith(command, notTypedToMigrate); not {
			delete(left, begins)
			continue
		}
		said := typed(command)
		switch {
		case strings.HasPrefix(command, "helm install"):
			// In place of the chart's Deployment: no kubelet starts it. It has the rights that the chart grants.
			g.Expect(said).To(ContainSubstring("DRY RUN"))
			stop = runHubWith(t, user, nil, hub.Options{DryRun: true, Logger: logr.Discard()})
			g.Eventually(func() string {
				g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
				if p.Status.DryRun == nil {
					return ""
				}
				return p.Status.DryRun.Message
			}).WithTimeout(time.Minute).Should(ContainSubstring("1.1.0 would be promoted"))
		case command == "capstan status":
			g.Expect(strings.Join(strings.Fields(said), " ")).To(HavePrefix("DRY RUN: the hub promotes nothing, and would create 1 promotion now"))
		case strings.HasPrefix(command, "capstan explain"):
			g.Expect(strings.Join(strings.Fields(said), " ")).To(ContainSubstring("prod: dry run: 1.1.0 would be promoted into it from dev by notification."))
		case strings.Contains(command, "jsonpath"):
			g.Expect(said).To(ContainSubstring(p.Status.DryRun.Message))
		case strings.HasPrefix(command, "helm upgrade"):
			g.Expect(scaledDown()).To(BeTrue(), "the old controller was stopped before")
			g.Expect(promotions()).To(BeEmpty())
			stop()
			runHubWith(t, user, nil, hub.Options{Logger: logr.Discard()})
		}
	}
	g.Expect(stop).NotTo(BeNil(), "the guide installs the hub")
	g.Expect(left).To(BeEmpty(), "the guide does not say these any more")
	g.Eventually(promotions).WithTimeout(time.Minute).Should(ConsistOf(HaveField("Spec.Revision", "1.1.0")), "switched on")
}

// notTypedToMigrate are commands of the guide that cannot be typed here, and why.
var notTypedToMigrate = map[string]string{
	"kubectl -n capstan-system rollout": "no kubelet starts pods",
}

// formerCRD is that of Pipelines without what this project added to the spec.
func formerCRD(g *WithT) *unstructured.Unstructured {
	raw, err := os.ReadFile(path("config", "crd", "bases", "pipelines.weave.works_pipelines.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	crd := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal(raw, &crd.Object)).To(Succeed())
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	g.Expect(err).NotTo(HaveOccurred())
	version, ok := versions[0].(map[string]any)
	g.Expect(ok).To(BeTrue())
	at := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties", "suspend"}
	_, has, err := unstructured.NestedMap(version, at...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(has).To(BeTrue())
	unstructured.RemoveNestedField(version, at...)
	g.Expect(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")).To(Succeed())
	return crd
}

// deploy writes a HelmRelease as helm-controller leaves it.
func deploy(g *WithT, c client.Client, namespace, revision string) {
	r := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}
	r.Spec.ChartRef = &helmv2.CrossNamespaceSourceReference{Kind: "OCIRepository", Name: "shop"}
	r.Spec.Interval = metav1.Duration{Duration: time.Minute}
	g.Expect(c.Create(context.Background(), r)).To(Succeed())
	r.Status.ObservedGeneration = r.Generation
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "UpgradeSucceeded", ObservedGeneration: r.Generation})
	r.Status.History = helmv2.Snapshots{{
		Name: "shop", Namespace: namespace, Version: 1, Status: "deployed", ChartName: "shop", ChartVersion: revision,
		Digest: "sha256:1", ConfigDigest: "sha256:2", FirstDeployed: metav1.Now(), LastDeployed: metav1.Now(),
	}}
	g.Expect(c.Status().Update(context.Background(), r)).To(Succeed())
}
