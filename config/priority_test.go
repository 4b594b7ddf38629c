package config_test

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The hub's requests for leases have the level of leader election, its others that of the hub, and those of others neither.
func TestPriorityAndFairness(t *testing.T) {
	g := NewWithT(t)
	_, warnings, err := kubectl(t.Context(), "apply", "-k", "priority-and-fairness")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(BeEmpty())
	// level returns the priority level that the API server gives to a request of a user.
	level := func(user, path string) string {
		config, err := world.plane.UserConfig(user, "system:serviceaccounts", "system:authenticated")
		g.Expect(err).NotTo(HaveOccurred())
		h, err := rest.HTTPClientFor(config)
		g.Expect(err).NotTo(HaveOccurred())
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := h.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		_ = response.Body.Close()
		uid := response.Header.Get("X-Kubernetes-PF-PriorityLevel-UID")
		var levels flowcontrolv1.PriorityLevelConfigurationList
		g.Expect(world.admin.List(t.Context(), &levels, &client.ListOptions{})).To(Succeed())
		for i := range levels.Items {
			if string(levels.Items[i].UID) == uid {
				return levels.Items[i].Name
			}
		}
		return uid
	}
	const lease = "/apis/coordination.k8s.io/v1/namespaces/capstan-system/leases/capstan-hub"
	g.Eventually(func() string { return level(hubUser, "/apis/pipelines.weave.works/v1alpha1/pipelines?limit=1") }, patience).Should(Equal("capstan-hub"))
	g.Expect(level(hubUser, lease)).To(Equal("leader-election"))
	g.Expect(level(hubUser, "/api/v1/namespaces/team/secrets/kubeconfig")).To(Equal("capstan-hub"))
	g.Expect(level(hubUser, "/version")).To(Equal("capstan-hub"))
	g.Expect(level("system:serviceaccount:capstan-system:other", lease)).To(Equal("workload-low"))
}
