package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

func TestDefaultHasEverything(t *testing.T) {
	g := NewWithT(t)
	bases, err := filepath.Glob("crd/bases/*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bases).NotTo(BeEmpty())
	rendered, _, err := kubectl(t.Context(), "kustomize", "crd")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(rendered, "kind: CustomResourceDefinition\n")).To(Equal(len(bases)),
		"config/crd/kustomization.yaml lists every generated CRD")

	// The generation increases when an applied spec differs from the stored one.
	generations := func() string {
		out, _, err := kubectl(t.Context(), "get", "-k", "default", "-o",
			`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}{"\n"}{end}`)
		g.Expect(err).NotTo(HaveOccurred())
		return out
	}
	before := generations()
	for _, object := range []string{
		"Deployment/capstan-hub", "PodDisruptionBudget/capstan-hub", "NetworkPolicy/capstan-hub", "Service/capstan-hub-metrics", "Service/capstan-hub-hook", "Service/capstan-hub-api", "Service/capstan-hub-webhook",
		"ValidatingWebhookConfiguration/capstan-eventingbackends", "MutatingWebhookConfiguration/capstan-eventingbackends", "Secret/capstan-hub-webhook",
		"ValidatingAdmissionPolicy/capstan-hub-tells", "ValidatingAdmissionPolicyBinding/capstan-hub-tells",
		"ValidatingAdmissionPolicy/capstan-approval", "ValidatingAdmissionPolicyBinding/capstan-approval",
		"ValidatingAdmissionPolicy/capstan-request", "ValidatingAdmissionPolicyBinding/capstan-request", "ClusterRole/capstan-promoter",
		"ValidatingAdmissionPolicy/capstan-promotions", "ValidatingAdmissionPolicyBinding/capstan-promotions",
		"ClusterRole/capstan-operator", "ClusterRole/capstan-tenant", "ClusterRole/capstan-viewer",
		"ValidatingAdmissionPolicy/capstan-pipeline-crd", "ValidatingAdmissionPolicyBinding/capstan-pipeline-crd",
		"ValidatingAdmissionPolicy/capstan-hub-annotates", "ValidatingAdmissionPolicyBinding/capstan-hub-annotates",
		"ClusterRole/capstan-hub", "ClusterRole/capstan-approver", "Namespace/capstan-system",
	} {
		g.Expect(before).To(ContainSubstring(object + " "))
	}
	_, _, err = kubectl(t.Context(), "apply", "-k", "default")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(generations()).To(Equal(before), "applying again changes nothing")
}

func TestSamplesApply(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t, "samples")
	_, warnings, err := kubectl(t.Context(), "apply", "-n", ns, "-k", "samples")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(BeEmpty())

	var pipeline pipelinesv1.Pipeline
	g.Expect(world.admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "podinfo"}, &pipeline)).To(Succeed())
	g.Expect(pipeline.Spec.Environments).To(HaveLen(3))
	manual := map[string]bool{}
	for _, environment := range pipeline.Spec.Environments {
		manual[environment.Name] = pipeline.PromotionFor(&environment).Manual
		for _, target := range environment.Targets {
			if target.ClusterRef != nil {
				_, _, err := kubectl(t.Context(), "get", "-n", ns, target.ClusterRef.Kind+"/"+target.ClusterRef.Name)
				g.Expect(err).NotTo(HaveOccurred(), "what the sample names is among the samples")
			}
		}
	}
	g.Expect(manual).To(Equal(map[string]bool{"dev": false, "staging": false, "prod": true}))

	var backends eventingv1.EventingBackendList
	g.Expect(world.admin.List(t.Context(), &backends, client.InNamespace(ns), client.MatchingLabels{eventingv1.BackendLabel: eventingv1.BackendLabelValue})).To(Succeed())
	// TestSampleBackendsAreValid checks the others.
	backends.Items = slices.DeleteFunc(backends.Items, func(b eventingv1.EventingBackend) bool { return b.Spec.Type != "sqs" })
	g.Expect(backends.Items).To(HaveLen(1))
	types, err := schema.Types(schema.Options{SQSSourceNamespaces: []string{ns}})
	g.Expect(err).NotTo(HaveOccurred())
	config, invalid := types.Resolve(&backends.Items[0])
	g.Expect(invalid).To(BeEmpty())
	g.Expect(config.String(schema.RoleKey)).To(Equal(schema.RoleSource))
}

// right is one permission to check.
type right struct {
	verb, group, resource, subresource, namespace, name string
	path                                                string
}

func (r right) String() string {
	if r.path != "" {
		return r.verb + " " + r.path
	}
	return strings.TrimSpace(r.verb + " " + r.resource + "." + r.group + " " + r.subresource + " " + r.namespace + "/" + r.name)
}

func TestHubRights(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t, "with-clusters")
	_, _, err := kubectl(t.Context(), "apply", "-n", ns, "-k", "rbac/cluster-secrets")
	g.Expect(err).NotTo(HaveOccurred())
	hooked := namespace(t, "with-pipelines")
	_, _, err = kubectl(t.Context(), "apply", "-n", hooked, "-k", "rbac/pipeline-secrets")
	g.Expect(err).NotTo(HaveOccurred())

	const pipelines, capstan, core, coordination = "pipelines.weave.works", "capstan.dev", "", "coordination.k8s.io"
	check(t, hubUser, instanceRights())
	backed := namespace(t, "with-backends")
	_, _, err = kubectl(t.Context(), "apply", "-n", backed, "-k", "rbac/backend-secrets")
	g.Expect(err).NotTo(HaveOccurred())
	const eventing, registration = "eventing.kyma-project.io", "admissionregistration.k8s.io"
	check(t, hubUser, map[bool][]right{
		true: {
			{verb: "watch", group: eventing, resource: "eventingbackends"},
			{verb: "patch", group: eventing, resource: "eventingbackends"}, // TestHubChangesOnlyItsMarksOfEventingBackends checks the restriction.
			{verb: "patch", group: eventing, resource: "eventingbackends", subresource: "status"},
			{verb: "get", group: core, resource: "secrets", namespace: backed, name: "broker"},
			{verb: "watch", group: core, resource: "secrets", namespace: backed, name: "broker"},
			{verb: "update", group: core, resource: "secrets", namespace: "capstan-system", name: "capstan-hub-webhook"},
			{verb: "patch", group: registration, resource: "validatingwebhookconfigurations", name: "capstan-eventingbackends"},
			{verb: "patch", group: registration, resource: "mutatingwebhookconfigurations", name: "capstan-eventingbackends"},
			{verb: "watch", group: pipelines, resource: "pipelines"},
			{verb: "patch", group: pipelines, resource: "pipelines", subresource: "status"},
			{verb: "patch", group: pipelines, resource: "pipelines"}, // TestHubChangesOnlyAnAnnotationOfPipelines checks the restriction.
			{verb: "create", group: capstan, resource: "promotions"},
			{verb: "delete", group: capstan, resource: "promotions"},
			{verb: "patch", group: capstan, resource: "promotions", subresource: "status"},
			{verb: "record-approval", group: capstan, resource: "promotions"},
			{verb: "manage", group: capstan, resource: "promotions"},
			{verb: "create", group: capstan, resource: "clusterconnections"},
			{verb: "watch", group: capstan, resource: "clusterconnections"},
			{verb: "create", group: "authentication.k8s.io", resource: "tokenreviews"},
			{verb: "create", group: "authorization.k8s.io", resource: "subjectaccessreviews"},
			{verb: "watch", group: "events.k8s.io", resource: "events"},
			{verb: "patch", group: capstan, resource: "clusterconnections", subresource: "status"},
			{verb: "watch", group: "cluster.x-k8s.io", resource: "clusters"},
			{verb: "watch", group: "gitops.weave.works", resource: "gitopsclusters"},
			{verb: "watch", group: "helm.toolkit.fluxcd.io", resource: "helmreleases"},
			{verb: "watch", group: "kustomize.toolkit.fluxcd.io", resource: "kustomizations"},
			{verb: "patch", group: "cluster.x-k8s.io", resource: "machinedeployments"},
			{verb: "watch", group: "infrastructure.cluster.x-k8s.io", resource: "awsmachinetemplates"},
			{verb: "get", group: core, resource: "namespaces", name: "kube-system"},
			{verb: "watch", group: core, resource: "namespaces"}, // By their labels PromotionWindows select.
			{verb: "list", group: capstan, resource: "promotionwindows"},
			{verb: "watch", group: capstan, resource: "promotionwindows"},
			{verb: "patch", group: capstan, resource: "promotionwindows", subresource: "status"},
			{verb: "get", group: capstan, resource: "promotionrequests"},
			{verb: "list", group: capstan, resource: "promotionrequests"},
			{verb: "watch", group: capstan, resource: "promotionrequests"},
			{verb: "delete", group: capstan, resource: "promotionrequests"},
			{verb: "patch", group: capstan, resource: "promotionrequests", subresource: "status"},
			{verb: "create", group: core, resource: "events"},
			{verb: "patch", group: "events.k8s.io", resource: "events"},
			{verb: "create", group: coordination, resource: "leases", namespace: "capstan-system"},
			{verb: "update", group: coordination, resource: "leases", namespace: "capstan-system", name: "capstan-hub"},
			{verb: "get", group: core, resource: "secrets", namespace: ns, name: "a-kubeconfig"},
			{verb: "watch", group: core, resource: "secrets", namespace: ns},
			{verb: "get", group: core, resource: "secrets", namespace: hooked, name: "hmac"},
			{verb: "get", path: "/readyz"},
		},
		false: {
			{verb: "update", group: eventing, resource: "eventingbackends"},
			{verb: "delete", group: eventing, resource: "eventingbackends"},
			{verb: "update", group: core, resource: "secrets", namespace: backed, name: "broker"},
			{verb: "update", group: core, resource: "secrets", namespace: "capstan-system", name: "other"},
			{verb: "patch", group: registration, resource: "validatingwebhookconfigurations", name: "other"},
			{verb: "list", group: registration, resource: "validatingwebhookconfigurations"},
			{verb: "create", group: registration, resource: "mutatingwebhookconfigurations"},
			{verb: "patch", group: core, resource: "secrets", namespace: hooked, name: "git"},
			{verb: "get", group: core, resource: "secrets", namespace: "default", name: "a-kubeconfig"},
			{verb: "list", group: core, resource: "secrets"},
			{verb: "watch", group: core, resource: "secrets"},
			{verb: "get", group: core, resource: "secrets", namespace: "capstan-system"},
			{verb: "update", group: core, resource: "secrets", namespace: ns},
			{verb: "update", group: pipelines, resource: "pipelines"},
			{verb: "delete", group: pipelines, resource: "pipelines"},
			{verb: "approve", group: capstan, resource: "promotions"},
			{verb: "impersonate", resource: "users"},
			{verb: "patch", group: "cluster.x-k8s.io", resource: "clusters"},
			{verb: "patch", group: "helm.toolkit.fluxcd.io", resource: "helmreleases"},
			{verb: "patch", group: core, resource: "namespaces", name: "default"},
			{verb: "create", group: capstan, resource: "promotionrequests"},
			{verb: "patch", group: capstan, resource: "promotionrequests"},
			{verb: "create", group: capstan, resource: "promotionwindows"},
			{verb: "patch", group: capstan, resource: "promotionwindows"},
			{verb: "override", group: capstan, resource: "promotionwindows"},
			{verb: "override", group: capstan, resource: "promotions"},
			{verb: "update", group: coordination, resource: "leases", namespace: "kube-system", name: "capstan-hub"},
			{verb: "update", group: coordination, resource: "leases", namespace: "capstan-system", name: "other"},
			{verb: "create", group: core, resource: "pods"},
		},
	})
}

// instanceRights are the rights that instance state needs, on each replica: a standby is the
// same user, and reads queues and labels as the leader does.
func instanceRights() map[bool][]right {
	const core, infrastructure, control, eventing = "cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io", "eventing.kyma-project.io"
	rights := map[bool][]right{
		true: {
			{verb: "patch", group: infrastructure, resource: "awsmachines"},
			{verb: "patch", group: infrastructure, resource: "awsmachinepools"},
			{verb: "patch", group: infrastructure, resource: "awsmanagedmachinepools"},
			{verb: "patch", group: infrastructure, resource: "rosamachinepools"},
			{verb: "patch", group: core, resource: "machines"},
			{verb: "patch", group: eventing, resource: "eventingbackends", subresource: "status"},
			{verb: "create", group: "events.k8s.io", resource: "events"},
		},
		false: {
			{verb: "update", group: infrastructure, resource: "awsmachines"},
			{verb: "delete", group: infrastructure, resource: "awsmachines"},
			{verb: "patch", group: infrastructure, resource: "awsmachines", subresource: "status"},
			{verb: "delete", group: core, resource: "machines"},
			{verb: "list", group: core, resource: "machines"},
			{verb: "create", group: eventing, resource: "eventingbackends"},
			{verb: "patch", group: infrastructure, resource: "awsclusters"},
			{verb: "patch", group: infrastructure, resource: "awsclusterroleidentities"},
		},
	}
	for _, verb := range []string{"list", "watch"} {
		for _, of := range []struct{ group, resource string }{
			{infrastructure, "awsmachines"}, {infrastructure, "awsmachinepools"}, {infrastructure, "awsmanagedmachinepools"}, {infrastructure, "rosamachinepools"}, {core, "clusters"}, {infrastructure, "awsclusters"},
			{infrastructure, "awsclusterroleidentities"}, {control, "awsmanagedcontrolplanes"}, {control, "rosacontrolplanes"}, {eventing, "eventingbackends"},
		} {
			rights[true] = append(rights[true], right{verb: verb, group: of.group, resource: of.resource})
		}
	}
	// After a conflict.
	for _, of := range []struct{ group, resource string }{
		{infrastructure, "awsmachines"}, {infrastructure, "awsmachinepools"}, {infrastructure, "awsmanagedmachinepools"}, {infrastructure, "rosamachinepools"},
	} {
		rights[true] = append(rights[true], right{verb: "get", group: of.group, resource: of.resource})
	}
	return rights
}

// TR5: capa-annotator has exactly the rights that it needs.
func TestCapaAnnotatorRights(t *testing.T) {
	g := NewWithT(t)
	_, warnings, err := kubectl(t.Context(), "apply", "-k", "capa-annotator")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(BeEmpty())
	raw, err := os.ReadFile("capa-annotator/iam_policy.json")
	g.Expect(err).NotTo(HaveOccurred())
	var policy struct {
		Statement []struct{ Effect, Action string }
	}
	g.Expect(json.Unmarshal(raw, &policy)).To(Succeed())
	g.Expect(policy.Statement).To(ConsistOf(struct{ Effect, Action string }{"Allow", "ec2:DescribeInstanceTypes"}))

	const core, infrastructure, coordination, home = "cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io", "coordination.k8s.io", "capa-annotator-system"
	rights := map[bool][]right{
		true: {
			{verb: "create", group: "events.k8s.io", resource: "events"},
			{verb: "create", group: coordination, resource: "leases", namespace: home},
			{verb: "update", group: coordination, resource: "leases", namespace: home, name: "capa-annotator-leader"},
			{verb: "create", resource: "events", namespace: home},
			{verb: "get", path: "/readyz"},
		},
		false: {
			{verb: "update", group: core, resource: "machinedeployments"},
			{verb: "patch", group: core, resource: "machinedeployments", subresource: "status"},
			{verb: "patch", group: core, resource: "clusters"},
			{verb: "patch", group: infrastructure, resource: "awsmachinetemplates"},
			{verb: "get", resource: "secrets", namespace: "default"},
			{verb: "get", resource: "secrets", namespace: home},
			{verb: "get", resource: "configmaps", namespace: home},
			{verb: "create", resource: "events", namespace: "default"},
			{verb: "update", group: coordination, resource: "leases", namespace: home, name: "other"},
			{verb: "update", group: coordination, resource: "leases", namespace: "default", name: "capa-annotator-leader"},
		},
	}
	for _, verb := range []string{"get", "list", "watch"} {
		for _, r := range []string{"machinedeployments", "machinesets", "machinepools", "clusters"} {
			rights[true] = append(rights[true], right{verb: verb, group: core, resource: r})
		}
		for _, r := range []string{"awsmachinetemplates", "awsclusters", "awsmachinepools", "awsmanagedmachinepools", "rosamachinepools", "awsclusterroleidentities", "awsclustercontrolleridentities", "awsclusterstaticidentities"} {
			rights[true] = append(rights[true], right{verb: verb, group: infrastructure, resource: r})
		}
		for _, r := range []string{"awsmanagedcontrolplanes", "rosacontrolplanes"} {
			rights[true] = append(rights[true], right{verb: verb, group: "controlplane.cluster.x-k8s.io", resource: r})
		}
	}
	for _, r := range []string{"machinedeployments", "machinesets", "machinepools"} {
		rights[true] = append(rights[true], right{verb: "patch", group: core, resource: r})
	}
	check(t, "system:serviceaccount:capa-annotator-system:capa-annotator", rights)
}

func TestWorkloadRights(t *testing.T) {
	g := NewWithT(t)
	for _, dir := range []string{"rbac/workload", "rbac/self-managed"} {
		_, _, err := kubectl(t.Context(), "apply", "-k", dir)
		g.Expect(err).NotTo(HaveOccurred())
	}

	const core = ""
	check(t, "system:serviceaccount:capstan-system:capstan", map[bool][]right{
		true: {
			{verb: "patch", group: "cluster.x-k8s.io", resource: "machines"}, // To request their remediation.
			{verb: "list", group: "helm.toolkit.fluxcd.io", resource: "helmreleases"},
			{verb: "watch", group: "kustomize.toolkit.fluxcd.io", resource: "kustomizations"},
			{verb: "get", group: core, resource: "namespaces", name: "kube-system"},
			{verb: "get", path: "/readyz"},
			{verb: "get", path: "/version"},
			{verb: "get", path: "/api"},
			{verb: "get", path: "/apis/helm.toolkit.fluxcd.io/v2"},
			{verb: "patch", group: "cluster.x-k8s.io", resource: "machinedeployments"},
			{verb: "list", group: "infrastructure.cluster.x-k8s.io", resource: "awsmachinetemplates"},
			{verb: "get", group: "infrastructure.cluster.x-k8s.io", resource: "awsmachines"},
			{verb: "watch", group: "infrastructure.cluster.x-k8s.io", resource: "awsmachines"},
			{verb: "patch", group: "infrastructure.cluster.x-k8s.io", resource: "awsmachines"},
			{verb: "patch", group: "infrastructure.cluster.x-k8s.io", resource: "awsmachinepools"},
			{verb: "patch", group: "infrastructure.cluster.x-k8s.io", resource: "awsmanagedmachinepools"},
			{verb: "get", group: "infrastructure.cluster.x-k8s.io", resource: "rosamachinepools"},
			{verb: "list", group: "infrastructure.cluster.x-k8s.io", resource: "awsclusters"},
			{verb: "list", group: "controlplane.cluster.x-k8s.io", resource: "awsmanagedcontrolplanes"},
		},
		false: {
			{verb: "delete", group: "cluster.x-k8s.io", resource: "machines"},
			{verb: "get", group: "infrastructure.cluster.x-k8s.io", resource: "awsclusterroleidentities"},
			{verb: "get", group: core, resource: "secrets", namespace: "default"},
			{verb: "patch", group: "helm.toolkit.fluxcd.io", resource: "helmreleases"},
			{verb: "list", group: core, resource: "namespaces"},
			{verb: "list", group: core, resource: "pods"},
			{verb: "get", path: "/metrics"},
		},
	})
}

func check(t *testing.T, user string, rights map[bool][]right) {
	t.Helper()
	g := NewWithT(t)
	ask := func(r right) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:serviceaccounts", "system:authenticated"},
		}}
		if r.path != "" {
			review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: r.verb, Path: r.path}
		} else {
			review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Name: r.name,
			}
		}
		g.Expect(world.admin.Create(t.Context(), review)).To(Succeed())
		return review.Status.Allowed
	}
	for want, asked := range rights {
		for _, r := range asked {
			// The authorizer reads new roles through a watch.
			g.Eventually(ask).WithArguments(r).WithTimeout(patience).Should(Equal(want), "%s: %s", user, r)
		}
	}
}
