package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
	"github.com/capstan-hub/capstan/playground/aws/sts"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// FR8: the flags have the names and defaults of the requirements; there is no --feature-gates.
func TestCapaAnnotatorFlags(t *testing.T) {
	g := NewWithT(t)
	flags := newCapaAnnotator().Flags()
	for name, value := range map[string]string{
		"metrics-bind-address": ":8080", "health-addr": ":9440", "namespace": "[]", "leader-elect": "false",
		"leader-elect-lease-duration": "2m0s", "aws-auth": "irsa", "annotation-families": "[upstream,openshift]", "max-pods": "off", "default-region": "",
	} {
		f := flags.Lookup(name)
		g.Expect(f).NotTo(BeNil(), name)
		g.Expect(f.DefValue).To(Equal(value), name)
	}
	for _, foreign := range []string{"feature-gates", "app-kinds", "promotion-hook-bind-address"} {
		g.Expect(flags.Lookup(foreign)).To(BeNil(), foreign)
	}
	var out, errs bytes.Buffer
	g.Expect(CapaAnnotator(t.Context(), []string{"--help"}, &out, &errs)).To(BeZero())
	g.Expect(out.String()).To(And(HavePrefix("capa-annotator annotates the MachineDeployments"), ContainSubstring("--leader-elect-lease-duration"), Not(ContainSubstring("promotion"))))
	out.Reset()
	g.Expect(CapaAnnotator(t.Context(), []string{"--version"}, &out, &errs)).To(BeZero())
	g.Expect(out.String()).To(HavePrefix("capa-annotator "))
}

func TestAnnotatorFlagsReachTheHub(t *testing.T) {
	g := NewWithT(t)
	s := parse(t, "--aws-auth=irsa", "--annotation-families=upstream", "--max-pods=fixed=58", "--default-region=eu-west-1")
	o, err := s.options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.Annotator).To(Equal(hub.Annotator{
		Families: []annotation.Family{annotation.Upstream}, Pods: capacity.PodsPolicy{Mode: capacity.PodsFixed, Fixed: 58}, DefaultRegion: "eu-west-1",
	}))
	g.Expect(s.annotator.parsedAuth).To(Equal(awsconfig.AuthIRSA))
	s = parse(t)
	_, err = s.options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.annotator.on).To(BeTrue())
	g.Expect(s.annotator.parsedAuth).To(Equal(awsconfig.AuthDefault), "the hub's own")
}

func TestAnnotatorMistakesAreNamed(t *testing.T) {
	g := NewWithT(t)
	_, err := parse(t, "--aws-auth=secret", "--annotation-families=aws", "--max-pods=fixed=-1", "--default-region=Ireland", "--app-kinds=MachineDeployment.cluster.x-k8s.io").options()
	g.Expect(err).To(MatchError(And(
		ContainSubstring(`--aws-auth: "secret" is not a way to authenticate to AWS`), ContainSubstring(`--annotation-families: "aws" is not a family`),
		ContainSubstring(`--max-pods: "fixed=-1"`), ContainSubstring(`--default-region: "Ireland" is not an AWS region`),
		ContainSubstring(`--app-kinds: "MachineDeployment.cluster.x-k8s.io" cannot be an application`))))
}

// FR4.2, FR4.3. Without IRSA it ends before the first connection, and the error names the
// missing variable.
func TestIRSAIsRequired(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/x")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "")
	t.Setenv("RUNTIME_NAMESPACE", "default")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x"}}],"clusters":[{"name":"x","cluster":{"server":"https://127.0.0.1:1"}}]}`), 0o600)).To(Succeed())
	var out, errs bytes.Buffer
	g.Expect(CapaAnnotator(t.Context(), []string{"--kubeconfig=" + kubeconfig, "--leader-elect"}, &out, &errs)).To(Equal(1))
	g.Expect(errs.String()).To(And(ContainSubstring("both AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE are required"), ContainSubstring("missing: AWS_WEB_IDENTITY_TOKEN_FILE")))
}

// Must show 6. Two replicas with IRSA against a management cluster and AWS: health,
// readiness and metrics answer, one writes, and the other takes over.
func TestCapaAnnotator(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const namespace, patience = "default", 2 * time.Minute
	g.SetDefaultEventuallyTimeout(patience)
	plane := management.Get(t)
	const role, token = "arn:aws:iam::111122223333:role/capa-annotator", "token-of-the-pod"
	cloud, err := aws.Start(aws.Options{Services: []aws.Service{ec2.New("eu-west-1"), sts.New(sts.Role{ARN: role, Token: token})}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(cloud.Stop)
	tokenFile := filepath.Join(t.TempDir(), "token")
	g.Expect(os.WriteFile(tokenFile, []byte(token), 0o600)).To(Succeed())
	const home, account = "capa-annotator-system", "capa-annotator"
	var env []string
	for name, value := range cloud.Env() {
		env = append(env, name+"="+value)
	}
	env = append(env, "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "AWS_ROLE_ARN="+role, "AWS_WEB_IDENTITY_TOKEN_FILE="+tokenFile, "RUNTIME_NAMESPACE="+home)

	// Its rights are those that ship.
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	admin, err := plane.Kubeconfig("")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(kubeconfig, admin, 0o600)).To(Succeed())
	apply := exec.Command(filepath.Join(controlplane.Root(), "bin", "envtest", "kubectl"), "--kubeconfig="+kubeconfig, "apply", "-k", filepath.Join(controlplane.Root(), "config", "capa-annotator"))
	said, err := apply.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(said))
	set, err := kubernetes.NewForConfig(plane.Config())
	g.Expect(err).NotTo(HaveOccurred())
	its, err := plane.UserKubeconfig("", "system:serviceaccount:"+home+":"+account, "system:serviceaccounts")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(kubeconfig, its, 0o600)).To(Succeed())

	c, err := client.New(plane.Config(), client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	declare := func(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetAPIVersion(apiVersion)
		u.SetKind(kind)
		u.SetNamespace(namespace)
		u.SetName(name)
		g.Expect(c.Create(t.Context(), u)).To(Succeed())
		return u
	}
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	deployment := func(name string) *unstructured.Unstructured {
		return declare("cluster.x-k8s.io/v1beta2", "MachineDeployment", name, map[string]any{
			"clusterName": "c", "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{
				"clusterName": "c", "bootstrap": map[string]any{"dataSecretName": "x"},
				"infrastructureRef": map[string]any{"apiGroup": infrastructure, "kind": "AWSMachineTemplate", "name": "t"},
			}},
		})
	}
	annotated := func(u *unstructured.Unstructured) {
		t.Helper()
		g.Eventually(func() map[string]string {
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(u), u)).To(Succeed())
			return u.GetAnnotations()
		}).Should(And(HaveKeyWithValue(annotation.CPU, "2"), HaveKeyWithValue(annotation.LegacyMemoryMb, "8192")))
	}
	declare(infrastructure+"/v1beta2", "AWSCluster", "c", map[string]any{"region": "eu-west-1"})
	declare("cluster.x-k8s.io/v1beta2", "Cluster", "c", map[string]any{"infrastructureRef": map[string]any{"apiGroup": infrastructure, "kind": "AWSCluster", "name": "c"}})
	declare(infrastructure+"/v1beta2", "AWSMachineTemplate", "t", map[string]any{"template": map[string]any{"spec": map[string]any{"instanceType": "m5.large"}}})
	first := deployment("first")

	lease := func() *coordinationv1.Lease {
		l, err := set.CoordinationV1().Leases(home).Get(t.Context(), hub.AnnotatorLeaseName, metav1.GetOptions{})
		if err != nil {
			return &coordinationv1.Lease{}
		}
		return l
	}
	holder := func() string { return ptr.Deref(lease().Spec.HolderIdentity, "") }
	one := startCapaAnnotator(t, env, kubeconfig)
	g.Eventually(holder).ShouldNot(BeEmpty())
	g.Expect(*lease().Spec.LeaseDurationSeconds).To(BeEquivalentTo(120))
	held := holder()
	g.Eventually(func() []string {
		list, err := set.CoreV1().Events(home).List(t.Context(), metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		var reasons []string
		for _, e := range list.Items {
			reasons = append(reasons, e.Reason)
		}
		return reasons
	}).Should(ContainElement("LeaderElection"), "who leads is told, with the rights that ship")
	// A standby tries to get the lease every two fifteenths of its own duration.
	two := startCapaAnnotator(t, env, kubeconfig, "--leader-elect-lease-duration=15s")
	annotated(first)
	for _, p := range []*replica{one, two} {
		g.Eventually(p.get("/healthz", p.health)).Should(Equal("ok"))
		g.Eventually(p.get("/readyz", p.health)).Should(Equal("ok"))
	}
	written := `capstan_annotator_patches_total{kind="MachineDeployment",outcome="written"}`
	g.Eventually(one.get("/metrics", one.metrics)).Should(ContainSubstring(written + " 1"))
	g.Eventually(two.get("/metrics", two.metrics)).Should(And(ContainSubstring("leader_election_master_status"), Not(ContainSubstring(written))))
	g.Eventually(one.logged).Should(MatchRegexp(`"annotated".*"namespace":"default","name":"first"`))
	for _, r := range cloud.Records(aws.Match{Service: "ec2"}) {
		g.Expect(r.Caller).To(ContainSubstring("assumed-role/capa-annotator/"), "IRSA")
	}

	g.Expect(one.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	g.Eventually(one.ended).Should(BeClosed())
	g.Expect(one.code).To(BeZero())
	g.Eventually(holder).Should(And(Not(BeEmpty()), Not(Equal(held))))
	annotated(deployment("second"))
	g.Eventually(two.get("/metrics", two.metrics)).Should(ContainSubstring(written + " 1"))
}

// replica is a process that also serves metrics.
type replica struct {
	*process
	metrics string
}

func startCapaAnnotator(t *testing.T, env []string, kubeconfig string, args ...string) *replica {
	t.Helper()
	g := NewWithT(t)
	metrics := freeAddress(g)
	p := startAs(t, asCapaAnnotator, env, append(args, "--kubeconfig="+kubeconfig, "--metrics-bind-address="+metrics, "--leader-elect")...)
	return &replica{p, metrics}
}

// get returns the body of a replica's page, or the error.
func (r *replica) get(path, from string) func() string {
	return func() string {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+from+path, nil)
		if err != nil {
			return err.Error()
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			return fmt.Sprint(response.Status, err)
		}
		return strings.TrimSpace(string(body))
	}
}
