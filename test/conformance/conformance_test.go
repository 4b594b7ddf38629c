package conformance

import (
	"fmt"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// target of a Pipeline; an empty kind means the management cluster.
func target(kind, name string) pipelinesv1.Target {
	t := pipelinesv1.Target{Namespace: "shop"}
	if kind != "" {
		t.ClusterRef = &pipelinesv1.CrossNamespaceClusterReference{Kind: kind, Name: name}
	}
	return t
}

func newPipeline(name, app string, targets ...pipelinesv1.Target) *pipelinesv1.Pipeline {
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: pipelinesv1.PipelineSpec{
			AppRef: pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: app},
		},
	}
	for i, t := range targets {
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: fmt.Sprintf("env-%d", i), Targets: []pipelinesv1.Target{t}})
	}
	return p
}

func create(t *testing.T, to client.Client, o client.Object) {
	t.Helper()
	NewWithT(t).Expect(to.Create(t.Context(), o)).To(Succeed())
	t.Cleanup(func() { _ = client.IgnoreNotFound(to.Delete(t.Context(), o)) })
}

// condition of a Pipeline, once it is as expected.
func expectCondition(t *testing.T, p *pipelinesv1.Pipeline, kind string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
		found := meta.FindStatusCondition(p.Status.Conditions, kind)
		g.Expect(found).NotTo(BeNil(), kind)
		g.Expect(found.Status).To(Equal(status), found.Message)
		g.Expect(found.Reason).To(Equal(reason), found.Message)
		g.Expect(found.Message).To(ContainSubstring(message))
		g.Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))
	}).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(Succeed())
}

func expectReady(t *testing.T, p *pipelinesv1.Pipeline) {
	t.Helper()
	expectCondition(t, p, "Ready", metav1.ConditionTrue, "ReconciliationSucceeded", "All clusters checked")
}

func expectTarget(t *testing.T, p *pipelinesv1.Pipeline, env string, check func(Gomega, pipelinesv1.TargetStatus)) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(p.Status.Environments).To(HaveKey(env))
		g.Expect(p.Status.Environments[env].Targets).NotTo(BeEmpty())
		check(g, p.Status.Environments[env].Targets[0])
	}).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// release writes a HelmRelease with the status that helm-controller gives a
// deployed chart.
func release(t *testing.T, to client.Client, name, version, digest string, ready bool) *helmv2.HelmRelease {
	t.Helper()
	g := NewWithT(t)
	r := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	if err := to.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil {
		r.Spec.ChartRef = &helmv2.CrossNamespaceSourceReference{Kind: "OCIRepository", Name: name}
		r.Spec.Interval = metav1.Duration{Duration: time.Minute}
		create(t, to, r)
	}
	status := metav1.ConditionTrue
	if !ready {
		status = metav1.ConditionFalse
	}
	r.Status.ObservedGeneration = r.Generation
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: "Ready", Status: status, Reason: "UpgradeSucceeded", Message: "Helm upgrade", ObservedGeneration: r.Generation})
	r.Status.History = helmv2.Snapshots{{
		Name: name, Namespace: "shop", Version: 1, Status: "deployed", ChartName: name, ChartVersion: version, OCIDigest: digest,
		Digest: "sha256:1", ConfigDigest: "sha256:2", FirstDeployed: metav1.Now(), LastDeployed: metav1.Now(),
	}}
	g.Expect(to.Status().Update(t.Context(), r)).To(Succeed())
	return r
}

// capiCluster declares a Cluster with the Secret of its kubeconfig; a nil
// kubeconfig declares no Secret.
func capiCluster(t *testing.T, name string, kubeconfig []byte) {
	t.Helper()
	create(t, c, &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}},
	})
	if kubeconfig != nil {
		secret(t, name+"-kubeconfig", "value", kubeconfig)
	}
}

func secret(t *testing.T, name, key string, value []byte) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: value}}
	create(t, c, s)
	return s
}

func gitopsCluster(t *testing.T, name, field, ref string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     map[string]any{field: map[string]any{"name": ref}},
	}}
	create(t, c, u)
	return u
}

func setReady(t *testing.T, u *unstructured.Unstructured, status string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(u), u)).To(Succeed())
	g.Expect(unstructured.SetNestedSlice(u.Object, []any{map[string]any{
		"type": "Ready", "status": status, "reason": "Test", "message": "as the test says", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}, "status", "conditions")).To(Succeed())
	g.Expect(c.Status().Update(t.Context(), u)).To(Succeed())
}

func kubeconfig(t *testing.T) []byte {
	t.Helper()
	raw, err := workload.TokenKubeconfig(t.Context(), "", "hub", time.Hour)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return raw
}

// C1
func TestClusterNotFound(t *testing.T) {
	g := NewWithT(t)
	release(t, remote, "c1", "1.0.0", "", true)
	p := newPipeline("c1", "c1", target("GitopsCluster", "c1"))
	create(t, c, p)
	expectCondition(t, p, "Ready", metav1.ConditionFalse, "TargetClusterNotFound", "c1")
	g.Eventually(func(g Gomega) {
		var events corev1.EventList
		g.Expect(c.List(t.Context(), &events, client.InNamespace(namespace))).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(
			HaveField("InvolvedObject.Name", "c1"), HaveField("Type", "Warning"),
			HaveField("Reason", "GetClusterError"), HaveField("Message", ContainSubstring("GitopsCluster team/c1")))))
	}).WithTimeout(patience).Should(Succeed())
	secret(t, "c1", "kubeconfig", kubeconfig(t))
	gitopsCluster(t, "c1", "secretRef", "c1")
	expectReady(t, p)
}

// C2: an explicit Ready=False blocks; True lets go.
func TestClusterNotReady(t *testing.T) {
	release(t, remote, "c2", "1.0.0", "", true)
	secret(t, "c2", "kubeconfig", kubeconfig(t))
	u := gitopsCluster(t, "c2", "secretRef", "c2")
	setReady(t, u, "False")
	p := newPipeline("c2", "c2", target("GitopsCluster", "c2"))
	create(t, c, p)
	expectCondition(t, p, "Ready", metav1.ConditionFalse, "TargetClusterNotReady", "c2")
	setReady(t, u, "True")
	expectReady(t, p)
}

// C3, C4: missing → created unready → ready, in the management cluster.
func TestLocalTarget(t *testing.T) {
	p := newPipeline("c4", "c4", target("", ""))
	create(t, c, p)
	expectTarget(t, p, "env-0", func(g Gomega, s pipelinesv1.TargetStatus) {
		g.Expect(s.Error).To(ContainSubstring("not found"))
		g.Expect(s.Ready).To(BeFalse())
	})
	release(t, c, "c4", "1.0.0", "", false)
	expectTarget(t, p, "env-0", func(g Gomega, s pipelinesv1.TargetStatus) {
		g.Expect(s.Error).To(BeEmpty())
		g.Expect(s.Ready).To(BeFalse())
	})
	release(t, c, "c4", "1.0.0", "", true)
	expectTarget(t, p, "env-0", func(g Gomega, s pipelinesv1.TargetStatus) {
		g.Expect(s.Error).To(BeEmpty())
		g.Expect(s.Ready).To(BeTrue())
		g.Expect(s.Revision).To(Equal("1.0.0"))
		g.Expect(s.ObservedTime).NotTo(BeNil())
	})
	expectReady(t, p)
}

// C5
func TestKustomization(t *testing.T) {
	g := NewWithT(t)
	p := newPipeline("c5", "c5", target("", ""))
	p.Spec.AppRef = pipelinesv1.LocalAppReference{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization", Name: "c5"}
	create(t, c, p)
	expectTarget(t, p, "env-0", func(g Gomega, s pipelinesv1.TargetStatus) { g.Expect(s.Error).To(ContainSubstring("not found")) })
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
		"metadata": map[string]any{"namespace": "shop", "name": "c5"},
		"spec":     map[string]any{"interval": "1m", "prune": true, "sourceRef": map[string]any{"kind": "GitRepository", "name": "c5"}},
	}}
	create(t, c, u)
	u.Object["status"] = map[string]any{
		"observedGeneration": u.GetGeneration(), "lastAppliedRevision": "main@sha1:abc",
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "Applied", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	}
	g.Expect(c.Status().Update(t.Context(), u)).To(Succeed())
	expectTarget(t, p, "env-0", func(g Gomega, s pipelinesv1.TargetStatus) {
		g.Expect(s.Ready).To(BeTrue())
		g.Expect(s.Revision).To(Equal("main@sha1:abc"))
	})
}

// C6, N4: a remote target, in a Pipeline written for v2beta2, of an OCI chart, where
// only v2 is served.
func TestRemoteTarget(t *testing.T) {
	capiCluster(t, "c6", kubeconfig(t))
	p := newPipeline("c6", "c6", target("Cluster", "c6"))
	p.Spec.AppRef.APIVersion = "helm.toolkit.fluxcd.io/v2beta2"
	create(t, c, p)
	expectTarget(t, p, "env-0", func(g Gomega, s pipelinesv1.TargetStatus) { g.Expect(s.Error).To(ContainSubstring("not found")) })
	release(t, remote, "c6", "6.6.1+0cc9a8446c95", "sha256:0cc9a8446c95009ef382f5eade883a67c257f77d50f84e78ecef2aac9428d1e5", true)
	expectTarget(t, p, "env-0", func(g Gomega, s pipelinesv1.TargetStatus) {
		g.Expect(s.Ready).To(BeTrue())
		g.Expect(s.Revision).To(Equal("6.6.1"))
	})
	release(t, remote, "c6", "6.6.2", "", true)
	expectTarget(t, p, "env-0", func(g Gomega, s pipelinesv1.TargetStatus) { g.Expect(s.Revision).To(Equal("6.6.2")) })
}

// Every field of weave's CRD, and a target of each kind, reach Ready.
func TestEveryFieldAndEveryKindOfTarget(t *testing.T) {
	g := NewWithT(t)
	release(t, c, "every", "1.0.0", "", true)
	release(t, remote, "every", "1.0.0", "", true)
	capiCluster(t, "every", kubeconfig(t))
	secret(t, "every", "kubeconfig", kubeconfig(t))
	gitopsCluster(t, "every-secret", "secretRef", "every")
	setReady(t, gitopsCluster(t, "every-capi", "capiClusterRef", "every"), "True")
	p := newPipeline("every", "every")
	p.Spec.Promotion = &pipelinesv1.Promotion{
		Manual: true,
		Strategy: pipelinesv1.Strategy{
			PullRequest: &pipelinesv1.PullRequestPromotion{
				Type: "github", URL: "https://git.example.org/team/fleet", BaseBranch: "main",
				SecretRef: pipelinesv1.LocalObjectReference{Name: "git"},
			},
			SecretRef: &pipelinesv1.LocalObjectReference{Name: "hmac"},
		},
	}
	gitops := target("GitopsCluster", "every-secret")
	gitops.ClusterRef.APIVersion = "gitops.weave.works/v1alpha1"
	gitops.ClusterRef.Namespace = namespace
	p.Spec.Environments = []pipelinesv1.Environment{
		{Name: "dev", Targets: []pipelinesv1.Target{target("", ""), gitops}},
		{Name: "staging", Targets: []pipelinesv1.Target{target("GitopsCluster", "every-capi")}},
		{Name: "prod", Targets: []pipelinesv1.Target{target("Cluster", "every")}, Promotion: &pipelinesv1.Promotion{
			Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}, SecretRef: &pipelinesv1.LocalObjectReference{Name: "hmac"}},
		}},
	}
	create(t, c, p)
	expectReady(t, p)
	for env, count := range map[string]int{"dev": 2, "staging": 1, "prod": 1} {
		status := p.Status.Environments[env]
		g.Expect(status.Targets).To(HaveLen(count), env)
		for i, s := range status.Targets {
			g.Expect(s.Revision).To(Equal("1.0.0"), "%s %d", env, i)
			g.Expect(s.Ready).To(BeTrue())
			g.Expect(s.Error).To(BeEmpty())
			g.Expect(s.ClusterAppRef.Name).To(Equal("every"))
		}
		g.Expect(status.Agreed).To(Equal(&pipelinesv1.AgreedRevision{Revision: "1.0.0", Sequence: 1}))
	}
	g.Expect(p.Status.Environments["dev"].Targets[0].ClusterAppRef.ClusterRef).To(BeNil())
	g.Expect(p.Status.Environments["dev"].Targets[1].ClusterAppRef.ClusterRef.Name).To(Equal("every-secret"))
}
