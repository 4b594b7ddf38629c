package clusters_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// A Manager runs on every replica. Before it leads it has the management cluster and
// nothing else: it resolves no reference and writes nothing. Then it does both.
func TestConnectsToOthersWhenItLeads(t *testing.T) {
	t.Parallel()
	elected := make(chan struct{})
	w := newWorld(t, func(o *clusters.Options) { o.Elected = elected })
	w.g.Expect(w.manager.NeedLeaderElection()).To(BeFalse())
	w.createCluster("prod")
	w.start()
	w.g.Eventually(func() capstanv1.ConnectionState { s, _ := w.manager.Snapshot(clusters.LocalName); return s.State }).Should(Equal(capstanv1.ConnectionReady))
	ref, name := w.ref("Cluster", "prod"), w.clusterName("prod")
	w.manager.Demand(name, "pipeline")
	w.g.Consistently(func(g Gomega) {
		_, err := w.manager.Resolve(ref)
		g.Expect(err).To(MatchError(clusters.ErrNotSynced))
		_, err = w.shown("cluster.prod")
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
	}, time.Second).Should(Succeed())

	close(elected)
	w.g.Eventually(func() error { _, err := w.manager.Resolve(ref); return err }).Should(Succeed())
	w.shows("cluster.prod", capstanv1.ConnectionAuthFailed, clusters.ReasonSecretMissing)
}

// The other parts of a manager may start later than the election ends, as without a lease to wait for.
func TestLeadsBeforeItStarts(t *testing.T) {
	t.Parallel()
	elected := make(chan struct{})
	close(elected)
	w := newWorld(t, func(o *clusters.Options) { o.Elected = elected })
	w.createCluster("prod")
	w.start()
	w.g.Eventually(func() error { _, err := w.manager.Resolve(w.ref("Cluster", "prod")); return err }).Should(Succeed())
	w.manager.Demand(w.clusterName("prod"), "pipeline")
	w.shows("cluster.prod", capstanv1.ConnectionAuthFailed, clusters.ReasonSecretMissing)
}

// A Manager without Options.Elected takes part in the election.
func TestNeedsTheLeaderElectionItself(t *testing.T) {
	NewWithT(t).Expect(newWorld(t, nil).manager.NeedLeaderElection()).To(BeTrue())
}

// Objects has every cluster object, without a demand and on a replica that does not lead. It does not lose one while the
// replica begins to lead.
func TestObjects(t *testing.T) {
	t.Parallel()
	elected := make(chan struct{})
	w := newWorld(t, func(o *clusters.Options) { o.Elected = elected })
	w.g.Expect(w.manager.Objects()).To(BeEmpty())
	prod := w.createCluster("prod")
	w.selfManaged("prod", true)
	w.start()
	cluster := clusters.Object{
		Ref: w.ref("Cluster", "prod"), Labels: map[string]string{clusters.SelfManagedLabel: "true"}, Created: prod.GetCreationTimestamp().UTC(),
	}
	w.g.Eventually(w.manager.Objects).Should(ConsistOf(cluster))
	dev := w.createCluster("dev")
	all := []clusters.Object{{Ref: w.ref("Cluster", "dev"), Created: dev.GetCreationTimestamp().UTC()}, cluster}
	w.g.Eventually(w.manager.Objects).Should(Equal(all))
	w.g.Expect(w.manager.Snapshots()).To(HaveLen(1), "a standby demands no cluster, not even a self-managed one")

	close(elected)
	w.g.Eventually(func() error {
		w.g.Expect(w.manager.Objects()).To(Equal(all))
		return w.manager.WaitForObjects(shortly(t))
	}).Should(Succeed())
	w.g.Expect(w.hub.Delete(t.Context(), dev)).To(Succeed())
	w.g.Eventually(w.manager.Objects).Should(Equal(all[1:]))
	w.g.Eventually(w.manager.Snapshots).Should(HaveLen(2), "the leader demands it")
}

// A kind that is not installed has no objects and is no error.
func TestObjectsOfKindsThatAreNotInstalled(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, workload, func(o *clusters.Options) { o.Elected = make(chan struct{}) })
	w.start()
	w.g.Consistently(func(g Gomega) { g.Expect(w.manager.Objects()).To(BeEmpty()) }, time.Second).Should(Succeed())
}

// shortly returns a context that ends soon.
func shortly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
