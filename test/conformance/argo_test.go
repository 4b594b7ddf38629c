package conformance

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// argoApplication writes an Application with the status that Argo CD gives it: it runs the
// deployed version, and was compared with the target version.
func argoApplication(t *testing.T, to client.Client, name, deployed, target, health, sync, operation string) {
	t.Helper()
	argoApplicationIn(t, to, "shop", name, deployed, target, health, sync, operation)
}

func argoApplicationIn(t *testing.T, to client.Client, place, name, deployed, target, health, sync, operation string) {
	t.Helper()
	g := NewWithT(t)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application"}}
	u.SetNamespace(place)
	u.SetName(name)
	err := to.Get(t.Context(), client.ObjectKeyFromObject(u), u)
	source := map[string]any{"repoURL": "https://charts.example.org", "chart": "web", "targetRevision": target}
	destination := map[string]any{"server": "https://kubernetes.default.svc", "namespace": "shop"}
	u.Object["spec"] = map[string]any{"project": "default", "source": source, "destination": destination}
	u.Object["status"] = map[string]any{
		"health":         map[string]any{"status": health},
		"sync":           map[string]any{"status": sync, "revision": target, "comparedTo": map[string]any{"source": source, "destination": destination}},
		"operationState": map[string]any{"phase": operation, "message": "as the test says", "startedAt": "2026-01-01T00:00:00Z", "operation": map[string]any{}},
		"history":        []any{map[string]any{"id": int64(0), "revision": deployed, "deployedAt": "2026-01-01T00:00:00Z", "source": source}},
	}
	if err != nil {
		create(t, to, u)
		return
	}
	g.Expect(to.Update(t.Context(), u)).To(Succeed()) // The CRD has no subresource for the status.
}

// An Application of Argo CD in the management cluster is promoted to one in a workload cluster.
func TestArgoApplication(t *testing.T) {
	g := NewWithT(t)
	capiCluster(t, "argo", kubeconfig(t))
	argoApplication(t, c, "argo", "1.0.0", "1.0.0", "Healthy", "Synced", "Succeeded")
	argoApplication(t, remote, "argo", "1.0.0", "1.0.0", "Healthy", "Synced", "Succeeded")
	p := newPipeline("argo", "argo", target("", ""), target("Cluster", "argo"))
	p.Spec.AppRef.APIVersion, p.Spec.AppRef.Kind = "argoproj.io/v1alpha1", "Application"
	p.Spec.Promotion = &pipelinesv1.Promotion{Strategy: notification}
	create(t, c, p)
	runsEverywhere(t, p)
	expectReady(t, p)
	g.Expect(promotionsOf(t, p)).To(BeEmpty())

	// A new target is not promoted before it is deployed and healthy.
	argoApplication(t, c, "argo", "1.0.0", "1.1.0", "Healthy", "OutOfSync", "Running")
	expectTarget(t, p, "env-0", func(g Gomega, s pipelinesv1.TargetStatus) {
		g.Expect(s.Revision).To(Equal("1.0.0"))
		g.Expect(s.Ready).To(BeFalse())
	})
	argoApplication(t, c, "argo", "1.1.0", "1.1.0", "Progressing", "Synced", "Succeeded")
	expectTarget(t, p, "env-0", func(g Gomega, s pipelinesv1.TargetStatus) {
		g.Expect(s.Revision).To(Equal("1.1.0"))
		g.Expect(s.Ready).To(BeFalse())
	})
	g.Expect(promotionsOf(t, p)).To(BeEmpty())
	argoApplication(t, c, "argo", "1.1.0", "1.1.0", "Healthy", "Synced", "Succeeded")
	g.Expect(awaitPhase(t, p, capstanv1.PhaseAwaitingRollout)[0].Spec.Revision).To(Equal("1.1.0"))

	argoApplication(t, remote, "argo", "1.0.0", "1.1.0", "Healthy", "OutOfSync", "Failed")
	expectTarget(t, p, "env-1", func(g Gomega, s pipelinesv1.TargetStatus) {
		g.Expect(s.Revision).To(Equal("1.0.0"))
		g.Expect(s.Ready).To(BeFalse())
	})
	argoApplication(t, remote, "argo", "1.1.0", "1.1.0", "Healthy", "Synced", "Succeeded")
	g.Expect(awaitPhase(t, p, capstanv1.PhaseSucceeded)[0].Status.Reason).To(Equal("RolledOut"))
	expectReady(t, p)
}
