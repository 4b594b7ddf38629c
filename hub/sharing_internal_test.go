package hub

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/capstan-hub/capstan/hub/claim"
)

// TestSharingReports: an Event, the dashboard and the metric say what keeps a hub from acting, and that it is over.
func TestSharingReports(t *testing.T) {
	g := NewWithT(t)
	recorder := events.NewFakeRecorder(1)
	s, err := newSharing(Options{
		LeaderElect: true, Namespaces: []string{"team-a"}, Eventing: Eventing{Name: "east"}, LeaderElectionLease: time.Minute, Registerer: prometheus.NewRegistry(),
	})
	g.Expect(err).NotTo(HaveOccurred())
	s.recorder, s.lock = recorder, &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "capstan-system", Name: "capstan-hub-east"}}

	s.report(&claim.Conflict{Namespace: "team-a", Hub: "west", Lease: "capstan-system/capstan-hub-west"})
	g.Expect(<-recorder.Events).To(ContainSubstring("Warning NamespaceConflict hub east: namespace team-a is served by hub west"))
	g.Expect(s.problem()).To(ContainSubstring("served by hub west"))
	g.Expect(testutil.ToFloat64(s.conflict)).To(BeEquivalentTo(1))

	s.report(nil)
	g.Expect(<-recorder.Events).To(ContainSubstring("Normal NamespacesClaimed"))
	g.Expect(s.problem()).To(BeEmpty())
	g.Expect(testutil.ToFloat64(s.conflict)).To(BeZero())

	s.report(&claim.Conflict{Namespace: "team-a", Hub: "west", Lease: "capstan-system/capstan-hub-west"})
	g.Expect(<-recorder.Events).To(ContainSubstring("Warning NamespaceConflict"))
	s.report(&claim.Denied{In: "capstan-system", Err: errors.New("forbidden")})
	g.Expect(<-recorder.Events).To(ContainSubstring("Warning NamespacesUnknown hub east: whether another hub serves its namespaces is not known"))
	g.Expect(s.problem()).To(ContainSubstring("until it may list Leases in namespace capstan-system: forbidden"))
	g.Expect(testutil.ToFloat64(s.conflict)).To(BeZero(), "it is not known")
}
