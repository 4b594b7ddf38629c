package clusters

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/secret"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// clusterKind says how the objects of a kind are read, and where their credentials are. All differences between the kinds
// that a reference may have are here, except for the alias of a GitopsCluster (clusterObject.alias).
type clusterKind struct {
	schema.GroupKind
	// perNamespace: the objects are read only in Options.SecretNamespaces, each by its own watch, because the hub has no
	// right to them elsewhere.
	perNamespace bool
	// labels that an object must have; others are not read.
	labels labels.Set
	// content: fields of spec and status are read, and not only the metadata.
	content bool
	// absent says what a missing object is, and remedy what to do.
	absent, remedy string
	// credentials returns where the credentials of an object are. The error says what is wrong with the object.
	credentials func(ref Ref, object clusterObject) (credentialSource, error)
}

// credentialSource is the Secret with the credentials of a cluster.
type credentialSource struct {
	types.NamespacedName
	// holds says what is under the key, for users.
	holds string
	// keys of it, in the order of preference.
	keys []string
	// labels that the Secret must have.
	labels labels.Set
	// endpoint is what the object says about the server. The Secret is read again when it changes.
	endpoint access
	// kubeconfig makes one of the value under the key; nil if the value is one.
	kubeconfig func(value []byte) ([]byte, error)
}

const aKubeconfig = "kubeconfig"

// gitopsKubeconfigKey is the key of the kubeconfig in the Secret of a GitopsCluster, and in one that names a cluster itself.
const gitopsKubeconfigKey = "kubeconfig"

// clusterKinds that a reference may have. Discovery finds the served versions; none but Secret must be installed.
var clusterKinds = func() map[string]clusterKind {
	const absent, remedy = "does not exist", "create it or correct the reference"
	permitted := labels.Set{pipelinesv1.ClusterSecretLabel: "true"}
	all := map[string]clusterKind{
		pipelinesv1.ClusterKindCluster:        {absent: absent, remedy: remedy, credentials: capiCredentials},
		pipelinesv1.ClusterKindGitopsCluster:  {absent: absent, remedy: remedy, content: true, credentials: gitopsCredentials},
		pipelinesv1.ClusterKindClusterProfile: {absent: absent, remedy: remedy, content: true, credentials: profileCredentials},
		pipelinesv1.ClusterKindSecret: {
			perNamespace: true, labels: permitted,
			credentials: func(ref Ref, _ clusterObject) (credentialSource, error) {
				source := kubeconfigSecret(ref.Namespace, ref.Name)
				source.labels = permitted
				return source, nil
			},
			absent: fmt.Sprintf("does not exist, or does not have the label %s: \"true\"", pipelinesv1.ClusterSecretLabel),
			remedy: "create it, label it or correct the reference",
		},
	}
	for _, k := range pipelinesv1.ClusterKinds() {
		kind := all[k.Kind]
		kind.GroupKind = schema.GroupKind{Group: k.Group, Kind: k.Kind}
		all[k.Kind] = kind
	}
	return all
}()

// scoping says in which namespaces cluster objects are read. Those that are read together are a scope.
type scoping struct {
	// namespaces of all kinds but Secrets; all if there are none.
	namespaces []string
	// secrets are the namespaces of Secrets.
	secrets []string
}

// in returns the namespaces in which a kind is read, each by itself; all (metav1.NamespaceAll) may be one of them.
func (s scoping) in(kind string) []string {
	switch {
	case clusterKinds[kind].perNamespace:
		return s.secrets
	case len(s.namespaces) == 0:
		return []string{metav1.NamespaceAll}
	}
	return s.namespaces
}

// divided returns whether a kind has a scope in each namespace.
func (s scoping) divided(kind string) bool {
	return clusterKinds[kind].perNamespace || len(s.namespaces) > 1
}

// scopeOf returns the name of the objects that are read together: "Kind", or "Kind/namespace".
func (s scoping) scopeOf(kind, namespace string) string {
	if s.divided(kind) {
		return kind + "/" + namespace
	}
	return kind
}

// reads returns whether the objects of a kind are read in a namespace.
func (s scoping) reads(kind, namespace string) bool {
	in := s.in(kind)
	return slices.Contains(in, metav1.NamespaceAll) || slices.Contains(in, namespace)
}

// scopes returns those of a kind in a namespace or (pipelinesv1.AllNamespaces) in all.
func (s scoping) scopes(kind, namespace string) []string {
	if namespace != pipelinesv1.AllNamespaces || !s.divided(kind) {
		return []string{s.scopeOf(kind, namespace)}
	}
	in := s.in(kind)
	all := make([]string, 0, len(in))
	for _, each := range in {
		all = append(all, s.scopeOf(kind, each))
	}
	return all
}

// notRead says that objects of a kind are not read in a namespace, and what to do.
func notRead(what, kind, namespace string) string {
	if !clusterKinds[kind].perNamespace {
		return fmt.Sprintf("%s is not read: the hub does not serve namespace %s: add it to --namespace, or reference a cluster of a namespace that the hub serves", what, namespace)
	}
	return fmt.Sprintf("%s cannot name a cluster: the administrator has not added namespace %s to --cluster-secret-namespaces (chart: clusterNamespaces)", what, namespace)
}

// grantSecrets says how the hub gets the right to the Secrets of a namespace.
func grantSecrets(namespace string) string {
	return fmt.Sprintf("apply config/rbac/cluster-secrets to namespace %s (chart: clusterNamespaces)", namespace)
}

func capiCredentials(ref Ref, _ clusterObject) (credentialSource, error) {
	return capiSecret(ref.Namespace, ref.Name), nil
}

// capiSecret is the one that Cluster API makes for a Cluster.
func capiSecret(namespace, name string) credentialSource {
	return credentialSource{
		NamespacedName: types.NamespacedName{Namespace: namespace, Name: secret.Name(name, secret.Kubeconfig)},
		holds:          aKubeconfig,
		keys:           []string{secret.KubeconfigDataName},
	}
}

func gitopsCredentials(ref Ref, object clusterObject) (credentialSource, error) {
	switch {
	case (object.SecretRef == "") == (object.CAPIRef == ""):
		return credentialSource{}, errors.New("it must have exactly one of spec.secretRef and spec.capiClusterRef")
	case object.CAPIRef != "":
		return capiSecret(ref.Namespace, object.CAPIRef), nil
	}
	return kubeconfigSecret(ref.Namespace, object.SecretRef), nil
}

func kubeconfigSecret(namespace, name string) credentialSource {
	return credentialSource{
		NamespacedName: types.NamespacedName{Namespace: namespace, Name: name},
		holds:          aKubeconfig,
		keys:           []string{gitopsKubeconfigKey, secret.KubeconfigDataName},
	}
}
