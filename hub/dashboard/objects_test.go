package dashboard

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// standbyObjects starts the connections of a replica that does not lead, with the hub's rights, and returns their Objects.
func standbyObjects(t *testing.T, w *world, secretsOf ...string) func() ([]clusters.Object, error) {
	t.Helper()
	config := rest.CopyConfig(w.options.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: hubUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	manager, err := clusters.New(clusters.Options{Local: config, SecretNamespaces: secretsOf, Elected: make(chan struct{}), Logger: logr.Discard()})
	w.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		w.Expect(<-ended).To(Succeed())
	})
	return manager.Objects
}

func (w *world) object(apiVersion, kind, name string, spec map[string]any) {
	w.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(w.fleet)
	o.SetName(name)
	o.SetLabels(map[string]string{"team": "a"})
	w.Expect(w.c.Create(w.t.Context(), o)).To(Succeed())
}

// Every cluster object is in the facts of a standby, without a Pipeline and without a connection, and a GitopsCluster
// with the Cluster that it references. Who may list one of the kinds may see only its objects.
func TestObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.options.Objects = standbyObjects(t, w, w.fleet)
	w.lead(false)
	w.serve()
	w.object("cluster.x-k8s.io/v1beta2", "Cluster", "prod", map[string]any{
		"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSCluster", "name": "prod"},
	})
	w.object("gitops.weave.works/v1alpha1", "GitopsCluster", "alias", map[string]any{"capiClusterRef": map[string]any{"name": "prod"}})
	w.may(w.fleet, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "capstan-system", Name: "capstan-hub"}, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}})
	w.Expect(w.c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.fleet, Name: "edge", Labels: map[string]string{pipelinesv1.ClusterSecretLabel: "true"}}})).To(Succeed())
	secret := view.Cluster{Kind: "Secret", Namespace: w.fleet, Name: "edge"}
	capi, gitops := view.Cluster{Kind: "Cluster", Namespace: w.fleet, Name: "prod"}, view.Cluster{Kind: "GitopsCluster", Namespace: w.fleet, Name: "alias"}
	var facts *view.Facts
	w.Eventually(func(g Gomega) {
		w.clock.step(factsFor)
		var err error
		facts, err = w.server.source.facts(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		var own []view.Object // Other tests have objects in namespaces of their own.
		for _, o := range facts.Objects {
			if o.Cluster.Namespace == w.fleet {
				own = append(own, o)
			}
		}
		g.Expect(own).To(HaveExactElements(
			And(HaveField("Cluster", capi), HaveField("Of", view.Cluster{}), HaveField("Labels", map[string]string{"team": "a"}), HaveField("Created", BeTemporally("~", time.Now(), time.Hour))),
			And(HaveField("Cluster", gitops), HaveField("Of", capi), HaveField("Deleting", false)),
			HaveField("Cluster", secret)))
	}, patience).Should(Succeed())
	w.Expect(facts.Leads).To(BeFalse())
	w.Expect(facts.Connections).To(BeEmpty())
	w.Expect(facts.Unread).To(BeEmpty())

	for account, tc := range map[string]struct {
		group, resource               string
		seesC, seesGitops, seesSecret bool
	}{
		"clusters":    {"cluster.x-k8s.io", "clusters", true, false, false},
		"gitops":      {"gitops.weave.works", "gitopsclusters", false, true, false},
		"connections": {"capstan.dev", "clusterconnections", false, false, false}, // There is none in the namespace.
		"pods":        {"", "pods", false, false, false},
		"secrets":     {"", "secrets", false, false, true},
	} {
		w.may(w.fleet, w.subject(account), rbacv1.PolicyRule{APIGroups: []string{tc.group}, Resources: []string{tc.resource}, Verbs: []string{"list"}})
		user := authenticationv1.UserInfo{Username: "system:serviceaccount:" + w.apps + ":" + account}
		scope, err := w.server.access.scope(t.Context(), user, facts)
		w.Expect(err).NotTo(HaveOccurred())
		_, seen := view.ClusterDetail(facts, scope, capi)
		w.Expect(seen).To(Equal(tc.seesC), account)
		_, seen = view.ClusterDetail(facts, scope, gitops)
		w.Expect(seen).To(Equal(tc.seesGitops), account)
		_, seen = view.ClusterDetail(facts, scope, secret)
		w.Expect(seen).To(Equal(tc.seesSecret), account)
	}
}
