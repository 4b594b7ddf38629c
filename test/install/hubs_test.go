package install

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const twoHubs = `
replicas: 1
dashboard: {url: https://ignored.example.org}
hubs:
  - {name: east, namespaces: [team-a], dashboardURL: "https://east.example.org"}
  - {name: west, namespaces: [team-b, team-c]}
`

const movedTeam = `
replicas: 1
hubs:
  - {name: east, namespaces: [team-a, team-c], dashboardURL: "https://east.example.org"}
  - {name: west, namespaces: [team-b]}
`

const removedHub = `
replicas: 1
hubs:
  - {name: east, namespaces: [team-a, team-b, team-c], dashboardURL: "https://east.example.org"}
`

const onePipeline = `
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: shop}
spec:
  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: shop}
  environments: [{name: dev, targets: [{namespace: dev}]}]
`

// The chart installs two hubs. Each runs as its Deployment says, with the rights of the ServiceAccount that they share, and serves its own
// namespaces. After an upgrade that moves a namespace, the other one serves it; after one that removes a hub, its namespaces, too.
func TestSeveralHubs(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	plane, clone, typed := newInstallation(t, "cluster-api", "helm-controller")
	for name, content := range map[string]string{"two.yaml": twoHubs, "moved.yaml": movedTeam, "one.yaml": removedHub, "pipeline.yaml": onePipeline} {
		g.Expect(os.WriteFile(filepath.Join(clone, name), []byte(content), 0o600)).To(Succeed())
	}
	typed("helm install capstan config/chart --namespace capstan-system --create-namespace -f two.yaml")
	for _, namespace := range []string{"team-a", "team-b", "team-c"} {
		typed("kubectl create namespace " + namespace + "; kubectl apply -n " + namespace + " -f pipeline.yaml")
	}
	start := func(t *testing.T, name string) map[string]string {
		return startInstalled(t, plane, client.ObjectKey{Namespace: hubNamespace, Name: "capstan-hub-" + name}, nil, "--annotator=false", "--dashboard-auth=none")
	}
	holder := func(lease string) func() string {
		return func() string {
			return typed("kubectl -n capstan-system get lease " + lease + " --ignore-not-found -o jsonpath={.spec.holderIdentity}")
		}
	}
	condition := func(namespace string) func() string {
		return func() string {
			return typed("kubectl -n " + namespace + " get pipeline shop -o jsonpath={.status.conditions[*].reason}")
		}
	}

	t.Run("two hubs", func(t *testing.T) {
		g := NewWithT(t)
		east := start(t, "east")
		g.Eventually(holder("capstan-namespace-team-a")).Should(Equal("east"))
		g.Eventually(condition("team-a")).ShouldNot(BeEmpty())
		g.Expect(condition("team-b")()).To(BeEmpty(), "its hub does not run yet")

		west := start(t, "west")
		g.Eventually(condition("team-b")).ShouldNot(BeEmpty())
		g.Eventually(condition("team-c")).ShouldNot(BeEmpty())
		g.Expect(holder("capstan-namespace-team-c")()).To(Equal("west"))
		g.Expect(holder("capstan-hub-west")()).NotTo(BeEmpty())
		g.Eventually(func() string { return page(t, "http://"+west["--metrics-bind-address"]+"/metrics") }).Should(ContainSubstring(`capstan_hub_namespace_conflict{hub="west"} 0`))
		g.Eventually(func() string { return page(t, "http://"+west["--dashboard-bind-address"]+"/about") }).Should(And(
			ContainSubstring("Hub <b>west</b>"), ContainSubstring(`<a href="https://east.example.org">east</a>`), ContainSubstring("only team-b, team-c")))
		g.Expect(page(t, "http://"+east["--dashboard-bind-address"]+"/pipelines")).NotTo(ContainSubstring("team-b"))
	})
	typed("helm upgrade capstan config/chart --namespace capstan-system -f moved.yaml")
	t.Run("a namespace has moved", func(t *testing.T) {
		g := NewWithT(t)
		start(t, "west")
		g.Eventually(holder("capstan-namespace-team-c")).Should(BeEmpty(), "west has released it")
		start(t, "east")
		g.Eventually(holder("capstan-namespace-team-c")).Should(Equal("east"))
		g.Expect(holder("capstan-namespace-team-b")()).To(Equal("west"))
	})
	typed("helm upgrade capstan config/chart --namespace capstan-system -f one.yaml")
	t.Run("a hub was removed", func(t *testing.T) {
		g := NewWithT(t)
		start(t, "east")
		g.Eventually(holder("capstan-namespace-team-b")).WithTimeout(2*time.Minute).Should(Equal("east"), "it waits for the duration of a lease")
	})
}
