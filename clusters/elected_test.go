package clusters_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// A Manager runs on every replica. Before it leads it has the management cluster and
// nothing else: it knows no cluster objects and writes nothing. Then it does both.
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

// A Manager without Options.Elected takes part in the election.
func TestNeedsTheLeaderElectionItself(t *testing.T) {
	NewWithT(t).Expect(newWorld(t, nil).manager.NeedLeaderElection()).To(BeTrue())
}
