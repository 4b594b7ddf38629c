package clusters

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

func TestMayPatch(t *testing.T) {
	const deployment = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team/machinedeployments/web"
	for name, tc := range map[string]struct {
		prefix, path, media string
		may                 bool
	}{
		"a MachineDeployment":          {"", deployment, string(types.MergePatchType), true},
		"with parameters":              {"", deployment, string(types.MergePatchType) + "; charset=utf-8", true},
		"an older version":             {"", "/apis/cluster.x-k8s.io/v1beta1/namespaces/team/machinesets/web", string(types.MergePatchType), true},
		"an AWSMachine":                {"", "/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/team/awsmachines/i-1", string(types.MergePatchType), true},
		"behind a proxy":               {"/k8s/clusters/c-1", "/k8s/clusters/c-1" + deployment, string(types.MergePatchType), true},
		"another cluster of the proxy": {"/k8s/clusters/c-1", "/k8s/clusters/c-2" + deployment, string(types.MergePatchType), false},
		"its status":                   {"", deployment + "/status", string(types.MergePatchType), false},
		"its scale":                    {"", deployment + "/scale", string(types.MergePatchType), false},
		"all of them":                  {"", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team/machinedeployments", string(types.MergePatchType), false},
		"no name":                      {"", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team/machinedeployments/", string(types.MergePatchType), false},
		"its Machines":                 {"", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team/machines/web", string(types.MergePatchType), false},
		"the resource elsewhere":       {"", "/apis/example.org/v1/namespaces/team/machinedeployments/web", string(types.MergePatchType), false},
		"a Secret":                     {"", "/api/v1/namespaces/team/secrets/web", string(types.MergePatchType), false},
		"an escaped way out":           {"", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team%2Fx/machinedeployments/web%2Fstatus", string(types.MergePatchType), false},
		"a JSON patch":                 {"", deployment, string(types.JSONPatchType), false},
		"an apply":                     {"", deployment, string(types.ApplyYAMLPatchType), false},
		"of no type":                   {"", deployment, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://example.com"+tc.path, nil)
			g.Expect(err).NotTo(HaveOccurred())
			r.Header.Set("Content-Type", tc.media)
			g.Expect(mayPatch(tc.prefix, r)).To(Equal(tc.may))
		})
	}
}
