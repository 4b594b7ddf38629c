package decision

import (
	"testing"

	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// A cluster moved if it is in another wave. If the promotion failed, it is enough that it left. One that the wave has, and that the
// status does not show yet, has not moved: the status may stand for an earlier selection.
func TestMoved(t *testing.T) {
	t.Parallel()
	target := func(name string) pipelinesv1.Target {
		return pipelinesv1.Target{Namespace: "shop", ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: name}}
	}
	shown := func(names ...string) *pipelinesv1.EnvironmentStatus {
		status := &pipelinesv1.EnvironmentStatus{Fleet: &pipelinesv1.FleetStatus{}}
		for _, name := range names {
			one := target(name)
			status.Targets = append(status.Targets, pipelinesv1.TargetStatus{ClusterAppRef: pipelinesv1.ClusterAppReference{ClusterRef: one.ClusterRef}})
		}
		return status
	}
	p := &pipelinesv1.Pipeline{
		Spec: pipelinesv1.PipelineSpec{Environments: []pipelinesv1.Environment{
			{Name: "prod/early", Stage: &pipelinesv1.Stage{Environment: "prod", Wave: "early"}, Targets: []pipelinesv1.Target{target("a"), target("new")}},
			{Name: "prod/rest", Stage: &pipelinesv1.Stage{Environment: "prod", Wave: "rest"}},
		}},
		Status: pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{"prod/early": shown("a", "b"), "prod/rest": shown("c")}},
	}
	p.Namespace = "fleet"
	for cluster, moved := range map[string][2]bool{
		"a": {}, "b": {}, "new": {}, "c": {true, true}, "gone": {false, true},
	} {
		name := "fleet/" + cluster
		for failed, is := range map[bool]bool{false: moved[0], true: moved[1]} {
			want := ""
			if is {
				want = name
			}
			NewWithT(t).Expect(Moved(p, "prod/early", []string{"fleet/a", name}, failed)).To(Equal(want), "%s, failed: %t", cluster, failed)
		}
	}
}
