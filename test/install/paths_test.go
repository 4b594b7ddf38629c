package install

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
	"github.com/capstan-hub/capstan/playground/aws/sts"
	"github.com/capstan-hub/capstan/playground/controlplane"
	natsserver "github.com/capstan-hub/capstan/playground/nats"
	"github.com/capstan-hub/capstan/playground/ports"
)

// paths are the documents that lead a new user from nothing to a first result.
var paths = []string{"docs/quick-start.md", "docs/migrating-from-pipeline-controller.md", "docs/annotator-alone.md", "docs/kyma.md"}

// Each path has fewer than ten steps, and the README leads to it.
func TestThePathsAreShort(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	readme, err := os.ReadFile(path("README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	step := regexp.MustCompile(`(?m)^\*\*\d+\. `)
	for _, document := range paths {
		raw, err := os.ReadFile(path(filepath.FromSlash(document)))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(step.FindAll(raw, -1))).To(And(BeNumerically(">", 3), BeNumerically("<", 10)), document)
		g.Expect(string(readme)).To(ContainSubstring("]("+document+")"), "README.md")
	}
}

// A shell runs the commands of docs/annotator-alone.md, word for word. The program of the Deployment runs as it says,
// with the rights of its ServiceAccount, against simulated EC2 and STS.
func TestTheAnnotatorAlone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	plane, clone, typed := newInstallation(t, "cluster-api", "cluster-api-provider-aws")
	g.Expect(os.WriteFile(filepath.Join(clone, "group.yaml"), []byte(nodeGroup), 0o600)).To(Succeed())
	typed("kubectl create namespace fleet; kubectl apply -f group.yaml")

	const role, token = "arn:aws:iam::111122223333:role/capa-annotator", "token-of-the-pod"
	cloud, err := aws.Start(aws.Options{Services: []aws.Service{ec2.New("eu-west-1"), sts.New(sts.Role{ARN: role, Token: token})}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(cloud.Stop)
	tokenFile := filepath.Join(t.TempDir(), "token")
	g.Expect(os.WriteFile(tokenFile, []byte(token), 0o600)).To(Succeed())
	env := []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "AWS_ROLE_ARN=" + role, "AWS_WEB_IDENTITY_TOKEN_FILE=" + tokenFile}
	for name, value := range cloud.Env() {
		if !strings.HasPrefix(name, "AWS_ACCESS") && !strings.HasPrefix(name, "AWS_SECRET") {
			env = append(env, name+"="+value)
		}
	}

	const notHere = "no real AWS account is used"
	follow(t, "docs/annotator-alone.md", map[string]string{
		"make image": "hack/release builds and reads the image", "make push": "hack/release pushes to a registry of its own",
		"aws iam create-role": notHere, "aws iam put-role-policy": notHere,
		"kubectl -n capa-annotator-system rollout": "no kubelet starts pods",
	}, func(command string) {
		said := typed(command)
		switch {
		case strings.HasPrefix(command, "helm install"):
			g.Expect(said).To(ContainSubstring("The annotator is installed in capa-annotator-system."))
			startInstalled(t, plane, client.ObjectKey{Namespace: "capa-annotator-system", Name: "capa-annotator"}, env)
			g.Eventually(func() string { return typed("kubectl get machinedeployment -n fleet md -o yaml") }).Should(ContainSubstring("capacity.cluster-autoscaler.kubernetes.io/cpu"))
		case strings.HasPrefix(command, "kubectl get machinedeployments"):
			g.Expect(said).To(MatchRegexp(`fleet +md +2 +8192Mi`))
		case strings.HasPrefix(command, "kubectl get events"):
			g.Expect(said).To(ContainSubstring("No resources found"))
		case strings.HasPrefix(command, "kubectl apply -f config/samples"):
			g.Expect(said).To(ContainSubstring("cluster-autoscaler-infrastructure created"))
		case strings.HasPrefix(command, "kubectl annotate"):
			g.Expect(said).To(ContainSubstring("md annotated"))
		}
	})
	g.Expect(typed("capstan explain machinedeployment fleet/md")).To(ContainSubstring("capacity.cluster-autoscaler.kubernetes.io/cpu"))
}

// nodeGroup is what Cluster API has of a node group.
const nodeGroup = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: AWSCluster
metadata: {namespace: fleet, name: c}
spec: {region: eu-west-1}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {namespace: fleet, name: c}
spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AWSCluster, name: c}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: AWSMachineTemplate
metadata: {namespace: fleet, name: t}
spec: {template: {spec: {instanceType: m5.large}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {namespace: fleet, name: md}
spec:
  clusterName: c
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      clusterName: c
      bootstrap: {dataSecretName: x}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AWSMachineTemplate, name: t}
`

// A shell runs the commands of docs/kyma.md, word for word. The program of the Deployment runs as it says, with the
// rights of its ServiceAccount, and publishes to a real NATS server.
func TestKymasPath(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	plane, clone, typed := newInstallation(t, "cluster-api", "helm-controller")
	typed("kubectl create namespace kyma-system; kubectl create namespace apps; kubectl create namespace dev; kubectl create namespace prod")
	document, err := os.ReadFile(path("docs", "kyma.md"))
	g.Expect(err).NotTo(HaveOccurred())
	backend := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(document)
	g.Expect(backend).NotTo(BeNil())
	g.Expect(os.WriteFile(filepath.Join(clone, "backend.yaml"), backend[1], 0o600)).To(Succeed())
	broker, err := natsserver.Start(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(broker.Stop)

	var api string
	follow(t, "docs/kyma.md", map[string]string{
		"make image": "hack/release builds and reads the image", "make push": "hack/release pushes to a registry of its own",
		"kubectl -n capstan-system rollout": "no kubelet starts pods",
		"nats consumer":                     "the test reads the stream by the library of this program",
		"curl":                              "no kubelet starts pods: the test calls the hub",
	}, func(command string) {
		said := typed(command)
		switch {
		case strings.HasPrefix(command, "kubectl get crd"):
			g.Expect(said).To(BeEmpty())
		case strings.HasPrefix(command, "helm install"):
			started := startInstalled(t, plane, client.ObjectKey{Namespace: hubNamespace, Name: "capstan-hub"}, nil,
				"--nats-url="+broker.URL(), "--allow-loopback-backends", "--annotator=false")
			api = started["--api-bind-address"]
			service := typed("kubectl -n kyma-system get service eventing-controller -o yaml")
			g.Expect(service).To(ContainSubstring("externalName: capstan-hub-api.capstan-system.svc"))
		case strings.HasPrefix(command, "kubectl wait"):
			g.Expect(said).To(ContainSubstring("condition met"))
		case strings.HasPrefix(command, "kubectl get eventingbackends"):
			g.Expect(said).To(MatchRegexp(`platform +fleet-news +nats +true +True +True +True`))
		case strings.HasPrefix(command, "capstan explain"):
			g.Expect(said).To(ContainSubstring("platform/fleet-news"))
		}
	})
	// Step 6: a promotion has events.
	scheme := hub.Scheme()
	g.Expect(helmv2.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	deploy(g, c, "dev", "1.1.0")
	deploy(g, c, "prod", "1.0.0")
	g.Expect(os.WriteFile(filepath.Join(clone, "pipeline.yaml"), []byte(promotes), 0o600)).To(Succeed())
	typed("kubectl apply -f pipeline.yaml")
	connection, err := nats.Connect(broker.URL())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(connection.Close)
	streams, err := jetstream.New(connection)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() (map[string]uint64, error) {
		stream, err := streams.Stream(t.Context(), "capstan")
		if err != nil {
			return nil, err
		}
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("capstan.>"))
		if err != nil {
			return nil, err
		}
		return info.State.Subjects, nil
	}).Should(And(HaveKey("capstan.promotion.detected.v1"), HaveKey("capstan.promotion.started.v1")))
	// Step 7.
	g.Expect(page(t, "http://"+api+"/backend")).To(And(ContainSubstring(`"nats"`), ContainSubstring(`"http"`)))
}

// promotes is a Pipeline in the management cluster.
const promotes = `
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {namespace: apps, name: shop}
spec:
  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: shop}
  promotion: {strategy: {notification: {}}}
  environments:
  - {name: dev, targets: [{namespace: dev}]}
  - {name: prod, targets: [{namespace: prod}]}
`

// follow runs the commands of a document but for those that cannot be typed here, and why. Each of these must be in it.
func follow(t *testing.T, document string, notTyped map[string]string, run func(command string)) {
	t.Helper()
	g := NewWithT(t)
	left := maps.Clone(notTyped)
	for _, command := range commands(t, document) {
		if begins, not := beginsWith(command, notTyped); not {
			delete(left, begins)
			continue
		}
		run(command)
	}
	g.Expect(left).To(BeEmpty(), "%s does not have these commands any more", document)
}

// newInstallation starts a management cluster with CRDs, and returns a shell for it as newShell does.
func newInstallation(t *testing.T, crds ...string) (plane *controlplane.ControlPlane, clone string, typed func(string) string) {
	t.Helper()
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs(crds...)})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = plane.Stop() })
	clone, typed = newShell(t, plane)
	return plane, clone, typed
}

// startInstalled runs the program of a Deployment as its ServiceAccount and with its arguments, in place of a kubelet,
// until the test ends. Its listeners get free addresses of loopback, which it returns by flag. args follow.
func startInstalled(t *testing.T, plane *controlplane.ControlPlane, name client.ObjectKey, env []string, args ...string) map[string]string {
	t.Helper()
	g := NewWithT(t)
	c, err := client.New(plane.Config(), client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	var installed appsv1.Deployment
	g.Expect(c.Get(t.Context(), name, &installed)).To(Succeed())
	pods := installed.Spec.Template.Spec
	raw, err := plane.UserKubeconfig("", "system:serviceaccount:"+name.Namespace+":"+pods.ServiceAccountName,
		"system:serviceaccounts", "system:serviceaccounts:"+name.Namespace, "system:authenticated")
	g.Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(os.WriteFile(kubeconfig, raw, 0o600)).To(Succeed())

	addresses := map[string]string{}
	all := append([]string{}, pods.Containers[0].Args...)
	for i, argument := range all {
		flag, value, _ := strings.Cut(argument, "=")
		switch {
		case value == "0":
		case strings.HasSuffix(flag, "-bind-address"), flag == "--health-addr":
			at, err := ports.Free()
			g.Expect(err).NotTo(HaveOccurred())
			addresses[flag], all[i] = at, flag+"="+at
		}
	}
	for _, mount := range pods.Containers[0].VolumeMounts {
		for i, argument := range all {
			if flag, value, _ := strings.Cut(argument, "="); value == mount.MountPath {
				all[i] = flag + "=" + t.TempDir()
			}
		}
	}
	command := exec.Command(filepath.Join(programs, "capstan"), append(all, args...)...)
	command.Env = append(append(os.Environ(), "KUBECONFIG="+kubeconfig, "RUNTIME_NAMESPACE="+name.Namespace, "AWS_EC2_METADATA_DISABLED=true"), env...)
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	g.Expect(command.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		late := time.AfterFunc(time.Minute, func() { _ = command.Process.Kill() })
		err := command.Wait()
		late.Stop()
		if err != nil || t.Failed() {
			t.Errorf("%s: %v\n%s", command, err, log.String())
		}
	})
	return addresses
}

// page returns the body of a page.
func page(t *testing.T, url string) string {
	t.Helper()
	g := NewWithT(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	return string(body)
}
