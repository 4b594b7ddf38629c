package flux_test

import (
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/playground/flux"
	"github.com/capstan-hub/capstan/playground/git"
)

// configMap stands before its Namespace, as the names of files may have it.
func configMap(namespace, color string) string {
	return `apiVersion: v1
kind: ConfigMap
metadata:
  namespace: ` + namespace + `
  name: paint
data:
  color: ` + color + `
---
apiVersion: v1
kind: Namespace
metadata:
  name: ` + namespace + `
`
}

func TestSyncAppliesWhatIsMerged(t *testing.T) {
	g := NewWithT(t)
	server, err := git.Start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(server.Stop()).To(Succeed()) })
	repository, err := server.CreateRepository(t.Context(), "teams", "fleet", map[string]string{
		"clusters/blue/paint.yaml":  configMap("blue", "navy"),
		"clusters/green/paint.yaml": configMap("green", "olive"),
		"clusters/README.md":        "What is applied.\n",
	})
	g.Expect(err).NotTo(HaveOccurred())

	c := newClient(t)
	during(t, flux.Sync{
		Repository: flux.GitRepository{
			URL: repository.URL(), Branch: git.Main, CA: server.CA(),
			Username: server.Admin().Username, Password: server.Admin().Token,
		},
		// Two names for one control plane: the directories tell them apart.
		Clusters: map[string]client.Client{"blue": c, "green": c},
		Logger:   logr.Discard(),
	}.Start)

	painted := func(namespace, color string) {
		t.Helper()
		g.Eventually(func(g Gomega) {
			paint := &corev1.ConfigMap{}
			g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "paint"}, paint)).To(Succeed())
			g.Expect(paint.Data).To(HaveKeyWithValue("color", color))
		}).WithTimeout(patience).Should(Succeed())
	}
	commit := func(file, content string) {
		t.Helper()
		_, err := repository.Commit(t.Context(), git.Main, file, "Paint it", func(string) string { return content })
		g.Expect(err).NotTo(HaveOccurred())
	}
	painted("blue", "navy")
	painted("green", "olive")

	commit("clusters/blue/paint.yaml", configMap("blue", "azure"))
	painted("blue", "azure")

	// What one cluster refuses is not in the other's way, and heals.
	commit("clusters/green/paint.yaml", "kind: Nonsense\n")
	commit("clusters/blue/paint.yaml", configMap("blue", "cyan"))
	painted("blue", "cyan")
	painted("green", "olive")
	commit("clusters/green/paint.yaml", configMap("green", "lime"))
	painted("green", "lime")
}
