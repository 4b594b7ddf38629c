package fleet

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// credentials of the hub in a workload cluster: the token of a ServiceAccount.
type credentials struct {
	account string
	// life differs, so that ClusterConnection.status.credentialExpiry shows which is used.
	life time.Duration
}

var (
	firstCredentials = credentials{account: "capstan-1", life: 8 * time.Hour}
	nextCredentials  = credentials{account: "capstan-2", life: 16 * time.Hour}
)

func secretName(cluster string) string { return cluster + "-kubeconfig" }

// kubeconfigKey is the key of a CAPI kubeconfig Secret.
const kubeconfigKey = "value"

// writeCredentials issues a token and puts it into the cluster's kubeconfig
// Secret, of the form that CAPI gives it.
func writeCredentials(ctx context.Context, m *management, w *workload, c credentials) error {
	raw, err := w.plane.TokenKubeconfig(ctx, w.proxy.URL(), c.account, c.life)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: secretName(w.name)}}
	_, err = controllerutil.CreateOrUpdate(ctx, m, secret, func() error {
		secret.Labels = map[string]string{clusterv1.ClusterNameLabel: w.name}
		secret.Type = clusterv1.ClusterSecretType
		secret.Data = map[string][]byte{kubeconfigKey: raw}
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// tokenConfigs are configurations with the credentials that are now in the kubeconfig
// Secrets, which the hub uses.
func tokenConfigs(ctx context.Context, m *management) (map[string]*rest.Config, error) {
	configs := map[string]*rest.Config{}
	for _, name := range Environments {
		secret := &corev1.Secret{}
		if err := m.Get(ctx, client.ObjectKey{Namespace: fleetNamespace, Name: secretName(name)}, secret); err != nil {
			return nil, err
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[kubeconfigKey])
		if err != nil {
			return nil, fmt.Errorf("reading the kubeconfig of %s: %w", name, err)
		}
		configs[name] = config
	}
	return configs, nil
}

// hubConfig is the hub's own, with the rights of its ServiceAccount only.
func hubConfig(ctx context.Context, m *management) (*rest.Config, error) {
	const life = 24 * time.Hour
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(life.Seconds()))}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: hubAccount}}
	if err := m.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("requesting the hub's token: %w", err)
	}
	config := rest.AnonymousClientConfig(m.plane.Config())
	config.BearerToken = request.Status.Token
	return config, nil
}

// revoke ends every token of the account permanently: a new account of that name has another
// UID.
func (w *workload) revoke(ctx context.Context, c credentials) error {
	return w.client.Delete(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: c.account}})
}

// Users of the management cluster. Both may change Promotions; alice also has the
// verb that lets her approve, and may request promotions.
const (
	alice   = "alice"
	mallory = "mallory"

	// viewer and approver are their ClusterRoles.
	viewer, approver = "playground-team", "playground-approver"
)

func declareUsers(ctx context.Context, m *management, files *files) error {
	objects := []client.Object{
		role(viewer,
			rbacv1.PolicyRule{APIGroups: []string{"pipelines.weave.works"}, Resources: []string{"pipelines"}, Verbs: []string{"get", "list", "watch"}},
			rbacv1.PolicyRule{APIGroups: []string{capstanv1.GroupVersion.Group}, Resources: []string{"promotions"}, Verbs: []string{"get", "list", "watch", "patch", "update"}}),
		role(approver,
			rbacv1.PolicyRule{APIGroups: []string{capstanv1.GroupVersion.Group}, Resources: []string{"promotions"}, Verbs: []string{"approve"}},
			rbacv1.PolicyRule{APIGroups: []string{capstanv1.GroupVersion.Group}, Resources: []string{"promotionrequests"}, Verbs: []string{"create", "get", "list", "watch"}}),
		binding(viewer, alice, mallory),
		binding(approver, alice),
	}
	for _, obj := range objects {
		if err := m.Create(ctx, obj); err != nil {
			return fmt.Errorf("declaring users: %w", err)
		}
	}
	for _, user := range []string{alice, mallory} {
		raw, err := m.plane.UserKubeconfig("", user)
		if err != nil {
			return err
		}
		if err := files.kubeconfig(user, raw); err != nil {
			return err
		}
	}
	raw, err := m.plane.Kubeconfig("")
	if err != nil {
		return err
	}
	return files.kubeconfig(managementName, raw)
}

func role(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func binding(role string, users ...string) *rbacv1.ClusterRoleBinding {
	b := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	for _, user := range users {
		b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	return b
}
