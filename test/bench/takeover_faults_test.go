package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/controlplane"
)

// formerLeaderEnds is how soon a leader ends after a pause that was longer than its lease.
const formerLeaderEnds = 2 * time.Second

// TestReplicasUnderFaults: whatever happens to the network, to a replica or to the API server, one hub at a time
// leads, but for the moment until a process that was paused has read the lease, and no revision is promoted twice.
func TestReplicasUnderFaults(t *testing.T) {
	lease := max(leaseOf(), 15*time.Second) // The third of it after the deadline of a renewal is longer than a process needs to end.
	r := newReplicas(t, count(10, 200), count(1, 5), lease)

	t.Run("the leader is cut off from the API server and observes its clusters", func(t *testing.T) {
		r := r.in(t)
		proxy, err := controlplane.NewProxy(management.Config().Host)
		r.g.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = proxy.Close() }()
		raw, err := management.Kubeconfig(proxy.URL())
		r.g.Expect(err).NotTo(HaveOccurred())
		through := filepath.Join(t.TempDir(), "kubeconfig")
		r.g.Expect(os.WriteFile(through, raw, 0o600)).To(Succeed())
		leader := startHubOf(t, through, r.namespace, append(r.flags, "--namespace="+r.namespace)...).leads().ready()
		standby := r.replica().ready()
		r.connected()
		var ended, led time.Time
		p := r.during(func() {
			proxy.Set(controlplane.Swallow)
			cut := time.Now()
			<-leader.process.Ended()
			ended = time.Now()
			r.g.Expect(ended.Sub(cut)).To(BeNumerically("<", lease), "a leader that cannot renew its lease ends before another may take it")
			standby.leads()
			led = time.Now()
			pause(time.Until(cut.Add(2 * lease)))
			proxy.Set(controlplane.Pass)
		})
		leader.process = nil // It ended by itself, as it should.
		r.g.Expect(led).To(BeTemporally(">", ended))
		r.g.Expect(p.stale).To(BeEmpty())
		report("the leader is cut off from the API server: a change is shown after, at most", p.worst.Seconds(), lease.Seconds()+5, "s")
		r.promotedOnce()
	})

	t.Run("the leader is paused, and continues when another one leads", func(t *testing.T) {
		r := r.in(t)
		leader, standby := r.replica().leads().ready(), r.replica().ready()
		r.connected()
		p := r.during(func() {
			leader.signal(syscall.SIGSTOP)
			standby.leads()
			leader.signal(syscall.SIGCONT)
			began := time.Now()
			<-leader.process.Ended()
			report("a leader that was paused for longer than its lease ends after it continues", time.Since(began).Seconds(), formerLeaderEnds.Seconds(), "s")
		})
		leader.process = nil
		r.g.Expect(standby.isLeader()).To(BeTrue())
		r.g.Expect(p.stale).To(BeEmpty())
		report("the leader is paused: a change is shown after, at most", p.worst.Seconds(), lease.Seconds()+5, "s")
		r.promotedOnce()
	})

	t.Run("a standby is paused, and leads when it continues", func(t *testing.T) {
		r := r.in(t)
		leader := r.replica().leads().ready()
		standby := r.replica().ready()
		r.connected()
		p := r.during(func() {
			standby.signal(syscall.SIGSTOP)
			pause(2 * lease) // The leader goes on.
			leader.kill()
			pause(lease + lease/2)
			r.g.Expect(r.unshown()).NotTo(BeZero(), "no hub leads")
			standby.signal(syscall.SIGCONT)
			standby.leads()
		})
		// Its watches were behind by the whole time. It waits for the lease once more: it finds that its holder renewed
		// it meanwhile.
		report("a standby that was paused takes over: a change is shown after, at most", p.worst.Seconds(), 2.5*lease.Seconds()+5, "s")
		r.promotedOnce()
	})

	t.Run("the API server is paused", func(t *testing.T) {
		r := r.in(t)
		first, second := r.replica().leads().ready(), r.replica().ready()
		r.connected()
		paused := 5 * lease / 6 // More than the deadline of a renewal, and less than the lease.
		p := r.during(func() {
			server := apiServer(t)
			r.g.Expect(syscall.Kill(server, syscall.SIGSTOP)).To(Succeed())
			pause(paused)
			r.g.Expect(syscall.Kill(server, syscall.SIGCONT)).To(Succeed())
			r.g.Eventually(first.process.Ended()).Should(BeClosed(), "it could not renew its lease")
			first.process = nil
			first = r.replica() // As its Deployment does.
			r.g.Eventually(func() bool { return first.isLeader() != second.isLeader() }).WithPolling(100 * time.Millisecond).Should(BeTrue())
		})
		r.g.Expect(p.stale).To(BeEmpty())
		report(fmt.Sprintf("the API server is paused for %s: a change is shown after, at most", paused), p.worst.Seconds(), paused.Seconds()+10, "s")
		r.promotedOnce()
	})
}

// in returns the replicas for a subtest, which ends the hubs that it starts.
func (r *replicas) in(t *testing.T) *replicas {
	one := *r
	s := &scene{TB: t, g: NewWithT(t), namespace: r.namespace, clusters: r.clusters}
	one.scene = s
	return &one
}

// unshown is the number of changes that no status shows yet.
func (r *replicas) unshown() int {
	r.traffic.mu.Lock()
	defer r.traffic.mu.Unlock()
	return len(r.traffic.pending)
}

// signal sends a signal to the process of the hub.
func (h *hubProcess) signal(s syscall.Signal) {
	h.g.Expect(syscall.Kill(h.process.Pid(), s)).To(Succeed())
}

// apiServer returns the id of the process of the management cluster's API server: the first child of this process
// with its name.
func apiServer(t *testing.T) int {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/stat")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, path := range found {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // It has ended.
		}
		var id, parent int
		var state string
		begin, end := strings.IndexByte(string(raw), '('), strings.LastIndexByte(string(raw), ')')
		if begin < 0 || end < begin || string(raw[begin+1:end]) != "kube-apiserver" {
			continue
		}
		if _, err := fmt.Sscan(string(raw[:begin]), &id); err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(raw[end+1:]), &state, &parent); err == nil && parent == os.Getpid() {
			return id
		}
	}
	t.Fatal("the API server has no process here")
	return 0
}
