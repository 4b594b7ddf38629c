package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// Users run each verb of the command line, with only the ClusterRoles that docs/cli.md names and under the policies of
// the chart. The hub does what they request.
func TestEveryVerbMovesTheHub(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("cluster-api", "cluster-controller", "helm-controller")})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = plane.Stop() })
	scheme := hub.Scheme()
	g.Expect(helmv2.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	clone, typed := newShell(t, plane)
	typed("kubectl create namespace apps; kubectl create namespace dev; kubectl create namespace prod")
	typed("helm install capstan config/chart --namespace capstan-system --create-namespace --set 'pipelineNamespaces={apps}'")
	for user, roles := range map[string]string{"vera": "viewer", "anne": "viewer approver", "olga": "viewer operator", "tina": "tenant", "petra": "viewer promoter"} {
		for role := range strings.FieldsSeq(roles) {
			typed("kubectl create rolebinding -n apps " + user + "-" + role + " --clusterrole=capstan-" + role + " --user=" + user)
		}
	}
	deploy(g, c, "dev", "1.1.0")
	deploy(g, c, "prod", "1.0.0")
	g.Expect(os.WriteFile(filepath.Join(clone, "pipeline.yaml"), []byte(strings.Replace(promotes, "promotion: {", "promotion: {manual: true, ", 1)), 0o600)).To(Succeed())
	typed("kubectl apply -f pipeline.yaml")
	user, err := plane.UserConfig(hubUser, "system:serviceaccounts", "system:authenticated")
	g.Expect(err).NotTo(HaveOccurred())
	runHubWith(t, user, nil, hub.Options{Logger: logr.Discard()})

	// as runs a command as a user.
	as := func(user, command string) string { return typed("capstan " + command + " -n apps --as=" + user) }
	// newest waits for the newest Promotion to have a revision and a phase.
	newest := func(revision string, phase capstanv1.PromotionPhase) *capstanv1.Promotion {
		t.Helper()
		var last *capstanv1.Promotion
		g.Eventually(func(g Gomega) {
			var all capstanv1.PromotionList
			g.Expect(c.List(t.Context(), &all)).To(Succeed())
			g.Expect(all.Items).NotTo(BeEmpty())
			last = &all.Items[0]
			for i := range all.Items {
				if all.Items[i].Spec.Number > last.Spec.Number {
					last = &all.Items[i]
				}
			}
			g.Expect(last.Spec.Revision+" "+string(last.Status.Phase)).To(Equal(revision+" "+string(phase)), last.Status.Message)
		}).WithTimeout(time.Minute).Should(Succeed())
		return last
	}

	waiting := newest("1.1.0", capstanv1.PhaseAwaitingApproval)
	g.Expect(as("vera", "status")).To(ContainSubstring("1.1.0"))
	g.Expect(as("vera", "explain pipeline shop")).To(ContainSubstring("1.1.0"))
	g.Expect(refused(t, clone, "capstan approve shop -n apps --as=vera")).To(ContainSubstring("capstan-approver"), "the role that vera needs")
	g.Expect(refused(t, clone, "capstan status -n apps --as=vera --fail-on=approval")).NotTo(BeEmpty())

	as("tina", "suspend shop")
	g.Eventually(func() string { return as("vera", "explain pipeline shop") }).Should(ContainSubstring("suspended"))
	as("tina", "resume shop")
	g.Eventually(func() string { return as("vera", "explain pipeline shop") }).ShouldNot(ContainSubstring("suspended"))

	as("anne", `reject shop prod --comment="wait for the audit"`)
	g.Expect(newest("1.1.0", capstanv1.PhaseRejected).Name).To(Equal(waiting.Name))
	as("olga", "retry shop prod")
	newest("1.1.0", capstanv1.PhaseAwaitingApproval)
	as("anne", "approve shop prod --revision=1.1.0")
	approved := newest("1.1.0", capstanv1.PhaseAwaitingRollout)
	g.Expect(approved.Spec.Approval.By).To(Equal("anne"))
	redeploy(g, c, "prod", "1.1.0")
	newest("1.1.0", capstanv1.PhaseSucceeded)

	redeploy(g, c, "dev", "1.2.0")
	newest("1.2.0", capstanv1.PhaseAwaitingApproval)
	as("anne", "approve shop")
	newest("1.2.0", capstanv1.PhaseAwaitingRollout)
	redeploy(g, c, "prod", "1.2.0")
	newest("1.2.0", capstanv1.PhaseSucceeded)

	as("petra", `rollback shop prod --reason="errors since 1.2.0"`)
	newest("1.1.0", capstanv1.PhaseAwaitingApproval)
	as("anne", "approve shop prod")
	newest("1.1.0", capstanv1.PhaseAwaitingRollout)
	redeploy(g, c, "prod", "1.1.0")
	newest("1.1.0", capstanv1.PhaseSucceeded)
	as("petra", `promote shop prod --revision=1.2.0 --reason="it was not the cause"`)
	g.Expect(newest("1.2.0", capstanv1.PhaseAwaitingApproval).Spec.Request).NotTo(BeNil())
}

// refused runs a command that must fail, and returns what it says.
func refused(t *testing.T, clone string, command string) string {
	t.Helper()
	g := NewWithT(t)
	shell := exec.CommandContext(t.Context(), "bash", "-ec", command)
	shell.Dir = clone
	shell.Env = append(os.Environ(), "HOME="+clone, "KUBECONFIG="+filepath.Join(clone, "kubeconfig"), "PATH="+programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	g.Expect(err).To(HaveOccurred(), "%s", out)
	return string(out)
}
