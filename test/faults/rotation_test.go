package faults

import (
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/simulated"
)

// rotations of every cluster's credentials; as many as CAPA makes of an EKS token in
// more than three hours.
const rotations = 20

// TestRotationOfAll: while revisions change, the credentials of all clusters are
// replaced repeatedly. Nothing is listed again, no revision is missed, and all goroutines
// end.
func TestRotationOfAll(t *testing.T) {
	for name, auth := range map[string]simulated.Auth{"tokens": simulated.AuthToken, "certificates": simulated.AuthCertificate} {
		t.Run(name, func(t *testing.T) {
			leaks.AtEnd(t) // The test is not parallel: no other hub runs.
			w := newWorld(t, simulated.Options{Clusters: 5, Applications: 2, Auth: auth})
			w.pipelines()
			for _, c := range w.clusters { // The second informer of each.
				w.kustomization(c)
			}
			w.start()
			w.allRun("1.0.0", w.clusters...)
			for _, c := range w.clusters {
				w.g.Eventually(func() int { return int(c.Counts().OpenWatches) }).Should(Equal(2), c.Name())
			}
			lists, had := w.lists(), 0
			for n := range rotations {
				for _, c := range w.clusters {
					if auth == simulated.AuthToken {
						c.RotateToken()
					} else {
						c.RotateCertificate()
					}
					w.renew(c)
					c.Deploy(0, revision(n))
				}
				w.allRun(revision(n), w.clusters...)
				if n == 1 {
					had = runtime.NumGoroutine()
				}
			}
			w.g.Expect(w.lists()).To(Equal(lists), "lists at the servers")
			// Watches end after a rotation as they do every few minutes, and must
			// resume with the new credentials, from where they were.
			for _, c := range w.clusters {
				c.EndWatches()
				c.Deploy(0, "3.0.0")
			}
			w.allRun("3.0.0", w.clusters...)
			w.g.Expect(w.lists()).To(Equal(lists), "lists at the servers")
			for _, c := range w.clusters {
				w.reaches(c, capstanv1.ConnectionReady)
				w.g.Eventually(func() int { return int(c.Counts().OpenWatches) }).Should(Equal(2), c.Name())
			}
			w.g.Eventually(runtime.NumGoroutine).Should(BeNumerically("<=", had+len(w.clusters)), "goroutines are flat")
		})
	}
}

// TestRotationAfterTheFact: a token expires before the next one is in the Secret. Calls
// wait, and nothing is lost or listed.
func TestRotationAfterTheFact(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 1, Applications: 1})
	w.pipelines()
	c := w.clusters[0]
	w.start()
	w.allRun("1.0.0", c)
	c.Deploy(0, "1.0.1") // A watch that ends within a second of its begin, and told nothing, is listed anew.
	w.allRun("1.0.1", c)
	lists := w.lists()
	c.RotateToken()
	c.EndWatches()
	w.reaches(c, capstanv1.ConnectionAuthFailed)
	c.Deploy(0, "1.1.0")
	w.renew(c)
	w.allRun("1.1.0", c)
	w.g.Expect(w.lists()).To(Equal(lists), "the watch resumed")
}

// TestStormOf401: all clusters reject their credentials at the same time. The servers do
// not get many requests, and one write to each Secret fixes all.
func TestStormOf401(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 10, Applications: 1})
	w.pipelines()
	w.start()
	w.allRun("1.0.0", w.clusters...)
	for _, c := range w.clusters {
		c.RotateToken()
		c.EndWatches()
	}
	for _, c := range w.clusters {
		w.reaches(c, capstanv1.ConnectionAuthFailed)
	}
	before, began := w.clusters[0].Counts().Unauthorized, time.Now()
	w.staleAt(w.clusters[0], "1.0.0")
	w.g.Expect(w.clusters[0].Counts().Unauthorized-before).To(BeNumerically("<", 20+4*time.Since(began).Seconds()), "401 is not answered with more calls")
	for _, c := range w.clusters {
		c.Deploy(0, "1.1.0")
		w.renew(c)
	}
	w.allRun("1.1.0", w.clusters...)
}

// TestServerMoves: the Secret names another address and CA of the same cluster. The old
// connection is used until the new one is synced: no target becomes stale.
func TestServerMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 1, Applications: 1})
	w.pipelines()
	c := w.clusters[0]
	w.start()
	w.allRun("1.0.0", c)
	for n := range 3 {
		c.RotateServer()
		w.renew(c)
		c.Deploy(0, revision(n))
		w.allRun(revision(n), c)
		w.reaches(c, capstanv1.ConnectionReady)
		target, err := w.target(c.Name(), c)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(target.Stale).To(BeFalse())
		c.CloseOld()
		c.Deploy(0, revision(n)+"-next")
		w.allRun(revision(n)+"-next", c)
	}
}

// TestAnotherClusterAtTheAddress: the cluster was rebuilt behind the same server. The
// observations of the old cluster are not used for the new one.
func TestAnotherClusterAtTheAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 1, Applications: 1})
	w.pipelines()
	c := w.clusters[0]
	w.start()
	w.allRun("1.0.0", c)
	c.Deploy(0, "1.1.0")
	w.allRun("1.1.0", c)
	c.Rebuild()
	w.allRun("1.0.0", c)
}

// TestWrongCA: a Secret with the CA of another cluster. In a new Secret, the cluster is
// Unreachable with a message. In a changed Secret, the working connection stays in use.
func TestWrongCA(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 2, Applications: 1})
	w.pipelines()
	c, other := w.clusters[0], w.clusters[1]
	mistaken := func(g Gomega) []byte {
		config, err := clientcmd.Load(c.Kubeconfig())
		g.Expect(err).NotTo(HaveOccurred())
		foreign, err := clientcmd.Load(other.Kubeconfig())
		g.Expect(err).NotTo(HaveOccurred())
		for name := range config.Clusters {
			config.Clusters[name].CertificateAuthorityData = foreign.Clusters[foreign.Contexts[foreign.CurrentContext].Cluster].CertificateAuthorityData
		}
		raw, err := clientcmd.Write(*config)
		g.Expect(err).NotTo(HaveOccurred())
		return raw
	}
	s := w.secret(c)
	s.Data["value"] = mistaken(w.g)
	w.g.Expect(admin.Update(t.Context(), s)).To(Succeed())
	w.start()
	w.allRun("1.0.0", other)
	w.g.Expect(w.reaches(c, capstanv1.ConnectionUnreachable).Message).To(ContainSubstring("certificate"))
	w.renew(c)
	w.allRun("1.0.0", c)
	w.reaches(c, capstanv1.ConnectionReady)

	s = w.secret(c)
	s.Data["value"] = mistaken(w.g)
	w.g.Expect(admin.Update(t.Context(), s)).To(Succeed())
	w.g.Expect(w.reaches(c, capstanv1.ConnectionDegraded).Reason).To(Equal(clusters.ReasonNewServerFailing))
	c.Deploy(0, "1.1.0")
	w.allRun("1.1.0", c)
	w.renew(c)
	w.reaches(c, capstanv1.ConnectionReady)
}
