package cli

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/explain"
)

func (from *readFrom) status(t *testing.T) {
	g := NewWithT(t)
	c := from.c
	for name, state := range map[string]capstanv1.ConnectionState{"dev": capstanv1.ConnectionReady, "prod": capstanv1.ConnectionUnreachable} {
		connection := &capstanv1.ClusterConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		connection.Spec.ClusterRef = pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "default", Name: name}
		g.Expect(c.Create(t.Context(), connection)).To(Succeed())
		connection.Status = capstanv1.ClusterConnectionStatus{State: state, Reason: "ProbeFailed", Message: "i/o timeout", KubernetesVersion: "v1.36.3", Apps: 1, LastTransitionTime: &metav1.Time{Time: time.Now()}}
		g.Expect(c.Status().Update(t.Context(), connection)).To(Succeed())
	}
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:       pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Environments: []pipelinesv1.Environment{{Name: "dev", Targets: []pipelinesv1.Target{{Namespace: "shop"}}}},
		},
	}
	g.Expect(c.Create(t.Context(), p)).To(Succeed())

	for _, args := range [][]string{{"status", "--namespace=default"}, {"status", "-n", "default"}, {"status", "--all", "-n=default"}} {
		code, out, errOut := command(t, from.admin, args...)
		g.Expect(code).To(BeZero(), errOut)
		g.Expect(out).To(And(
			HavePrefix("1 of 2 clusters need you · 2 not observed by the hub yet\n\nClusters: 1 Unreachable, 1 Ready\nCLUSTER       STATE        SINCE  APPS  VERSION  CREDENTIALS\ndefault/prod  Unreachable  "),
			ContainSubstring("default/prod is Unreachable (ProbeFailed): i/o timeout\n"),
			ContainSubstring("Pipelines: 1 (1 waiting)\nPIPELINE      ENVIRONMENT  RUNS"),
			ContainSubstring("default/shop, dev: there is no revision to promote")))
	}
	code, out, errOut := command(t, from.admin, "status", "-A")
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(out).To(And(ContainSubstring("explained/shop"), ContainSubstring("default/shop")))
	from.statusJSON(t)
	from.statusOfNamespace(t)
	from.statusFlags(t)

	unauthorized, err := from.UserKubeconfig("", "unauthorized")
	g.Expect(err).NotTo(HaveOccurred())
	code, out, errOut = command(t, unauthorized, "status")
	g.Expect(code).To(Equal(1))
	g.Expect(out).To(BeEmpty())
	g.Expect(errOut).To(And(ContainSubstring("listing pipelines.pipelines.weave.works of all namespaces: you need the verb list on pipelines.pipelines.weave.works in all namespaces: ask for a ClusterRoleBinding to the ClusterRole capstan-viewer"), ContainSubstring("forbidden"), ContainSubstring("name a namespace that you may read with --namespace")))
}

func (from *readFrom) statusJSON(t *testing.T) {
	g := NewWithT(t)
	code, out, errOut := command(t, from.admin, "status", "-o", "json", "-n", "default")
	g.Expect(code).To(BeZero(), errOut)
	var s explain.Summary
	g.Expect(json.Unmarshal([]byte(out), &s)).To(Succeed())
	g.Expect(s.Verdict).To(Equal("1 of 2 clusters need you · 2 not observed by the hub yet"))
	g.Expect(s.Clusters.Causes).To(HaveLen(1))
	g.Expect(s.Clusters.Causes[0].Objects).To(Equal([]string{"default/prod"}))
	g.Expect(s.Clusters.Causes[0].Next).To(Equal("kubectl -n default describe clusterconnections.capstan.dev prod"))
}

// A namespace without clusters shows those that its Pipelines name, and says if they cannot be read.
func (from *readFrom) statusOfNamespace(t *testing.T) {
	g := NewWithT(t)
	for _, name := range []string{"apps", "idle"} {
		g.Expect(from.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "shop"},
		Spec: pipelinesv1.PipelineSpec{
			AppRef: pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Environments: []pipelinesv1.Environment{{Name: "dev", Targets: []pipelinesv1.Target{{
				Namespace: "shop", ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "default", Name: "dev"},
			}}}},
		},
	}
	g.Expect(from.c.Create(t.Context(), p)).To(Succeed())
	code, out, errOut := command(t, from.admin, "status", "-n", "apps")
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(out).To(And(ContainSubstring("Clusters: 1 Ready\n"), ContainSubstring("default/dev"), Not(ContainSubstring("default/prod"))), "only the cluster that it names")
	code, out, errOut = command(t, from.admin, "status", "-n", "idle")
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(out).To(ContainSubstring("Clusters: none in namespace idle, and none that its Pipelines name\n"))

	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"pipelines.weave.works"}, Resources: []string{"pipelines"}, Verbs: []string{"list"}},
		{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotions", "clusterconnections"}, Verbs: []string{"list"}},
	}}
	g.Expect(from.c.Create(t.Context(), role)).To(Succeed())
	g.Expect(from.c.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
	})).To(Succeed())
	tenant, err := from.UserKubeconfig("", "tenant")
	g.Expect(err).NotTo(HaveOccurred())
	code, out, errOut = command(t, tenant, "status", "-n", "apps")
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(out).To(And(
		HavePrefix("2 not observed by the hub yet\nNot shown: the clusters of namespace default: "), ContainSubstring("Not shown: EventingBackends: "),
		ContainSubstring("\nClusters: not visible to you\n"), ContainSubstring("apps/shop")))
}

func (from *readFrom) statusFlags(t *testing.T) {
	g := NewWithT(t)
	for wrong, want := range map[string][]string{
		`--output: "xml" is not one of table, wide, json, yaml`: {"status", "-o", "xml"},
		"[all-namespaces namespace] were all set":               {"status", "-A", "-n", "apps"},
		`context "elsewhere" does not exist`:                    {"status", "--context=elsewhere"},
	} {
		code, _, errOut := command(t, from.admin, want...)
		g.Expect(code).To(Equal(1))
		g.Expect(errOut).To(ContainSubstring(wrong))
	}
	kubeconfig, err := clientcmd.Load(from.admin)
	g.Expect(err).NotTo(HaveOccurred())
	kubeconfig.Contexts["management"] = kubeconfig.Contexts[kubeconfig.CurrentContext]
	kubeconfig.CurrentContext = "none"
	two, err := clientcmd.Write(*kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	code, out, errOut := command(t, two, "status", "--context=management")
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(out).To(ContainSubstring("default/prod"))
}

// A node group: not there, then without what is behind it, then with it.
func (from *readFrom) explainNodeGroup(t *testing.T) {
	g := NewWithT(t)
	c := from.c
	explain := func() string {
		code, out, errOut := command(t, from.admin, "explain", "machinedeployment", "default/web")
		g.Expect(code).To(BeZero(), errOut)
		return out
	}
	code, _, errOut := command(t, from.admin, "explain", "machinedeployment", "default/web")
	g.Expect(code).To(Equal(1))
	g.Expect(errOut).To(ContainSubstring("MachineDeployment default/web does not exist at https://"))
	create := func(kind, apiVersion, name string, spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"kind": kind, "apiVersion": apiVersion, "metadata": map[string]any{"namespace": "default", "name": name}, "spec": spec}}
		g.Expect(c.Create(t.Context(), u)).To(Succeed())
		return u
	}
	const core, infrastructure = "cluster.x-k8s.io/v1beta2", "infrastructure.cluster.x-k8s.io"
	create("Cluster", core, "dev", map[string]any{"infrastructureRef": map[string]any{"apiGroup": infrastructure, "kind": "AWSCluster", "name": "dev"}})
	group := create("MachineDeployment", core, "web", map[string]any{
		"clusterName": "dev", "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
		"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{
			"clusterName": "dev", "bootstrap": map[string]any{"dataSecretName": "x"},
			"infrastructureRef": map[string]any{"apiGroup": infrastructure, "kind": "AWSMachineTemplate", "name": "web"},
		}},
	})
	g.Expect(explain()).To(And(HavePrefix("MachineDeployment default/web of Cluster default/dev\n"),
		ContainSubstring(`Why: TemplateNotFound: failed to fetch AWSMachineTemplate default/web`)))

	create("AWSMachineTemplate", infrastructure+"/v1beta2", "web", map[string]any{"template": map[string]any{"spec": map[string]any{"instanceType": "m5.large"}}})
	g.Expect(explain()).To(ContainSubstring("Why: RegionUnknown: unable to determine AWS region"))
	infra := create("AWSCluster", infrastructure+"/v1beta2", "dev", map[string]any{"region": "eu-west-1", "identityRef": map[string]any{"kind": "AWSClusterRoleIdentity", "name": "groups"}})
	g.Expect(explain()).To(ContainSubstring("  role     the hub's own identity: AWSClusterRoleIdentity groups does not exist: "))
	identity := from.put(t, infrastructure+"/v1beta2", "AWSClusterRoleIdentity", "", "groups", nil, map[string]any{"roleARN": "arn:aws:iam::111122223333:role/groups", "allowedNamespaces": map[string]any{}})
	g.Expect(explain()).To(ContainSubstring("\n  role     arn:aws:iam::111122223333:role/groups\n"))
	g.Expect(c.Patch(t.Context(), infra, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"identityRef":null}}`)))).To(Succeed())
	g.Expect(c.Delete(t.Context(), identity)).To(Succeed())
	g.Expect(explain()).To(And(ContainSubstring("  made of  m5.large\n  region   eu-west-1, by AWSCluster dev\n"),
		ContainSubstring("Why: nothing has been written yet, and there is no Event: the hub waits for EC2's answer about m5.large in eu-west-1")))

	from.catalogue(t, explain)

	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "web.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "MachineDeployment", Namespace: "default", Name: "web", UID: group.GetUID()},
		Reason:         "ReconcileError", Type: corev1.EventTypeWarning, Message: "AWSAccessDenied: ec2:DescribeInstanceTypes is not allowed", LastTimestamp: metav1.Now(),
	}
	g.Expect(c.Create(t.Context(), event)).To(Succeed())
	g.Expect(explain()).To(And(
		ContainSubstring("Why: nothing has been written yet. Last Event: AWSAccessDenied: ec2:DescribeInstanceTypes is not allowed.\n"),
		MatchRegexp(`\d+s ago  ReconcileError  AWSAccessDenied`)))
	g.Expect(c.Delete(t.Context(), event)).To(Succeed())

	group.SetAnnotations(map[string]string{
		"capacity.cluster-autoscaler.kubernetes.io/cpu":    "2",
		"capacity.cluster-autoscaler.kubernetes.io/memory": "7Gi",
		"machine.openshift.io/GPU":                         "1",
		"capstan.dev/capacity-applied":                     `{"values":{"capacity.cluster-autoscaler.kubernetes.io/cpu":"2","capacity.cluster-autoscaler.kubernetes.io/memory":"8192Mi"}}`,
	})
	g.Expect(c.Update(t.Context(), group)).To(Succeed())
	g.Expect(explain()).To(And(
		MatchRegexp(`/cpu +2 +the hub's\n`), MatchRegexp(`/memory +7Gi +changed since the hub wrote it\n`), MatchRegexp(`/GPU +1 +another writer's, which the hub keeps\n`),
		ContainSubstring("Why: its annotations have the values that EC2 reports for m5.large in eu-west-1.")))

	annotations := group.GetAnnotations()
	annotations["cluster.x-k8s.io/paused"] = ""
	group.SetAnnotations(annotations)
	g.Expect(c.Update(t.Context(), group)).To(Succeed())
	g.Expect(explain()).To(ContainSubstring("Why: it is paused by the annotation cluster.x-k8s.io/paused: the hub does not annotate it."))
}
