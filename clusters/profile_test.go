package clusters_test

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// newProfile returns a ClusterProfile without status.
func (w *world) newProfile(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"clusterManager": map[string]any{"name": "test"}}}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Kind: "ClusterProfile"})
	object.SetNamespace(w.namespace)
	object.SetName(name)
	object.SetLabels(map[string]string{"tier": "edge"})
	return object
}

// profileStatus sets a list of access providers in the status of a ClusterProfile.
func (w *world) profileStatus(name, field string, providers ...map[string]any) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{field: providers}})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.hub.Status().Patch(w.t.Context(), w.newProfile(name), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// parts of a kubeconfig: its cluster and its token.
func parts(g Gomega, kubeconfig []byte) (*clientcmdapi.Cluster, string) {
	config, err := clientcmd.Load(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	context := config.Contexts[config.CurrentContext]
	return config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo].Token
}

// A ClusterProfile names the server, and a labelled Secret with its name has the token; first without the CRD.
func TestClusterProfiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.start()
	g, ref := w.g, w.ref("ClusterProfile", "edge")
	resolved := func() error { _, err := w.manager.Resolve(ref); return err }
	g.Eventually(resolved).Should(And(MatchError(clusters.ErrNotFound), MatchError(ContainSubstring("CustomResourceDefinition is not installed"))))
	management.Install(t, "cluster-inventory-api")
	g.Eventually(resolved).Should(And(MatchError(clusters.ErrNotFound), MatchError(ContainSubstring("create it or correct the reference"))))
	w.manager.Demand(ref.ClusterName(), "test")
	g.Expect(w.hub.Create(t.Context(), w.newProfile("edge"))).To(Succeed())
	g.Eventually(resolved).Should(Succeed())
	g.Expect(w.manager.Select("ClusterProfile", w.namespace, labels.SelectorFromSet(labels.Set{"tier": "edge"}))).To(ConsistOf(ref))
	reaches := func(state capstanv1.ConnectionState, reason, message string) {
		t.Helper()
		w.nameReaches(ref.ClusterName(), state, reason)
		g.Eventually(func() string { s, _ := w.manager.Snapshot(ref.ClusterName()); return s.Message }).Should(ContainSubstring(message))
	}
	reaches(capstanv1.ConnectionAuthFailed, clusters.ReasonSecretMissing, "its status has no access provider with a server")

	cluster, token := parts(g, w.kubeconfig(""))
	provider := func(server string, more map[string]any) map[string]any {
		of := map[string]any{
			"server": server, "certificate-authority-data": cluster.CertificateAuthorityData,
			"extensions": []any{map[string]any{"name": "client.authentication.k8s.io/exec", "extension": map[string]any{"clusterName": "x"}}},
		}
		for k, v := range more {
			of[k] = v
		}
		return map[string]any{"name": "kubeconfig", "cluster": of}
	}
	w.profileStatus("edge", "credentialProviders", provider(cluster.Server, nil))
	reaches(capstanv1.ConnectionAuthFailed, clusters.ReasonSecretMissing, `create it with the token under the key "token" and the label capstan.dev/cluster-profile=true`)

	// A token is sent nowhere without the consent of the Secret.
	w.secret("edge", "token", []byte(token))
	reaches(capstanv1.ConnectionAuthFailed, clusters.ReasonSecretMissing, "does not have the label capstan.dev/cluster-profile=true, without which it is not used: kubectl label secret")
	w.patchLabels("edge", `{"capstan.dev/cluster-profile":"true"}`)
	reaches(capstanv1.ConnectionReady, clusters.ReasonConnected, "")
	shown := w.shows("clusterprofile.edge", capstanv1.ConnectionReady, clusters.ReasonConnected)
	g.Expect(shown.OwnerReferences).To(ConsistOf(And(HaveField("APIVersion", "multicluster.x-k8s.io/v1alpha1"), HaveField("Kind", "ClusterProfile"))))

	// A new token; the newer field of the API; a server that is refused, and is corrected.
	before, err := w.manager.Connection(ref.ClusterName())
	g.Expect(err).NotTo(HaveOccurred())
	later, err := workload.Get(t).TokenKubeconfig(t.Context(), "", "hub", 3*time.Hour)
	g.Expect(err).NotTo(HaveOccurred())
	_, token = parts(g, later)
	w.secret("edge", "token", []byte(token))
	g.Eventually(func() time.Time { s, _ := w.manager.Snapshot(ref.ClusterName()); return s.Credential.Expires }).Should(BeTemporally(">", time.Now().Add(2*time.Hour)))
	g.Expect(w.manager.Connection(ref.ClusterName())).To(BeIdenticalTo(before))
	for _, refused := range []struct {
		server string
		more   map[string]any
		says   string
	}{
		{"http://example.com", nil, "server"},
		{"https://169.254.169.254", nil, "server"},
		{cluster.Server, map[string]any{"proxy-url": "http://proxy:3128"}, "proxy-url"},
		{cluster.Server, map[string]any{"certificate-authority": "/etc/passwd"}, "certificate-authority"},
		{cluster.Server, map[string]any{"insecure-skip-tls-verify": true}, "insecure-skip-tls-verify"},
	} {
		w.profileStatus("edge", "accessProviders", provider(refused.server, refused.more))
		reaches(capstanv1.ConnectionAuthFailed, clusters.ReasonKubeconfigRefused, "ClusterProfile "+w.namespace+"/edge, with Secret "+w.namespace+`/edge, key "token": the kubeconfig's `+refused.says)
		w.profileStatus("edge", "accessProviders", provider(cluster.Server, nil))
		reaches(capstanv1.ConnectionReady, clusters.ReasonConnected, "")
	}

	proxy := w.proxy()
	w.profileStatus("edge", "accessProviders", provider(proxy.URL(), map[string]any{"tls-server-name": "127.0.0.1"}))
	g.Eventually(func() string { s, _ := w.manager.Snapshot(ref.ClusterName()); return s.Server }).Should(Equal(proxy.URL()))
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionReady, clusters.ReasonConnected)

	g.Expect(w.hub.Delete(t.Context(), w.newProfile("edge"))).To(Succeed())
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionRemoved, clusters.ReasonClusterGone)
	g.Expect(w.logs.String()).NotTo(ContainSubstring(token))
}
