package conformance

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

var notification = pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}

// N3, and all other input that a CRD without patterns accepts: each gets a condition
// that names the object and the fix, and none affects the Pipeline next to it.
func TestBadInput(t *testing.T) {
	release(t, c, "good", "1.0.0", "", true)
	capiCluster(t, "no-secret", nil)
	capiCluster(t, "empty", []byte(""))
	capiCluster(t, "broken", []byte("{not: [yaml"))
	local := target("", "")
	for name, tc := range map[string]struct {
		edit            func(*pipelinesv1.Pipeline)
		kind            string
		status          metav1.ConditionStatus
		reason, message string
	}{
		"cluster-missing": {func(p *pipelinesv1.Pipeline) { p.Spec.Environments[0].Targets[0] = target("Cluster", "nowhere") },
			"Ready", "False", "TargetClusterNotFound", "Cluster team/nowhere"},
		"no-secret": {func(p *pipelinesv1.Pipeline) { p.Spec.Environments[0].Targets[0] = target("Cluster", "no-secret") },
			"Ready", "False", "TargetNotReadable", "no-secret-kubeconfig"},
		"empty-kubeconfig": {func(p *pipelinesv1.Pipeline) { p.Spec.Environments[0].Targets[0] = target("Cluster", "empty") },
			"Ready", "False", "TargetNotReadable", "empty"},
		"broken-kubeconfig": {func(p *pipelinesv1.Pipeline) { p.Spec.Environments[0].Targets[0] = target("Cluster", "broken") },
			"Ready", "False", "TargetNotReadable", "kubeconfig"},
		"no-environments": {func(p *pipelinesv1.Pipeline) { p.Spec.Environments = []pipelinesv1.Environment{} },
			"Ready", "False", "InvalidSpec", "spec.environments is empty"},
		"duplicate-names": {func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Name = "env-0" },
			"Ready", "False", "InvalidSpec", `"env-0" is used twice`},
		"name-of-another-with-a-part": {func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Name = "env-0:tag" },
			"Ready", "False", "InvalidSpec", `spec.environments[1]: "env-0:tag" is the name of environment "env-0" with the part tag: a marker in Git could mean either; rename one of them`},
		"no-targets": {func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Targets = []pipelinesv1.Target{} },
			"Stalled", "True", "InvalidSpec", `"env-1" has no targets`},
		"no-namespace": {func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Targets[0].Namespace = "" },
			"Ready", "False", "InvalidSpec", "targets[0].namespace is empty"},
		"kind-not-allowed": {func(p *pipelinesv1.Pipeline) { p.Spec.AppRef.APIVersion, p.Spec.AppRef.Kind = "v1", "Secret" },
			"Ready", "False", "InvalidSpec", "--app-kinds"},
		"bad-api-version": {func(p *pipelinesv1.Pipeline) { p.Spec.AppRef.APIVersion = "a/b/c" },
			"Ready", "False", "InvalidSpec", "spec.appRef.apiVersion"},
		"two-strategies": {func(p *pipelinesv1.Pipeline) {
			p.Spec.Promotion.Strategy.PullRequest = &pipelinesv1.PullRequestPromotion{Type: "gitlab", URL: "https://git.example.org/a/b", BaseBranch: "main", SecretRef: pipelinesv1.LocalObjectReference{Name: "x"}}
		}, "Stalled", "True", "InvalidSpec", "both set"},
		"no-strategy": {func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Strategy = pipelinesv1.Strategy{} },
			"Stalled", "True", "InvalidSpec", "neither pull-request nor notification"},
		"promotion-on-environment-only": {func(p *pipelinesv1.Pipeline) {
			p.Spec.Environments[1].Promotion, p.Spec.Promotion = p.Spec.Promotion, nil
		}, "Ready", "True", "ReconciliationSucceeded", ""},
		"odd-names": {func(p *pipelinesv1.Pipeline) {
			p.Spec.Environments[0].Name, p.Spec.Environments[1].Name = "Prod EU", strings.Repeat("Länge ", 33)
		}, "Ready", "True", "ReconciliationSucceeded", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipeline("bad-"+name, "good", local, local)
			p.Spec.Promotion = &pipelinesv1.Promotion{Strategy: notification}
			tc.edit(p)
			create(t, c, p)
			expectCondition(t, p, tc.kind, tc.status, tc.reason, tc.message)
			if strings.HasPrefix(tc.reason, "Invalid") {
				expectCondition(t, p, "Stalled", "True", "InvalidSpec", tc.message)
			}
		})
	}
	good := newPipeline("good", "good", local)
	create(t, c, good)
	expectReady(t, good)
}

// A kind that is allowed and not installed in the cluster concerns that target.
func TestKindNotInstalled(t *testing.T) {
	capiCluster(t, "no-kustomize", kubeconfig(t)) // The workload cluster has HelmReleases only.
	p := newPipeline("no-kustomize", "x", target("Cluster", "no-kustomize"))
	p.Spec.AppRef = pipelinesv1.LocalAppReference{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization", Name: "x"}
	create(t, c, p)
	expectCondition(t, p, "Ready", metav1.ConditionFalse, "TargetNotReadable", "install its CRD")
}

// Environment names that are no object names: the promotion is made all the same.
func TestOddEnvironmentNamesArePromotedInto(t *testing.T) {
	g := NewWithT(t)
	release(t, c, "odd", "1.1.0", "", true)
	release(t, remote, "odd", "1.0.0", "", true)
	capiCluster(t, "odd", kubeconfig(t))
	p := newPipeline("odd", "odd", target("", ""), target("Cluster", "odd"))
	p.Spec.Environments[1].Name = strings.Repeat("Prod EU/", 25)
	p.Spec.Promotion = &pipelinesv1.Promotion{Strategy: notification}
	create(t, c, p)
	g.Eventually(func(g Gomega) {
		var list capstanv1.PromotionList
		g.Expect(c.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{capstanv1.PipelineUIDLabel: string(p.UID)})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
		g.Expect(list.Items[0].Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
	}).WithTimeout(patience).Should(Succeed())
	release(t, remote, "odd", "1.1.0", "", true)
	g.Eventually(func(g Gomega) {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(p.Status.Environments[p.Spec.Environments[1].Name].Promotion).To(HaveField("Phase", "Succeeded"))
	}).WithTimeout(patience).Should(Succeed())
}

// A broken kubeconfig is fixed, and the Pipeline continues without a restart.
func TestMendedKubeconfig(t *testing.T) {
	g := NewWithT(t)
	release(t, remote, "mended", "1.0.0", "", true)
	capiCluster(t, "mended", []byte("nonsense"))
	p := newPipeline("mended", "mended", target("Cluster", "mended"))
	create(t, c, p)
	expectCondition(t, p, "Ready", metav1.ConditionFalse, "TargetNotReadable", "")
	s := &corev1.Secret{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "mended-kubeconfig"}, s)).To(Succeed())
	s.Data["value"] = kubeconfig(t)
	g.Expect(c.Update(t.Context(), s)).To(Succeed())
	expectReady(t, p)
}

// The canary: no byte of a credential is in a log, an Event or a status, whether it
// was accepted or refused.
func TestNoSecretBytesAnywhere(t *testing.T) {
	g := NewWithT(t)
	const canary = "c4n4ry-0f-a-t0ken"
	good := kubeconfig(t)
	parsed, err := clientcmd.Load(good)
	g.Expect(err).NotTo(HaveOccurred())
	token := parsed.AuthInfos[parsed.Contexts[parsed.CurrentContext].AuthInfo].Token
	g.Expect(token).NotTo(BeEmpty())
	wrong := strings.ReplaceAll(string(good), token, canary)
	release(t, remote, "canary", "1.0.0", "", true)
	for name, raw := range map[string]string{
		"canary-good":     string(good),
		"canary-rejected": wrong,                                                                       // The API server answers 401.
		"canary-refused":  strings.Replace(wrong, "token:", "tokenFile: /x-"+canary+"\n    token:", 1), // The allow-list does.
		"canary-unparsed": canary + ": [" + canary,
	} {
		capiCluster(t, name, []byte(raw))
		p := newPipeline(name, "canary", target("Cluster", name))
		create(t, c, p)
		if name == "canary-good" {
			expectReady(t, p)
		} else {
			expectCondition(t, p, "Ready", metav1.ConditionFalse, "TargetNotReadable", name)
		}
	}
	var connections capstanv1.ClusterConnectionList
	var pipelines pipelinesv1.PipelineList
	var events corev1.EventList
	everything := logs.String()
	for _, list := range []client.ObjectList{&connections, &pipelines, &events} {
		g.Expect(c.List(t.Context(), list)).To(Succeed())
		raw, err := json.Marshal(list)
		g.Expect(err).NotTo(HaveOccurred())
		everything += string(raw)
	}
	g.Expect(connections.Items).NotTo(BeEmpty())
	g.Expect(events.Items).NotTo(BeEmpty())
	g.Expect(strings.Contains(everything, canary)).To(BeFalse())
	g.Expect(strings.Contains(everything, token)).To(BeFalse())
	g.Expect(strings.Contains(everything, token[:40])).To(BeFalse())
}
