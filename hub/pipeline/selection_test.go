package pipeline

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// aliased is a fleet whose GitopsClusters lead to one Cluster.
type aliased struct {
	fleet
	to clusters.Ref
}

func (a aliased) Resolve(r clusters.Ref) (multicluster.ClusterName, error) {
	if r.Kind == pipelinesv1.ClusterKindGitopsCluster {
		r = a.to
	}
	return a.fleet.Resolve(r)
}

// TestTheSameClusterTwice: of two targets of a fleet in the same cluster, one counts. The Pipeline is woken when the
// GitopsCluster of the other leads to another cluster.
func TestTheSameClusterTwice(t *testing.T) {
	s := newScene(t)
	target := func(kind, name string) pipelinesv1.Target {
		return pipelinesv1.Target{Namespace: "prod", ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: kind, Name: name}}
	}
	prod := &s.p.Spec.Environments[1]
	prod.Waves = []pipelinesv1.Wave{{Name: "all"}}
	prod.Targets = []pipelinesv1.Target{target("Cluster", "eu"), target("GitopsCluster", "europe")}
	counted := func(cluster string) int {
		s.r.Clusters = aliased{to: clusters.Ref{Kind: "Cluster", Namespace: "apps", Name: cluster}}
		p, _, problems := s.r.observe(s.p)
		s.g.Expect(problems).To(BeEmpty())
		return len(p.Spec.Environments[1].Targets)
	}
	s.g.Expect(counted("eu")).To(Equal(1))
	s.g.Expect(s.r.Index.PipelinesOfRef("GitopsCluster/apps/europe")).To(ConsistOf(types.NamespacedName{Namespace: "apps", Name: "shop"}))
	s.g.Expect(counted("us")).To(Equal(2))
}
