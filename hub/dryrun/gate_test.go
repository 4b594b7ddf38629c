package dryrun

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

const (
	pipelines = "/apis/pipelines.weave.works/v1alpha1/namespaces/apps/pipelines"
	own       = `[{"op":"test","path":"/status/schemaFleets","value":"fleets1"},{"op":"add","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/status/dryRun","value":{}}]`
)

func TestAGateSendsReadsAndAllowedWritesOnly(t *testing.T) {
	t.Parallel()
	const patch, merge = "application/json-patch+json", "application/merge-patch+json"
	for _, c := range []struct {
		method, path, media, body string
		sent                      bool
	}{
		{method: "GET", path: "/api/v1/namespaces/kube-system", sent: true},
		{method: "GET", path: "/apis/capstan.dev/v1alpha1/promotions?watch=1", sent: true},
		{method: "PATCH", path: pipelines + "/shop/status", media: patch, body: own, sent: true},
		{method: "PATCH", path: pipelines + "/shop/status", media: patch, body: `[{"op":"replace","path":"/status/dryRun/message","value":"m"}]`, sent: true},
		{method: "PATCH", path: pipelines + "/shop/status", media: patch, body: `[{"op":"remove","path":"/status/dryRunner"}]`},
		{method: "PATCH", path: pipelines + "/shop/status", media: patch, body: `[{"op":"replace","path":"/status/conditions","value":[]}]`},
		{method: "PATCH", path: pipelines + "/shop/status", media: patch, body: `[{"op":"move","from":"/status/conditions","path":"/status/dryRun"}]`},
		{method: "PATCH", path: pipelines + "/shop/status", media: merge, body: `{"status":{"dryRun":{}}}`},
		{method: "PUT", path: pipelines + "/shop/status", body: `{}`},
		{method: "PATCH", path: pipelines + "/shop", media: patch, body: own},
		{method: "PATCH", path: pipelines + "/shop/status/", media: patch, body: own},
		{method: "DELETE", path: pipelines + "/shop"},
		{method: "POST", path: "/apis/capstan.dev/v1alpha1/namespaces/fleet/clusterconnections", sent: true},
		{method: "PATCH", path: "/apis/capstan.dev/v1alpha1/namespaces/fleet/clusterconnections/one/status", sent: true},
		{method: "DELETE", path: "/apis/capstan.dev/v1alpha1/namespaces/fleet/clusterconnections/one", sent: true},
		{method: "DELETE", path: "/apis/capstan.dev/v1alpha1/namespaces/fleet/clusterconnections"},
		{method: "POST", path: "/apis/capstan.dev/v1alpha1/namespaces/apps/promotions"},
		{method: "PATCH", path: "/apis/capstan.dev/v1alpha1/namespaces/apps/promotions/one/status"},
		{method: "PATCH", path: "/apis/capstan.dev/v1alpha1/namespaces/apps/promotionrequests/one/status"},
		{method: "PATCH", path: "/apis/capstan.dev/v1alpha1/promotionwindows/one/status"},
		{method: "PATCH", path: "/apis/cluster.x-k8s.io/v1beta2/namespaces/fleet/machinedeployments/one", media: merge, body: `{}`},
		{method: "PATCH", path: "/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/fleet/awsmachines/one", media: merge, body: `{}`},
		{method: "PATCH", path: "/apis/eventing.kyma-project.io/v1alpha1/namespaces/fleet/eventingbackends/one", media: merge, body: `{}`},
		{method: "POST", path: "/api/v1/namespaces/default/secrets"},
		{method: "PUT", path: "/api/v1/namespaces/default/secrets/one"},
		{method: "POST", path: "/api/v1/namespaces"},
		{method: "POST", path: "/apis/events.k8s.io/v1/namespaces/apps/events", sent: true},
		{method: "POST", path: "/api/v1/namespaces/apps/events", sent: true},
		{method: "PUT", path: "/apis/coordination.k8s.io/v1/namespaces/capstan-system/leases/capstan-hub", sent: true},
		{method: "DELETE", path: "/apis/coordination.k8s.io/v1/namespaces/capstan-system/leases/capstan-namespace-team-a", sent: true},
		{method: "POST", path: "/apis/authentication.k8s.io/v1/tokenreviews", sent: true},
		{method: "POST", path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", sent: true},
		{method: "POST", path: "/apis/events.k8s.io/v1/namespaces/apps%2Fx/events"},
		{method: "POST", path: "/apis/events.k8s.io/v1/namespaces//events"},
		{method: "POST", path: "/events"},
	} {
		g := NewWithT(t)
		var received []string
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			g.Expect(err).NotTo(HaveOccurred())
			received = append(received, r.Method+" "+string(body))
		}))
		var refused []*RefusedError
		// A server behind a proxy has a path.
		for _, prefix := range []string{"", "/k8s/clusters/one"} {
			received, refused = nil, nil
			config, err := Gate(&rest.Config{Host: server.URL + prefix}, func(e *RefusedError) { refused = append(refused, e) })
			g.Expect(err).NotTo(HaveOccurred())
			sender, err := rest.HTTPClientFor(config)
			g.Expect(err).NotTo(HaveOccurred())
			request, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+prefix+c.path, strings.NewReader(c.body))
			g.Expect(err).NotTo(HaveOccurred())
			request.Header.Set("Content-Type", c.media)
			answer, err := sender.Do(request)
			if c.sent {
				g.Expect(err).NotTo(HaveOccurred(), "%s %s", c.method, c.path)
				g.Expect(answer.Body.Close()).To(Succeed())
				g.Expect(received).To(Equal([]string{c.method + " " + c.body}))
				g.Expect(refused).To(BeEmpty())
				continue
			}
			var why *RefusedError
			g.Expect(errors.As(err, &why)).To(BeTrue(), "%s %s", c.method, c.path)
			g.Expect(why.Error()).To(ContainSubstring("--dry-run"))
			g.Expect(refused).To(ConsistOf(why))
			g.Expect(received).To(BeEmpty())
		}
		server.Close()
	}
}
