package clusters

import (
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// accessFields are the lists of status in which a ClusterProfile has its access providers
// (sigs.k8s.io/cluster-inventory-api v0.1.0, apis/v1alpha1). The second is the older name of the first.
var accessFields = []string{"accessProviders", "credentialProviders"}

// profileTokenKey is the key of the token in the Secret for a ClusterProfile, as in the plugin secretreader of
// cluster-inventory-api.
const profileTokenKey = "token"

// access is what a ClusterProfile says about the server of its cluster. Everything that a kubeconfig must not contain is
// kept, so that it is refused and not ignored.
type access struct {
	// Provider is the name of the access provider.
	Provider                                        string
	Server, TLSServerName, CAData, CAFile, ProxyURL string
	Insecure                                        bool
}

// accessProvider is an entry of the lists.
type accessProvider struct {
	Name    string              `json:"name"`
	Cluster clientcmdv1.Cluster `json:"cluster"`
}

// reduceAccess copies the first access provider with a server, without its extensions, which only plugins read.
func reduceAccess(to, from *unstructured.Unstructured) {
	for _, field := range accessFields {
		entries, _, _ := unstructured.NestedSlice(from.Object, "status", field)
		for _, entry := range entries {
			provider, ok := entry.(map[string]any)
			if !ok {
				continue
			}
			if server, _, _ := unstructured.NestedString(provider, "cluster", "server"); server == "" {
				continue
			}
			unstructured.RemoveNestedField(provider, "cluster", "extensions")
			_ = unstructured.SetNestedSlice(to.Object, []any{provider}, "status", accessFields[0])
			return
		}
	}
}

// accessOf reads the access provider of a reduced ClusterProfile; zero for none, also for other kinds.
func accessOf(object *unstructured.Unstructured) access {
	entries, _, _ := unstructured.NestedSlice(object.Object, "status", accessFields[0])
	if len(entries) == 0 {
		return access{}
	}
	content, _ := entries[0].(map[string]any)
	var p accessProvider
	if runtime.DefaultUnstructuredConverter.FromUnstructured(content, &p) != nil {
		return access{}
	}
	return access{
		Provider: p.Name, Server: p.Cluster.Server, TLSServerName: p.Cluster.TLSServerName, CAData: string(p.Cluster.CertificateAuthorityData),
		CAFile: p.Cluster.CertificateAuthority, ProxyURL: p.Cluster.ProxyURL, Insecure: p.Cluster.InsecureSkipTLSVerify,
	}
}

// profileCredentials: the server is that of the ClusterProfile, and the token that of the Secret with its name.
func profileCredentials(ref Ref, object clusterObject) (credentialSource, error) {
	if object.Access.Server == "" {
		return credentialSource{}, errors.New("its status has no access provider with a server: the cluster manager has to write status.accessProviders")
	}
	return credentialSource{
		NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name},
		holds:          "token",
		keys:           []string{profileTokenKey},
		labels:         labels.Set{pipelinesv1.ClusterProfileSecretLabel: "true"},
		endpoint:       object.Access,
		kubeconfig:     object.Access.kubeconfig,
	}, nil
}

// kubeconfig returns one with a token. All rules for kubeconfigs then apply to a ClusterProfile, too.
func (a access) kubeconfig(token []byte) ([]byte, error) {
	const name = "profile"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server: a.Server, TLSServerName: a.TLSServerName, CertificateAuthorityData: []byte(a.CAData), CertificateAuthority: a.CAFile,
		ProxyURL: a.ProxyURL, InsecureSkipTLSVerify: a.Insecure,
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: string(token)}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return nil, errors.New("the access provider cannot be written as a kubeconfig") // The error may contain the token.
	}
	return raw, nil
}

// labelled says which labels the Secret needs; empty if none.
func (s credentialSource) labelled() string {
	if len(s.labels) == 0 {
		return ""
	}
	return " and the label " + s.labels.String()
}
