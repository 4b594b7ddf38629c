package process_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/process"
)

const patience = 20 * time.Second

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(patience)
	os.Exit(leaks.MainAll(m.Run))
}

// sh runs a script.
func sh(t *testing.T, script string, env ...string) (*process.Process, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	p, err := process.Start(process.Options{Path: "/bin/sh", Args: []string{"-c", script}, Env: env, Log: log})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = p.Kill() })
	return p, log
}

func TestStopSendsSIGTERM(t *testing.T) {
	g := NewWithT(t)
	p, log := sh(t, `trap 'echo asked; exit 0' TERM; echo "$GREETING"; while :; do sleep 0.05; done`, "GREETING=up")
	g.Eventually(p.Tail).Should(Equal("up"))
	g.Expect(p.Err()).To(Succeed())
	g.Expect(p.Stop()).To(Succeed())
	g.Expect(p.Ended()).To(BeClosed())
	g.Expect(os.ReadFile(log)).To(BeEquivalentTo("up\nasked\n"))
	g.Expect(p.Stop()).To(Succeed(), "a second time there is nothing to do")
}

func TestKillEndsTheChildren(t *testing.T) {
	g := NewWithT(t)
	p, _ := sh(t, `trap '' TERM; sleep 600 & echo $!; wait`)
	g.Eventually(p.Tail).ShouldNot(BeEmpty())
	child, err := strconv.Atoi(p.Tail())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Kill()).To(Succeed())
	g.Eventually(func() bool { return runs(child) }).Should(BeFalse())
}

// runs returns whether the process exists and is not a zombie.
func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestUnexpectedEndIsAnError(t *testing.T) {
	g := NewWithT(t)
	p, _ := sh(t, `echo "port in use" >&2; exit 3`)
	g.Eventually(p.Ended()).Should(BeClosed())
	said := MatchError(And(ContainSubstring("sh ended by itself (exit status 3)"), ContainSubstring("port in use")))
	g.Expect(p.Err()).To(said)
	g.Expect(p.Stop()).To(said)
}

func TestNotBuilt(t *testing.T) {
	g := NewWithT(t)
	_, err := process.Start(process.Options{Path: filepath.Join(t.TempDir(), "gitea"), Log: filepath.Join(t.TempDir(), "log")})
	g.Expect(err).To(MatchError(process.ErrNotBuilt))
}
