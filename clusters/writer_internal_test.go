package clusters

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// Of many objects, those that show a problem are written first.
func TestProblemsAreWrittenFirst(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	w := newWriter(nil, Options{Clock: clock}, logr.Discard())
	for name, state := range map[multicluster.ClusterName]capstanv1.ConnectionState{
		"a": capstanv1.ConnectionReady, "b": capstanv1.ConnectionReady, "c": capstanv1.ConnectionUnreachable, "d": capstanv1.ConnectionConnecting, "e": capstanv1.ConnectionReady,
	} {
		w.set(name, desired{status: capstanv1.ClusterConnectionStatus{State: state}})
	}
	w.remove("f", Ref{})
	var order []multicluster.ClusterName
	for {
		name, item, _ := w.pick()
		if item == nil {
			break
		}
		order = append(order, name)
	}
	g.Expect(order[:2]).To(ConsistOf(multicluster.ClusterName("c"), multicluster.ClusterName("f")))
	g.Expect(order[2:]).To(ConsistOf(multicluster.ClusterName("a"), multicluster.ClusterName("b"), multicluster.ClusterName("d"), multicluster.ClusterName("e")))
}
