package cli

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/ports"
)

// asProgram is the variable that makes this test's binary run the program that it names.
const (
	asProgram       = "CAPSTAN_TEST_AS_PROGRAM"
	asCapstan       = "capstan"
	asCapaAnnotator = "capa-annotator"
)

// management is the management cluster of the programs.
var management = controlplane.Share("capstan", "cluster-api", "cluster-api-provider-aws", "cluster-controller", "helm-controller")

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case asCapstan:
		os.Exit(Main(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr))
	case asCapaAnnotator:
		os.Exit(CapaAnnotator(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(controlplane.StopShared(m.Run(), os.Stderr, management))
}

// process is a running program.
type process struct {
	cmd    *exec.Cmd
	health string
	ended  chan struct{} // closed when it has; then code is set
	code   int

	mu  sync.Mutex // guards log
	log []string
}

func start(t *testing.T, kubeconfig string, args ...string) *process {
	t.Helper()
	return startAs(t, asCapstan, nil, append([]string{hubCommand, "--kubeconfig=" + kubeconfig, "--metrics-bind-address=0", "--promotion-hook-bind-address=127.0.0.1:0", "--api-bind-address=127.0.0.1:0", "--dashboard-bind-address=127.0.0.1:0"}, args...)...)
}

// freeAddress returns a free loopback address.
func freeAddress(g *WithT) string {
	address, err := ports.Free()
	g.Expect(err).NotTo(HaveOccurred())
	return address
}

// startAs starts one of the programs, with additional variables of the environment.
func startAs(t *testing.T, program string, env []string, args ...string) *process {
	t.Helper()
	g := NewWithT(t)
	p := &process{health: freeAddress(g), ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], append(args, "--health-addr="+p.health)...)
	p.cmd.Env = append(append(os.Environ(), env...), asProgram+"="+program)
	stderr, err := p.cmd.StderrPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.cmd.Start()).To(Succeed())
	go func() {
		defer close(p.ended)
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			p.mu.Lock()
			p.log = append(p.log, scanner.Text())
			p.mu.Unlock()
		}
		_ = p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s:\n%s", p.cmd, p.logged())
		}
	})
	return p
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}

func (p *process) ready() error {
	response, err := http.Get("http://" + p.health + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", response.Status)
	}
	return nil
}

// TestProgram runs two replicas against a real API server, from start to end.
func TestProgram(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	plane := management.Get(t)
	raw, err := plane.Kubeconfig("")
	g.Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(os.WriteFile(kubeconfig, raw, 0o600)).To(Succeed())
	set, err := kubernetes.NewForConfig(plane.Config())
	g.Expect(err).NotTo(HaveOccurred())
	const namespace, patience = "default", 2 * time.Minute
	holder := func() string {
		lease, err := set.CoordinationV1().Leases(namespace).Get(t.Context(), hub.LeaseName, metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return ptr.Deref(lease.Spec.HolderIdentity, "")
	}

	t.Run("ready, and stopped by SIGTERM", func(t *testing.T) {
		g := NewWithT(t)
		p := start(t, kubeconfig)
		g.Eventually(p.ready, patience, 50*time.Millisecond).Should(Succeed())
		g.Expect(p.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		g.Eventually(p.ended, patience).Should(BeClosed())
		g.Expect(p.code).To(BeZero())
	})

	t.Run("a standby takes over", func(t *testing.T) {
		g := NewWithT(t)
		args := []string{"--leader-elect", "--leader-elect-lease-duration=15s", "--namespace=" + namespace}
		first := start(t, kubeconfig, args...)
		g.Eventually(holder, patience, 50*time.Millisecond).ShouldNot(BeEmpty())
		leader := holder()

		second := start(t, kubeconfig, args...)
		g.Eventually(second.ready, patience, 50*time.Millisecond).Should(Succeed(), "a standby is ready, too")
		g.Consistently(holder, 2*time.Second, 100*time.Millisecond).Should(Equal(leader))

		g.Expect(first.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		g.Eventually(first.ended, patience).Should(BeClosed())
		g.Expect(first.code).To(BeZero())
		g.Eventually(holder, patience, 50*time.Millisecond).Should(And(Not(BeEmpty()), Not(Equal(leader))))

		// Losing the lease ends the process: somebody else acts now.
		g.Eventually(func() error {
			lease, err := set.CoordinationV1().Leases(namespace).Get(t.Context(), hub.LeaseName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			take(lease)
			_, err = set.CoordinationV1().Leases(namespace).Update(t.Context(), lease, metav1.UpdateOptions{})
			return err
		}, patience, 50*time.Millisecond).Should(Succeed())
		g.Eventually(second.ended, patience).Should(BeClosed())
		g.Expect(second.code).NotTo(BeZero())
		g.Expect(second.logged()).To(ContainSubstring("leader election lost"))
	})
}

// take sets another holder of the lease, with a long duration.
func take(lease *coordinationv1.Lease) {
	lease.Spec.HolderIdentity = ptr.To("somebody-else")
	lease.Spec.LeaseDurationSeconds = ptr.To[int32](3600)
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
}
