package install

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/capstan-hub/capstan/playground/controlplane"
)

// monitored are the values that enable all objects of the chart.
var monitored = []string{
	"--set", "monitoring.serviceMonitor=true", "--set", "monitoring.prometheusRule=true", "--set", "monitoring.grafanaDashboard=true",
}

// An installation by Helm has the same objects as one by kustomize.
func TestTheChartAndTheKustomizationAreTheSame(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	text, err := chart(t, append(monitored, "--set", "image.tag=latest")...)
	g.Expect(err).NotTo(HaveOccurred())
	byHelm := objects(t, text)
	byKustomize := objects(t, kustomization(t, "default"), kustomization(t, "monitoring"))
	same(t, byHelm, byKustomize, "Deployment "+hubNamespace+"/capstan-hub")
}

// The same in a cluster with Kyma.
func TestTheChartAndTheKustomizationOfKymaAreTheSame(t *testing.T) {
	t.Parallel()
	text, err := chart(t, "--set", "image.tag=latest", "--set", "eventingController.enabled=true,eventingController.namespace=kyma-system")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	same(t, objects(t, text), objects(t, kustomization(t, "kyma")), "Deployment "+hubNamespace+"/capstan-hub")
}

// Mode annotator has the objects of config/capa-annotator, from the hub's image.
func TestTheChartOfTheAnnotatorAndTheKustomizationAreTheSame(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace = "capa-annotator-system"
	text, err := chart(t, "--namespace", namespace, "--set", "mode=annotator", "--set", "image.tag=latest", "--set",
		`serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:aws:iam::111122223333:role/capa-annotator`)
	g.Expect(err).NotTo(HaveOccurred())
	byHelm, byKustomize := objects(t, text), objects(t, kustomization(t, "capa-annotator"))
	delete(byKustomize, "Namespace /"+namespace)
	deployment := "Deployment " + namespace + "/capa-annotator"
	alone, byHub := container(t, byKustomize[deployment]), container(t, byHelm[deployment])
	args, ok := alone["args"].([]any)
	g.Expect(ok).To(BeTrue())
	g.Expect(alone).To(HaveKeyWithValue("image", "capa-annotator:latest"))
	g.Expect(byHub).To(HaveKeyWithValue("image", "capstan:latest"))
	g.Expect(byHub).To(HaveKeyWithValue("args", append([]any{"annotator"}, args...)))
	delete(alone, "image")
	delete(alone, "args")
	delete(byHub, "image")
	delete(byHub, "args")
	same(t, byHelm, byKustomize, deployment)
}

// container returns the only container of a Deployment; changes of it change the Deployment.
func container(t *testing.T, deployment *unstructured.Unstructured) map[string]any {
	t.Helper()
	g := NewWithT(t)
	g.Expect(deployment).NotTo(BeNil())
	containers, found, err := unstructured.NestedFieldNoCopy(deployment.Object, "spec", "template", "spec", "containers")
	g.Expect(found, err).To(BeTrue())
	list, ok := containers.([]any)
	g.Expect(ok).To(BeTrue())
	g.Expect(list).To(HaveLen(1))
	only, ok := list[0].(map[string]any)
	g.Expect(ok).To(BeTrue())
	return only
}

// same compares what Helm and what kustomize render.
func same(t *testing.T, byHelm, byKustomize map[string]*unstructured.Unstructured, deployment string) {
	t.Helper()
	g := NewWithT(t)
	// Helm creates the namespace.
	delete(byKustomize, "Namespace /"+hubNamespace)
	for _, o := range byHelm {
		if o.GetKind() == "CustomResourceDefinition" {
			annotations := o.GetAnnotations()
			g.Expect(annotations).To(HaveKeyWithValue("helm.sh/resource-policy", "keep"), o.GetName())
			delete(annotations, "helm.sh/resource-policy")
			o.SetAnnotations(annotations)
		}
	}
	// The default of kustomize is that of Kubernetes.
	only := container(t, byHelm[deployment])
	g.Expect(only).To(HaveKeyWithValue("imagePullPolicy", "IfNotPresent"))
	delete(only, "imagePullPolicy")
	g.Expect(slices.Sorted(maps.Keys(byHelm))).To(Equal(slices.Sorted(maps.Keys(byKustomize))))
	for key, want := range byKustomize {
		g.Expect(byHelm[key].Object).To(Equal(want.Object), key)
	}
}

// Each manifest of config is in the chart: kustomize reads only what a kustomization.yaml
// lists, so that a comparison of what both render misses a file that no list has.
func TestEveryManifestIsInTheChart(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	text, err := chart(t, append(monitored, "--set", "clusterNamespaces={"+hubNamespace+"}", "--set", "pipelineNamespaces={"+hubNamespace+"}",
		"--set", "backendNamespaces={"+hubNamespace+"}")...)
	g.Expect(err).NotTo(HaveOccurred())
	rendered := map[string]bool{}
	for _, o := range objects(t, text) {
		rendered[o.GetKind()+" "+o.GetName()] = true
	}
	for _, dir := range []string{
		"crd/bases", "rbac", "rbac/cluster-secrets", "rbac/pipeline-secrets", "rbac/backend-secrets", "webhook", "manager", "admission", "monitoring",
	} {
		files, err := filepath.Glob(path("config", dir, "*.yaml"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(files).NotTo(BeEmpty(), dir)
		for _, file := range files {
			raw, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			for _, o := range objects(t, string(raw)) {
				switch o.GetKind() {
				case "Namespace": // Helm creates it (--create-namespace).
				case "Kustomization":
				default:
					g.Expect(rendered).To(HaveKey(o.GetKind()+" "+o.GetName()), "%s is not in config/chart/templates", file)
				}
			}
		}
	}
}

// The chart cannot read files outside its folder: `make generate` copies those that it needs.
func TestTheChartsCopiesAreCurrent(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	want := map[string]string{}
	originals, err := filepath.Glob(path("config", "crd", "bases", "*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range originals {
		want["crds/"+filepath.Base(file)] = file
	}
	for _, name := range []string{"dashboard.json", "prometheus_rule.yaml"} {
		want[name] = path("config", "monitoring", name)
	}
	got := map[string]bool{}
	files := path("config", "chart", "files")
	g.Expect(filepath.WalkDir(files, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(files, file)
		got[name] = true
		return err
	})).To(Succeed())
	g.Expect(slices.Sorted(maps.Keys(got))).To(Equal(slices.Sorted(maps.Keys(want))), "run `make generate`")
	for name, file := range want {
		original, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		is, err := os.ReadFile(filepath.Join(files, name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(is)).To(Equal(string(original)), "config/chart/files/%s: run `make generate`", name)
	}
}

// The permissions in single namespaces are those of config/rbac.
func TestRightsInNamespaces(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	text, err := chart(t, "--set", "clusterNamespaces={fleet,team-b}", "--set", "pipelineNamespaces={apps}",
		"--set", "backendNamespaces={platform}", "--namespace=hubs")
	g.Expect(err).NotTo(HaveOccurred())
	got := objects(t, text)
	for _, given := range []struct{ dir, namespace string }{
		{"cluster-secrets", "fleet"}, {"cluster-secrets", "team-b"}, {"pipeline-secrets", "apps"}, {"backend-secrets", "platform"},
	} {
		for _, want := range objects(t, kustomization(t, "rbac/"+given.dir)) {
			is := got[want.GetKind()+" "+given.namespace+"/"+want.GetName()]
			g.Expect(is).NotTo(BeNil(), "%s in %s", want.GetName(), given.namespace)
			if subjects, found, _ := unstructured.NestedSlice(want.Object, "subjects"); found {
				subject, ok := subjects[0].(map[string]any)
				g.Expect(ok).To(BeTrue())
				subject["namespace"] = "hubs"
				want.Object["subjects"] = subjects
			}
			want.SetNamespace(given.namespace)
			g.Expect(is.Object).To(Equal(want.Object))
		}
	}
	// No other namespace is in the text.
	g.Expect(text).NotTo(ContainSubstring(hubNamespace))
	g.Expect(text).To(ContainSubstring("namespace: hubs"))
}

// Each Service leads to a port of the hub's pods on which the hub listens, and the policy
// allows ingress to it. The alias that Kyma's documents name leads to discovery.
func TestServicesLeadToTheHub(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	text, err := chart(t, "--set", "eventingController.enabled=true", "--set", "dashboard.tlsSecret=tls", "--set", "dashboard.sessionKeySecret=key")
	g.Expect(err).NotTo(HaveOccurred())
	var (
		deployment appsv1.Deployment
		open       = map[string]bool{}
		services   = map[string]corev1.Service{}
	)
	read := func(o *unstructured.Unstructured, into any) {
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)).To(Succeed())
	}
	for _, o := range objects(t, text) {
		switch o.GetKind() {
		case "Deployment":
			read(o, &deployment)
		case "NetworkPolicy":
			var policy networkingv1.NetworkPolicy
			read(o, &policy)
			for _, rule := range policy.Spec.Ingress {
				for _, p := range rule.Ports {
					open[p.Port.String()] = true
				}
			}
		case "Service":
			var service corev1.Service
			read(o, &service)
			services[service.Name] = service
		}
	}
	pod := deployment.Spec.Template
	ports := map[string]int32{}
	for _, p := range pod.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	served := map[string]string{}
	for name, service := range services {
		g.Expect(labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels))).To(BeTrue(), name)
		port := service.Spec.Ports[0]
		g.Expect(open).To(HaveKey(port.TargetPort.String()), name)
		listens := slices.IndexFunc(pod.Spec.Containers[0].Args, func(arg string) bool {
			return strings.HasSuffix(arg, fmt.Sprintf("-bind-address=:%d", ports[port.TargetPort.String()]))
		})
		g.Expect(listens).To(BeNumerically(">=", 0), name)
		flag, _, _ := strings.Cut(pod.Spec.Containers[0].Args[listens], "=")
		served[fmt.Sprintf("%s:%d", name, port.Port)] = flag
	}
	g.Expect(served).To(Equal(map[string]string{
		"capstan-hub-metrics:8080":  "--metrics-bind-address",
		"capstan-hub-hook:80":       "--promotion-hook-bind-address",
		"capstan-hub-api:80":        "--api-bind-address",
		"eventing-controller:80":    "--api-bind-address",
		"capstan-hub-webhook:443":   "--webhook-bind-address",
		"capstan-hub-dashboard:443": "--dashboard-bind-address",
	}))
}

func TestLint(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	out, _, err := tool(t.Context(), nil, []string{"HOME=" + t.TempDir()}, "helm", "lint", "--strict", path("config", "chart"))
	g.Expect(err).NotTo(HaveOccurred(), out)
}

// Every value has an effect. An invalid value is refused by name.
func TestValues(t *testing.T) {
	t.Parallel()
	const served = "dashboard.tlsSecret=tls,dashboard.sessionKeySecret=key"
	const provider = "dashboard.url=https://capstan.example.org,dashboard.oidc.issuerURL=https://id.example.org,dashboard.oidc.clientID=capstan"
	const published = served + ",dashboard.url=https://capstan.example.org"
	digest := "sha256:" + strings.Repeat("0a", 32)
	for set, want := range map[string]string{
		"settings.events-addr=http://flux.example.org/":                                         `            - "--events-addr=http://flux.example.org/"` + "\n          env:",
		"settings.no-cross-namespace-refs=true":                                                 `- "--no-cross-namespace-refs=true"`,
		"settings.management-max-objects=3000000":                                               `- "--management-max-objects=3000000"`,
		"settings.annotator=false":                                                              `- "--annotator=false"`,
		"settings.app-kinds={HelmRelease.helm.toolkit.fluxcd.io}":                               `- "--app-kinds=HelmRelease.helm.toolkit.fluxcd.io"`,
		"settings.sqs-source-namespaces={a,b}":                                                  `            - "--sqs-source-namespaces=a"` + "\n" + `            - "--sqs-source-namespaces=b"`,
		"settings.check-endpoint={main=http://a,other=http://b}":                                `- "--check-endpoint=main=http://a"` + "\n" + `            - "--check-endpoint=other=http://b"`,
		"natsURL=nats://nats.example.org:4222":                                                  `- "--nats-url=nats://nats.example.org:4222"`,
		"mode=annotator,settings.max-pods=eni":                                                  `- "--max-pods=eni"`,
		"mode=annotator,annotator.goMemoryLimit=300MiB":                                         "value: 300MiB",
		"mode=annotator,annotator.resources.limits.memory=300Mi":                                "memory: 300Mi",
		"mode=annotator,podLabels.team=platform":                                                "        app.kubernetes.io/name: capa-annotator\n        team: platform",
		"serviceAccount.name=robot":                                                             "serviceAccountName: robot",
		"serviceAccount.name=robot,serviceAccount.create=false":                                 "    kind: ServiceAccount\n    name: robot",
		"serviceAccount.labels.azure=workload":                                                  "azure: workload",
		"commonLabels.team=platform":                                                            "kind: ClusterRole\nmetadata:\n  name: capstan-hub\n  labels:\n    team: platform",
		"podLabels.team=platform":                                                               "        team: platform\n      annotations:",
		"hostAliases[0].ip=192.0.2.1":                                                           "hostAliases:\n        - ip: 192.0.2.1",
		"dnsPolicy=Default":                                                                     "dnsPolicy: Default",
		"dnsConfig.nameservers={192.0.2.1}":                                                     "dnsConfig:\n        nameservers:",
		"extraEnvFrom[0].secretRef.name=proxy":                                                  "envFrom:\n            - secretRef:\n                name: proxy",
		"extraObjects[0]=kind: Pod":                                                             "\nkind: Pod\n",
		"monitoring.serviceMonitor=true,monitoring.labels.release=prom":                         "    release: prom\nspec:",
		"monitoring.prometheusRule=true,monitoring.labels.release=prom":                         "release: prom",
		"monitoring.serviceMonitor=true,monitoring.interval=30s":                                "interval: 30s",
		"monitoring.prometheusRule=true,monitoring.runbookURL=https://wiki.example.org/capstan": "runbook_url: https://wiki.example.org/capstan#capstannoleader",
		"monitoring.serviceMonitor=true,monitoring.scrapeTimeout=10s":                           "scrapeTimeout: 10s",
		published + ",dashboard.ingress.enabled=true,dashboard.ingress.className=nginx,dashboard.ingress.tlsSecret=public": "ingressClassName: nginx\n  rules:\n    - host: \"capstan.example.org\"",
		published + ",dashboard.ingress.enabled=true,dashboard.ingress.annotations.a=b":                                    "  annotations:\n    a: b\nspec:\n  rules:",
		published + ",dashboard.httpRoute.enabled=true,dashboard.httpRoute.parentRefs[0].name=public":                      "  parentRefs:\n    - name: public\n  hostnames: [\"capstan.example.org\"]",
		published + ",dashboard.certificate.enabled=true,dashboard.certificate.issuerRef.name=internal":                    "  secretName: tls\n  dnsNames:\n    - \"capstan.example.org\"",
		"image.repository=registry.example.org/capstan":                                                                    `image: "registry.example.org/capstan:devel"`,
		"image.tag=v1.2.3":                       `image: "capstan:v1.2.3"`,
		"image.digest=" + digest:                 `image: "capstan@` + digest + `"`,
		"image.pullPolicy=Always":                "imagePullPolicy: Always",
		"imagePullSecrets[0].name=pull":          "imagePullSecrets:\n        - name: pull",
		"replicas=3":                             "replicas: 3",
		"extraArgs[0]=--no-cross-namespace-refs": `            - "--no-cross-namespace-refs"` + "\n          env:",
		"extraEnv[0].name=HTTPS_PROXY":           "- name: HTTPS_PROXY",
		"extraVolumes[0].name=tls":               "volumes:\n        - name: tls",
		"extraVolumeMounts[0].name=tls,extraVolumeMounts[0].mountPath=/tls": "mountPath: /tls",
		`serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn`:       "eks.amazonaws.com/role-arn: arn",
		"resources.requests.memory=1Gi":                                     "memory: 1Gi\n            limits:",
		"resources.limits.memory=2Gi":                                       "memory: 2Gi",
		"goMemoryLimit=1800MiB":                                             "value: 1800MiB",
		"cloneDirSizeLimit=5Gi":                                             "sizeLimit: 5Gi",
		"podAnnotations.team=platform":                                      "team: platform",
		"priorityClassName=system-cluster-critical":                         "priorityClassName: system-cluster-critical",
		"nodeSelector.pool=system":                                          "nodeSelector:\n        pool: system",
		"tolerations[0].operator=Exists":                                    "tolerations:\n        - operator: Exists",
		"affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1": "affinity:\n        podAntiAffinity:",
		"webhook.enabled=false":                "            - --webhook-bind-address=0\n",
		"eventingController.enabled=true":      "name: eventing-controller\n  namespace: " + hubNamespace,
		served:                                 "            - --dashboard-bind-address=:8090\n",
		served + ",networkPolicy.enabled=true": "capstan.dev/dashboard: allow",
		provider:                               `            - "--dashboard-url=https://capstan.example.org"` + "\n" + `            - "--dashboard-oidc-issuer-url=https://id.example.org"` + "\n" + `            - "--dashboard-oidc-client-id=capstan"` + "\n            - \"--nats-url",
		provider + ",dashboard.oidc.clientSecret=oidc":                                                                          "- name: dashboard-oidc\n          secret:\n            secretName: oidc\n",
		provider + ",dashboard.oidc.caConfigMap=ca":                                                                             "- name: dashboard-oidc-ca\n          configMap:\n            name: ca\n",
		provider + ",dashboard.oidc.scopes={email,groups}":                                                                      `            - "--dashboard-oidc-scopes=email,groups"`,
		"proxy.git.url=http://proxy.example.org:3128":                                                                           `            - "--git-proxy=http://proxy.example.org:3128"` + "\n            - --clone-dir",
		"proxy.git.url=http://a:3128,proxy.git.credentialsSecret=squid":                                                         `            - "--git-proxy=http://a:3128"` + "\n            - --git-proxy-credentials-file=/proxy/git/credentials\n",
		"proxy.clusters.url=https://a,proxy.clusters.credentialsSecret=b":                                                       "            - name: proxy-clusters\n              mountPath: /proxy/clusters\n",
		"proxy.clusters.url=https://b,proxy.clusters.credentialsSecret=c":                                                       "- name: proxy-clusters\n          secret:\n            secretName: c\n",
		"proxy.clusters.url=https://a,proxy.noProxy={.b.org,10.0.0.0/8}":                                                        `            - "--cluster-proxy=https://a"` + "\n" + `            - "--no-proxy=.b.org,10.0.0.0/8"` + "\n",
		"eventingController.enabled=true,eventingController.namespace=kyma-system,eventingController.clusterDomain=example.org": "externalName: capstan-hub-api." + hubNamespace + ".svc.example.org",
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			text, err := chart(t, "--set", set)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(text).To(ContainSubstring(want))
			valid(t, text)
		})
	}
	for set, kind := range map[string]string{
		"crds.install=false": "CustomResourceDefinition", "networkPolicy.enabled=false": "NetworkPolicy", "replicas=1": "PodDisruptionBudget",
		"webhook.enabled=false": "ValidatingWebhookConfiguration", "mode=annotator": "ValidatingAdmissionPolicy", "mode=annotator,replicas=1": "PodDisruptionBudget",
		"mode=annotator,networkPolicy.enabled=false": "NetworkPolicy", "serviceAccount.create=false,serviceAccount.name=robot": "ServiceAccount",
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			text, err := chart(t, "--set", set)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(text).NotTo(MatchRegexp("(?m)^kind: " + kind + "$"))
			valid(t, text)
		})
	}
	for set, complaint := range map[string]string{
		"replicas=0":                     "minimum",
		"mode=agent":                     "value must be one of",
		"settings.event-addr=x":          "additional properties 'event-addr' not allowed",
		"settings.leader-elect=false":    "additional properties 'leader-elect' not allowed",
		"settings.promotion-keep=many":   "got string, want integer",
		"settings.stall-after=soon":      "does not match pattern",
		"settings.app-kinds=HelmRelease": "got string, want array",
		"mode=annotator,settings.app-kinds={HelmRelease.helm.toolkit.fluxcd.io}": "additional properties 'app-kinds' not allowed",
		"natsURL=eventing-nats":                           "does not match pattern",
		"natsURL=nats://user:pass@nats":                   "does not match pattern",
		"serviceAccount.create=false":                     "serviceAccount.create=false needs serviceAccount.name",
		"dashboard.ingress.enabled=true":                  "dashboard.ingress.enabled needs dashboard.tlsSecret",
		served + ",dashboard.httpRoute.enabled=true":      "dashboard.httpRoute.enabled needs dashboard.url",
		published + ",dashboard.httpRoute.enabled=true":   "needs dashboard.httpRoute.parentRefs",
		published + ",dashboard.certificate.enabled=true": "needs dashboard.certificate.issuerRef",
		"monitoring.interval=often":                       "does not match pattern",
		"monitoring.runbookURL=wiki#capstan":              "does not match pattern",
		"dnsPolicy=Mine":                                  "value must be one of",
		"replica=3":                                       "additional properties 'replica' not allowed",
		"image.digest=latest":                             "does not match pattern",
		"clusterNamespaces={Team A}":                      "does not match pattern",
		"extraArgs[0]=leader-elect":                       "does not match pattern",
		"goMemoryLimit=900Mi":                             "does not match pattern",
		"image.pullPolicy=Sometimes":                      "value must be one of",
		"networkPolicy.enabled=maybe":                     "want boolean",
		"monitoring.prometheus=true":                      "additional properties 'prometheus' not allowed",
		"serviceAccount.annotations=x":                    "want object",
		"webhook.enable=false":                            "additional properties 'enable' not allowed",
		"dashboard.tlsSecret=tls":                         "dashboard.tlsSecret needs dashboard.sessionKeySecret",
		"dashboard.tlsSecret=T L S":                       "does not match pattern",
		"dashboard.url=capstan.example.org":               "does not match pattern",
		"dashboard.oidc.issuerURL=https://id.example.org,dashboard.url=https://capstan.example.org": "needs dashboard.oidc.clientID",
		"dashboard.oidc.issuerURL=https://id.example.org,dashboard.oidc.clientID=capstan":           "needs dashboard.url",
		"proxy.git.url=http://robot:secret@proxy:3128":                                              "does not match pattern",
		"proxy.clusters.url=proxy:3128":                                                             "does not match pattern",
		"proxy.noProxy={http://a}":                                                                  "does not match pattern",
		"proxy.git.credentialsSecret=squid":                                                         "proxy.git.credentialsSecret needs proxy.git.url",
		"eventingController.namespace=Kyma System":                                                  "does not match pattern",
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			_, err := chart(t, "--set", set)
			g.Expect(err).To(MatchError(ContainSubstring(complaint)))
		})
	}
}

// crds.eventing=false leaves out the CRD of EventingBackends, and no other.
func TestTheChartWithoutTheCRDOfEventing(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	all, err := chart(t)
	g.Expect(err).NotTo(HaveOccurred())
	some, err := chart(t, "--set", "crds.eventing=false")
	g.Expect(err).NotTo(HaveOccurred())
	want := slices.DeleteFunc(slices.Sorted(maps.Keys(objects(t, all))), func(key string) bool {
		return key == "CustomResourceDefinition /eventingbackends.eventing.kyma-project.io"
	})
	g.Expect(slices.Sorted(maps.Keys(objects(t, some)))).To(Equal(want))
}

// commonLabels are on every object.
func TestCommonLabelsAreOnEveryObject(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"hub", "annotator"} {
		g := NewWithT(t)
		text, err := chart(t, append(monitored, "--set", "mode="+mode, "--set", "commonLabels.team=platform", "--set", "clusterNamespaces={fleet}", "--set",
			"eventingController.enabled=true", "--set", "dashboard.tlsSecret=tls,dashboard.sessionKeySecret=key,dashboard.url=https://capstan.example.org", "--set",
			"dashboard.ingress.enabled=true,dashboard.certificate.enabled=true,dashboard.certificate.issuerRef.name=a", "--set",
			"dashboard.httpRoute.enabled=true,dashboard.httpRoute.parentRefs[0].name=a")...)
		g.Expect(err).NotTo(HaveOccurred())
		all := objects(t, text)
		g.Expect(len(all)).To(BeNumerically(">", 5))
		for key, o := range all {
			g.Expect(o.GetLabels()).To(HaveKeyWithValue("team", "platform"), key)
		}
		valid(t, text)
	}
}

// valid decodes each object with the types of its API, which have no unknown and no doubled fields.
// The objects of others, for which there are no types here, are only YAML.
func valid(t *testing.T, text string) {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	g.Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	others := map[string]bool{"ServiceMonitor": true, "PrometheusRule": true, "HTTPRoute": true, "Certificate": true}
	for key, o := range objects(t, text) {
		if others[o.GetKind()] || o.GetAPIVersion() == "" {
			continue
		}
		raw, err := o.MarshalJSON()
		g.Expect(err).NotTo(HaveOccurred())
		_, _, err = decoder.Decode(raw, nil, nil)
		g.Expect(err).NotTo(HaveOccurred(), key)
	}
}

// Each value has its schema, and each schema its value, at every depth.
func TestSchemaHasEveryValue(t *testing.T) {
	g := NewWithT(t)
	raw, err := os.ReadFile(path("config", "chart", "values.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var values map[string]any
	g.Expect(yaml.Unmarshal(raw, &values)).To(Succeed())
	raw, err = os.ReadFile(path("config", "chart", "values.schema.json"))
	g.Expect(err).NotTo(HaveOccurred())
	var schema map[string]any
	g.Expect(yaml.Unmarshal(raw, &schema)).To(Succeed())
	properties, ok := schema["properties"].(map[string]any)
	g.Expect(ok).To(BeTrue())
	delete(properties, "global") // Helm's own.
	compare(t, "", values, schema)
}

func compare(t *testing.T, at string, values, schema map[string]any) {
	t.Helper()
	g := NewWithT(t)
	properties, ok := schema["properties"].(map[string]any)
	if !ok || len(values) == 0 {
		return // A mapping of any keys, or one whose keys are all optional.
	}
	g.Expect(schema).To(HaveKeyWithValue("additionalProperties", false), at)
	g.Expect(slices.Sorted(maps.Keys(values))).To(Equal(slices.Sorted(maps.Keys(properties))), at)
	for name, value := range values {
		nested, isMapping := value.(map[string]any)
		below, isSchema := properties[name].(map[string]any)
		g.Expect(isSchema).To(BeTrue(), at+name)
		if isMapping {
			compare(t, at+name+".", nested, below)
		}
	}
}

// emptyCluster starts an API server of the test's own. It returns the environment of programs
// that use it.
func emptyCluster(t *testing.T) (plane *controlplane.ControlPlane, env []string) {
	t.Helper()
	g := NewWithT(t)
	plane, err := controlplane.Start(controlplane.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = plane.Stop() })
	kubeconfig, err := plane.Kubeconfig("")
	g.Expect(err).NotTo(HaveOccurred())
	home := t.TempDir()
	file := filepath.Join(home, "kubeconfig")
	g.Expect(os.WriteFile(file, kubeconfig, 0o600)).To(Succeed())
	return plane, []string{"HOME=" + home, "KUBECONFIG=" + file}
}

// The chart and the kustomization are applied to a real API server, one over the other,
// without warnings.
func TestBothApply(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	_, env := emptyCluster(t)
	apply := func(text string) string {
		out, warnings, err := tool(t.Context(), []byte(text), env, "envtest/kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(warnings).To(BeEmpty())
		return out
	}

	// Install into an empty cluster, and uninstall.
	_, _, err := tool(t.Context(), nil, env, "envtest/kubectl", "create", "namespace", fleetNamespace)
	g.Expect(err).NotTo(HaveOccurred())
	_, _, err = tool(t.Context(), nil, env, "helm", "install", "capstan", path("config", "chart"), "--namespace", hubNamespace, "--create-namespace",
		"--set", "clusterNamespaces={"+fleetNamespace+"}")
	g.Expect(err).NotTo(HaveOccurred())
	installed := []string{"get", "crds,clusterroles,deployments,roles", "-A", "-o", "name"}
	out, _, err := tool(t.Context(), nil, env, "envtest/kubectl", installed...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(And(ContainSubstring("deployment.apps/capstan-hub"), ContainSubstring("role.rbac.authorization.k8s.io/capstan-cluster-secrets")))
	_, _, err = tool(t.Context(), nil, env, "helm", "uninstall", "capstan", "--namespace", hubNamespace)
	g.Expect(err).NotTo(HaveOccurred())
	out, _, err = tool(t.Context(), nil, env, "envtest/kubectl", installed...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(ContainSubstring("pipelines.pipelines.weave.works"), "the deletion of a CRD would delete its objects")
	g.Expect(out).NotTo(ContainSubstring("/capstan-hub"))

	g.Expect(apply(kustomization(t, "default"))).To(ContainSubstring("deployment.apps/capstan-hub serverside-applied"))
	text, err := chart(t, "--set", "clusterNamespaces={"+fleetNamespace+"}", "--set", "backendNamespaces={"+fleetNamespace+"}",
		"--set", "eventingController.enabled=true", "--set", "eventingController.namespace="+fleetNamespace,
		"--set", "dashboard.tlsSecret=tls", "--set", "dashboard.sessionKeySecret=key")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(apply(text)).To(ContainSubstring("role.rbac.authorization.k8s.io/capstan-cluster-secrets serverside-applied"))
}

// In dry run the hub may write what a dry run writes, and nothing else.
func TestRightsOfADryRun(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	text, err := chart(t, "--set", "dryRun=true", "--set", "clusterNamespaces={fleet}", "--set", "pipelineNamespaces={apps}", "--set", "backendNamespaces={platform}")
	g.Expect(err).NotTo(HaveOccurred())
	all := objects(t, text)
	may := map[string]bool{}
	for _, o := range all {
		if o.GetKind() != "RoleBinding" && o.GetKind() != "ClusterRoleBinding" {
			continue
		}
		var binding rbacv1.RoleBinding
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding)).To(Succeed())
		if !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Kind == rbacv1.ServiceAccountKind && s.Name == "capstan-hub" }) {
			continue
		}
		named := binding.RoleRef.Kind + " " + binding.Namespace + "/" + binding.RoleRef.Name
		g.Expect(all).To(HaveKey(named))
		var role rbacv1.ClusterRole
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(all[named].Object, &role)).To(Succeed())
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if !slices.Contains([]string{"get", "list", "watch"}, verb) {
						may[verb+" "+resource] = true
					}
				}
			}
		}
	}
	g.Expect(slices.Sorted(maps.Keys(may))).To(Equal([]string{
		"create clusterconnections", "create events", "create leases", "create subjectaccessreviews", "create tokenreviews",
		"delete clusterconnections", "patch clusterconnections", "patch clusterconnections/status", "patch events", "patch pipelines/status", "update leases",
	}))
}

var jobs = regexp.MustCompile(`job(=~?)\\"([^"]*)\\"`)

// Prometheus gives a series the name of its Service as its job. The Grafana dashboard selects those of every hub.
func TestTheGrafanaDashboardSelectsEveryHub(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	values := filepath.Join(t.TempDir(), "hubs.yaml")
	g.Expect(os.WriteFile(values, []byte(twoHubs), 0o600)).To(Succeed())
	for want, args := range map[int][]string{1: nil, 2: {"-f", values}} {
		text, err := chart(t, append(args, "--set", "monitoring.grafanaDashboard=true")...)
		g.Expect(err).NotTo(HaveOccurred())
		selected := jobs.FindAllStringSubmatch(text, -1)
		g.Expect(len(selected)).To(BeNumerically(">", 10))
		services := 0
		for _, o := range objects(t, text) {
			if o.GetKind() != "Service" || !strings.HasSuffix(o.GetName(), "-metrics") {
				continue
			}
			services++
			for _, s := range selected {
				g.Expect(s[1]).To(Equal("=~"))
				g.Expect(regexp.MustCompile("^(?:"+s[2]+")$").MatchString(o.GetName())).To(BeTrue(), "%s selects %s", s[0], o.GetName())
			}
		}
		g.Expect(services).To(Equal(want))
	}
}
