package clusters

import (
	"io"
	"net/http"
	"strings"
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
		"a pool of EKS":                {"", "/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/team/awsmanagedmachinepools/web", string(types.MergePatchType), true},
		"a pool of ROSA":               {"", "/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/team/rosamachinepools/web", string(types.MergePatchType), true},
		"its control plane":            {"", "/apis/controlplane.cluster.x-k8s.io/v1beta2/namespaces/team/awsmanagedcontrolplanes/web", string(types.MergePatchType), false},
		"no name":                      {"", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team/machinedeployments/", string(types.MergePatchType), false},
		"a Machine":                    {"", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team/machines/web", string(types.MergePatchType), true},
		"its Cluster":                  {"", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team/clusters/web", string(types.MergePatchType), false},
		"the resource elsewhere":       {"", "/apis/example.org/v1/namespaces/team/machinedeployments/web", string(types.MergePatchType), false},
		"a Secret":                     {"", "/api/v1/namespaces/team/secrets/web", string(types.MergePatchType), false},
		"an escaped way out":           {"", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team%2Fx/machinedeployments/web%2Fstatus", string(types.MergePatchType), false},
		"a JSON patch":                 {"", deployment, string(types.JSONPatchType), false},
		"an apply":                     {"", deployment, string(types.ApplyYAMLPatchType), false},
		"of no type":                   {"", deployment, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://example.com"+tc.path, strings.NewReader(`{"metadata":{"labels":{"a":"b"}}}`))
			g.Expect(err).NotTo(HaveOccurred())
			r.Header.Set("Content-Type", tc.media)
			g.Expect(mayPatch(tc.prefix, r)).To(Equal(tc.may))
		})
	}
}

// Only labels and annotations may be changed.
func TestMayPatchMetadata(t *testing.T) {
	const machine = "https://example.com/apis/cluster.x-k8s.io/v1beta2/namespaces/team/machines/web"
	for body, may := range map[string]bool{
		`{"metadata":{"annotations":{"a":""}}}`:                                     true,
		`{"metadata":{"labels":{"a":null},"annotations":{},"resourceVersion":"1"}}`: true,
		`{"metadata":{"uid":"x","annotations":{"a":""}}}`:                           true,
		`{"metadata":{"finalizers":null}}`:                                          false,
		`{"metadata":{"ownerReferences":[],"labels":{"a":"b"}}}`:                    false,
		`{"metadata":{"labels":{"a":"b"}},"spec":{"providerID":"x"}}`:               false,
		`{"metadata":{"labels":{"a":"b"}},"status":{}}`:                             false,
		`{"spec":{"providerID":"x"}}`:                                               false,
		`{"spec":null}`:                                                             false,
		`{"metadata":null}`:                                                         false,
		`{}`:                                                                        false,
		`null`:                                                                      false,
		`[]`:                                                                        false,
		``:                                                                          false,
		`{"metadata":{"labels":{"a":"b"}}`:                                          false,
	} {
		t.Run(body, func(t *testing.T) {
			g := NewWithT(t)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, machine, strings.NewReader(body))
			g.Expect(err).NotTo(HaveOccurred())
			r.Header.Set("Content-Type", string(types.MergePatchType))
			g.Expect(mayPatch("", r)).To(Equal(may))
			sent, err := io.ReadAll(r.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(sent)).To(Equal(body), "the body is still sent")
			r.GetBody = nil
			g.Expect(mayPatch("", r)).To(BeFalse())
		})
	}
}
