package clusters_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// withSecrets lets the Secrets of the world's namespace name clusters.
func withSecrets(o *clusters.Options) { o.SecretNamespaces = []string{o.Namespaces[0]} }

// patchLabels sets labels of a Secret by a JSON object.
func (w *world) patchLabels(name, labels string) {
	w.t.Helper()
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	w.g.Expect(w.hub.Patch(w.t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":`+labels+`}}`)))).To(Succeed())
}

// A Secret names a cluster only while it has the label: nothing is read of one without. It is rotated as others are, may be
// named like a Cluster, and is removed with its label or itself.
func TestASecretNamesACluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withSecrets)
	g, ref := w.g, w.ref("Secret", "edge")
	w.secret("edge", "kubeconfig", w.kubeconfig(""))
	w.start()
	resolved := func() error { _, err := w.manager.Resolve(ref); return err }
	w.g.Expect(w.manager.WaitForObjects(t.Context())).To(Succeed())
	g.Expect(resolved()).To(And(MatchError(clusters.ErrNotFound), MatchError(ContainSubstring("capstan.dev/cluster"))))
	w.manager.Demand(ref.ClusterName(), "test")
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionRemoved, clusters.ReasonClusterGone)
	_, err := w.manager.Connection(ref.ClusterName())
	g.Expect(err).To(MatchError(clusters.ErrNotConnected), "an unlabelled Secret is not used")

	for _, other := range []string{`"false"`, `""`} {
		w.patchLabels("edge", `{"capstan.dev/cluster":`+other+`}`)
	}
	w.patchLabels("edge", `{"capstan.dev/cluster":"true","tier":"edge"}`)
	g.Eventually(resolved).Should(Succeed())
	g.Expect(w.manager.Resolve(ref)).To(Equal(ref.ClusterName()))
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionReady, clusters.ReasonConnected)
	shown := w.shows("secret.edge", capstanv1.ConnectionReady, clusters.ReasonConnected)
	g.Expect(shown.OwnerReferences).To(ConsistOf(And(HaveField("APIVersion", "v1"), HaveField("Kind", "Secret"), HaveField("Name", "edge"))))
	g.Expect(w.manager.Select("Secret", w.namespace, labels.SelectorFromSet(labels.Set{"tier": "edge"}))).To(ConsistOf(ref))
	g.Expect(w.manager.Select("Secret", "*", labels.Everything())).To(ConsistOf(ref))
	g.Expect(w.manager.Objects()).To(ConsistOf(HaveField("Ref", ref)))

	// A Cluster of the same name is another cluster.
	w.connected("edge", "")
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionReady, clusters.ReasonConnected)

	// Rotated in the same connection; refused; the other key.
	before, err := w.manager.Connection(ref.ClusterName())
	g.Expect(err).NotTo(HaveOccurred())
	accepted := func() time.Time { s, _ := w.manager.Snapshot(ref.ClusterName()); return s.Credential.Expires }
	expiry := accepted()
	later, err := workload.Get(t).TokenKubeconfig(t.Context(), "", "hub", 3*time.Hour)
	g.Expect(err).NotTo(HaveOccurred())
	w.secret("edge", "kubeconfig", later)
	g.Eventually(accepted).Should(BeTemporally(">", expiry))
	g.Expect(w.manager.Connection(ref.ClusterName())).To(BeIdenticalTo(before))
	w.secret("edge", "kubeconfig", []byte(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"clusters":[{"name":"c","cluster":{"server":"https://10.0.0.1"}}],"users":[{"name":"u","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"sh"}}}]}`))
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionAuthFailed, clusters.ReasonKubeconfigRefused)
	g.Expect(w.shows("secret.edge", capstanv1.ConnectionAuthFailed, clusters.ReasonKubeconfigRefused).Status.Message).To(ContainSubstring("exec"))
	w.secret("edge", "value", later)
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "edge"}}
	g.Expect(w.hub.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"kubeconfig":null}}`)))).To(Succeed())
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionReady, clusters.ReasonConnected)

	// Without the label it is not used any more, and neither is one that was deleted.
	w.patchLabels("edge", `{"capstan.dev/cluster":null}`)
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionRemoved, clusters.ReasonClusterGone)
	g.Expect(resolved()).To(MatchError(clusters.ErrNotFound))
	w.patchLabels("edge", `{"capstan.dev/cluster":"true"}`)
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionReady, clusters.ReasonConnected)
	g.Expect(w.hub.Delete(t.Context(), object)).To(Succeed())
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionRemoved, clusters.ReasonClusterGone)
	w.reaches("edge", capstanv1.ConnectionReady, clusters.ReasonConnected)
}

// Secrets are read in the namespaces that the administrator names, and in no other.
func TestSecretsOfOtherNamespacesNameNoCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.start()
	w.secret("edge", "kubeconfig", w.kubeconfig(""))
	w.patchLabels("edge", `{"capstan.dev/cluster":"true"}`)
	w.g.Expect(w.manager.WaitForObjects(t.Context())).To(Succeed())
	says := And(MatchError(clusters.ErrNotFound), MatchError(ContainSubstring("--cluster-secret-namespaces")))
	_, err := w.manager.Resolve(w.ref("Secret", "edge"))
	w.g.Expect(err).To(says)
	_, err = w.manager.Select("Secret", w.namespace, labels.Everything())
	w.g.Expect(err).To(says)
	w.g.Expect(w.manager.Select("Secret", "*", labels.Everything())).To(BeEmpty())
	w.g.Expect(w.manager.Objects()).To(BeEmpty())
}

// A namespace whose Secrets the hub may not read does not delay the clusters of others; what must be granted is said.
func TestSecretsThatTheHubMayNotList(t *testing.T) {
	t.Run("without an election", func(t *testing.T) { mayNotListSecrets(t, nil) })
	elected := make(chan struct{})
	close(elected)
	t.Run("elected", func(t *testing.T) { mayNotListSecrets(t, elected) })
}

func mayNotListSecrets(t *testing.T, elected <-chan struct{}) {
	t.Helper()
	t.Parallel()
	w := newWorld(t, func(o *clusters.Options) {
		withSecrets(o)
		o.Elected = elected
		o.Local = rest.CopyConfig(o.Local)
		o.Local.Impersonate = rest.ImpersonationConfig{UserName: "lister", Groups: []string{"system:authenticated"}}
	})
	w.g.Expect(w.hub.Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "lister"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"cluster.x-k8s.io", "gitops.weave.works"}, Resources: []string{"*"}, Verbs: []string{"list", "watch"}}},
	})).To(Succeed())
	w.g.Expect(w.hub.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "lister"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "lister"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "lister"}},
	})).To(Succeed())
	w.start()
	w.createCluster("prod")
	w.g.Expect(w.manager.WaitForObjects(t.Context())).To(Succeed())
	w.g.Eventually(func() error { _, err := w.manager.Resolve(w.ref("Cluster", "prod")); return err }).Should(Succeed())
	_, err := w.manager.Resolve(w.ref("Secret", "edge"))
	w.g.Expect(err).To(And(MatchError(clusters.ErrNotSynced), MatchError(ContainSubstring("apply config/rbac/cluster-secrets to namespace "+w.namespace))))
	_, err = w.manager.Objects()
	w.g.Expect(err).To(MatchError(ContainSubstring("has not read the Secrets of namespace " + w.namespace)))
}
