package docs

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// tested is a product that the tests run Capstan with.
type tested struct {
	product string
	// file is a go.mod from the root, and module the one in it that has the product's version.
	file, module string
	// crds is a folder of bin/crds and kind one of its kinds, whose API versions are listed; empty for none.
	crds, kind string
	// how the tests run it, and the packages that do.
	how      string
	packages []string
}

// matrix has the sections of docs/compatibility.md.
var matrix = []struct {
	title string
	rows  []tested
}{
	{"Kubernetes", []tested{
		{"Kubernetes (kube-apiserver, kubectl)", "hack/controlplane/go.mod", "k8s.io/kubernetes", "", "", "the program", []string{"test/e2e", "test/install"}},
		{"etcd", "hack/controlplane/go.mod", "go.etcd.io/etcd/server/v3", "", "", "the program", []string{"test/e2e", "test/promotions"}},
		{"Helm", "hack/helm/go.mod", "helm.sh/helm/v4", "", "", "the program installs the chart", []string{"test/install"}},
	}},
	{"Clusters", []tested{
		{"Cluster API", "hack/crds/go.mod", "sigs.k8s.io/cluster-api", "cluster-api", "Cluster", "its CRDs", []string{"test/e2e", "test/conformance"}},
		{"Cluster API, the oldest", "hack/crds/old/go.mod", "sigs.k8s.io/cluster-api", "cluster-api-old", "Cluster", "its CRDs", []string{"hub/annotator", "hub/instancestate"}},
		{"Cluster API Provider AWS", "hack/crds/go.mod", "sigs.k8s.io/cluster-api-provider-aws/v2", "cluster-api-provider-aws", "AWSMachine", "its CRDs", []string{"hub/annotator", "hub/instancestate"}},
		{"Cluster API Provider AWS, the oldest", "hack/crds/old/go.mod", "sigs.k8s.io/cluster-api-provider-aws/v2", "cluster-api-provider-aws-old", "AWSMachine", "its CRDs", []string{"hub/annotator", "hub/instancestate"}},
		{"GitopsCluster of cluster-controller", "hack/crds/go.mod", "github.com/weaveworks/cluster-controller", "cluster-controller", "GitopsCluster", "its CRD", []string{"test/conformance"}},
		{"ClusterProfile of the cluster inventory API", "hack/crds/go.mod", "sigs.k8s.io/cluster-inventory-api", "cluster-inventory-api", "ClusterProfile", "its CRD", []string{"clusters", "test/conformance"}},
	}},
	{"Applications", []tested{
		{"Flux helm-controller", "hack/flux/go.mod", "github.com/fluxcd/helm-controller", "helm-controller", "HelmRelease", "the program", []string{"test/e2e"}},
		{"Flux helm-controller, the oldest", "hack/crds/helm-old/go.mod", "github.com/fluxcd/helm-controller/api", "helm-controller-old", "HelmRelease", "its CRD, and statuses of its API versions", []string{"playground/controlplane", "watchers/apps"}},
		{"Flux kustomize-controller", "hack/kustomize/go.mod", "github.com/fluxcd/kustomize-controller", "kustomize-controller", "Kustomization", "the program", []string{"test/e2e"}},
		{"Flux source-controller", "hack/source/go.mod", "github.com/fluxcd/source-controller", "source-controller", "GitRepository", "the program", []string{"test/e2e"}},
		{"Flux notification-controller", "hack/notification/go.mod", "github.com/fluxcd/notification-controller", "notification-controller", "Alert", "the program", []string{"test/alerts"}},
		{"Argo CD", "hack/crds/go.mod", "github.com/argoproj/argo-cd/v3", "argo-cd", "Application", "its CRD", []string{"test/conformance"}},
	}},
	{"Git services", []tested{
		{"Gitea", "hack/gitea/go.mod", "code.gitea.io/gitea", "", "", "the program", []string{"strategy/pullrequest", "test/promotions", "test/e2e"}},
		{"GitHub", "go.mod", "github.com/google/go-github/v89", "", "", "the version of the client, against a server that has the documented API", []string{"strategy/pullrequest/provider", "test/promotions"}},
		{"GitLab", "go.mod", "gitlab.com/gitlab-org/api/client-go/v2", "", "", "the same", []string{"strategy/pullrequest/provider", "test/promotions"}},
		{"Azure DevOps", "go.mod", "github.com/microsoft/azure-devops-go-api/azuredevops/v7", "", "", "the same", []string{"strategy/pullrequest/provider", "test/promotions"}},
		{"Bitbucket Server", "", "REST API 1.0", "", "", "the same, without a client of its own", []string{"strategy/pullrequest/provider", "test/promotions"}},
	}},
	{"Event destinations", []tested{
		{"NATS JetStream", "go.mod", "github.com/nats-io/nats-server/v2", "", "", "the server", []string{"hub/eventing/sink/nats"}},
		{"Amazon SQS", "test/goaws/go.mod", "github.com/Admiral-Piett/goaws", "", "", "a server that has the documented API, compared with goaws of this version", []string{"hub/eventing/sink/sqs", "test/goaws"}},
		{"Slack, Microsoft Teams", "", "incoming webhooks", "", "", "a server that has the documented API", []string{"hub/eventing/sink/slack", "hub/eventing/sink/msteams"}},
		{"SAP Event Mesh", "", "REST API v1", "", "", "a server that has the documented API", []string{"hub/eventing/sink/beb"}},
	}},
	{"AWS", []tested{
		{"EC2", "go.mod", "github.com/aws/aws-sdk-go-v2/service/ec2", "", "", "the version of the client, against a server that has the documented API", []string{"hub/annotator"}},
		{"STS", "go.mod", "github.com/aws/aws-sdk-go-v2/service/sts", "", "", "the same", []string{"hub/awsconfig"}},
	}},
}

// docs/compatibility.md has the versions of other products that the tests run with: those of each go.mod, and the API
// versions of the CRDs.
func TestCompatibilityIsCurrent(t *testing.T) {
	g := NewWithT(t)
	var b strings.Builder
	b.WriteString("# Compatibility\n\nGenerated by `make generate` from the versions that the tests run with. Other versions of these products may work; only these\n" +
		"are tested. The chart requires Kubernetes " + leastKubernetes(g) + " or later in the management cluster, because its policies need `ValidatingAdmissionPolicy` v1.\n" +
		"In workload clusters the hub reads only the kinds of applications, in the version that the cluster serves.\n\n" +
		"What was never run: kind, a container engine, a kubelet, OpenShift, SAP BTP, a real AWS account, and the hosted Git services. The tests\nof these use " +
		"servers that have the documented API.\n")
	for _, section := range matrix {
		fmt.Fprintf(&b, "\n## %s\n\n| product | tested version | API versions served | how | by |\n|---|---|---|---|---|\n", section.title)
		for _, r := range section.rows {
			for _, name := range r.packages {
				tests, err := filepath.Glob(filepath.Join(root, name, "*_test.go"))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(tests).NotTo(BeEmpty(), "%s: %s has no tests", r.product, name)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` |\n", r.product, version(g, r), cmp.Or(served(g, r), "–"), r.how, strings.Join(r.packages, "`, `"))
		}
	}
	current(t, "docs/compatibility.md", b.String())
}

// version of a product in its go.mod; the name of its API where no module has a version.
func version(g *WithT, r tested) string {
	if r.file == "" {
		return r.module
	}
	raw, err := os.ReadFile(filepath.Join(root, r.file))
	g.Expect(err).NotTo(HaveOccurred())
	found := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(r.module) + ` (v\S+)`).FindSubmatch(raw)
	g.Expect(found).NotTo(BeNil(), "%s is not in %s", r.module, r.file)
	return string(found[1])
}

// served returns the API versions of a kind, the stored one in bold.
func served(g *WithT, r tested) string {
	if r.crds == "" {
		return ""
	}
	files, err := filepath.Glob(filepath.Join(root, "bin", "crds", r.crds, "*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		raw, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		var crd apiextensionsv1.CustomResourceDefinition
		g.Expect(yaml.Unmarshal(raw, &crd)).To(Succeed())
		if crd.Spec.Names.Kind != r.kind {
			continue
		}
		var all []string
		for _, v := range crd.Spec.Versions {
			switch {
			case v.Storage:
				all = append(all, "**"+v.Name+"**")
			case v.Served:
				all = append(all, v.Name)
			}
		}
		slices.Sort(all)
		return r.kind + ": " + strings.Join(all, ", ")
	}
	g.Expect(files).To(BeEmpty(), "none of them has the kind %s", r.kind)
	g.Expect(files).NotTo(BeEmpty(), "bin/crds/%s: run `make crds crds-old`", r.crds)
	return ""
}

// leastKubernetes is what the chart requires, such as 1.30.
func leastKubernetes(g *WithT) string {
	raw, err := os.ReadFile(filepath.Join(root, "config/chart/Chart.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	found := regexp.MustCompile(`(?m)^kubeVersion: ">=(\d+\.\d+)\.0-0"$`).FindSubmatch(raw)
	g.Expect(found).NotTo(BeNil())
	return string(found[1])
}
