package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/ports"
	"github.com/capstan-hub/capstan/playground/process"
)

// hubProcess is a running hub.
type hubProcess struct {
	*process.Process
	health string
	// log is its log file, and clones the directory for its clones.
	log, clones string
}

// direct are the flags of a hub that connects to the clusters and Gitea directly. Without them it
// does not connect to an address of loopback.
var direct = []string{"--allow-loopback-clusters", "--allow-loopback-git"}

// startHub starts the released program with flags that say how it connects, and does not wait
// until it is ready.
func (w *world) startHub(flags ...string) {
	w.Helper()
	health, err := ports.Free()
	w.g.Expect(err).NotTo(HaveOccurred())
	// A certificate of the ServiceAccount's user has the same rights as its token.
	kubeconfig, err := w.management.UserKubeconfig("", "system:serviceaccount:"+systemNamespace+":capstan-hub",
		"system:serviceaccounts", "system:serviceaccounts:"+systemNamespace)
	w.g.Expect(err).NotTo(HaveOccurred())
	temporary := filepath.Join(w.dir, "tmp")
	const mode = 0o700
	w.g.Expect(os.MkdirAll(temporary, mode)).To(Succeed())
	log := filepath.Join(w.dir, "hub.log")
	p, err := process.Start(process.Options{
		Path: os.Args[0],
		Args: append([]string{
			"hub", "--kubeconfig=" + w.file("hub.kubeconfig", kubeconfig), "--metrics-bind-address=0", "--promotion-hook-bind-address=0", "--dashboard-bind-address=0",
			"--health-addr=" + health, "--pull-request-deadline=1m", "--log-level=debug", "--log-encoding=console",
		}, flags...),
		Env: []string{asCapstan + "=1", "TMPDIR=" + temporary},
		Dir: w.dir, Log: log,
	})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.hub = &hubProcess{Process: p, health: health, log: log, clones: temporary}
}

// hubReady waits until /readyz of the hub answers 200.
func (w *world) hubReady() {
	w.Helper()
	w.g.Eventually(func() error {
		if err := w.hub.Err(); err != nil {
			return StopTrying("the hub ended").Wrap(err)
		}
		response, err := http.Get("http://" + w.hub.health + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz answers %s", response.Status)
		}
		return nil
	}).Should(Succeed())
}

// endHub kills a hub that a failed part left running.
func (w *world) endHub() {
	if w.hub != nil {
		_ = w.hub.Kill()
	}
}

// stopHub stops the hub gracefully and checks its whole log. It waits until the hub is ready: a
// signal ends a process that has just started and does not handle it yet.
func (w *world) stopHub() {
	w.Helper()
	w.hubReady()
	w.g.Expect(w.hub.Stop()).To(Succeed())
	w.g.Expect(w.hub.ExitCode()).To(BeZero(), w.hub.Tail())
	log, err := os.ReadFile(w.hub.log)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(string(log)).NotTo(Or(ContainSubstring("DATA RACE"), ContainSubstring("panic:")))
	for _, secret := range []string{w.robot.Token, w.robot.Password} {
		w.g.Expect(string(log)).NotTo(ContainSubstring(secret))
	}
	left, err := os.ReadDir(w.hub.clones)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(left).To(BeEmpty(), "the hub removes its clones, and those of a killed hub")
}
