package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	// startTimeout covers a cold page cache and a machine with two busy cores. On an idle
	// machine a control plane is ready in 2 to 3 seconds.
	startTimeout = 90 * time.Second
	stopTimeout  = 30 * time.Second
	// rightsTimeout limits the wait until the API server applies a binding. It is asked every
	// rightsPoll.
	rightsTimeout = 30 * time.Second
	rightsPoll    = 20 * time.Millisecond
)

// ErrNoBinaries is returned by Start if the binaries do not exist.
var ErrNoBinaries = errors.New("kube-apiserver and etcd are not built: run `make controlplane`")

// Options of a control plane.
type Options struct {
	// CRDs are files or directories of CustomResourceDefinitions to install.
	CRDs []string
	// AuditLog is the file for the API server's audit log, which ReadAudit reads; no log when
	// empty.
	AuditLog string
	// EtcdData is the directory of etcd's data, which Stop keeps; a temporary one when empty. A
	// control plane that starts with a copy of the directory of a stopped one has its objects.
	EtcdData string
	// OIDC makes the API server accept the ID tokens of an OpenID Connect provider; nil for none.
	OIDC *OIDC
	// Names are host names that the API server has a certificate for, beside its own address: those
	// under which a proxy connects to it. The kubeconfigs have the certificate's authority.
	Names []string
}

// OIDC is what an API server knows of an OpenID Connect provider.
type OIDC struct {
	// Issuer of the ID tokens, and ClientID, their audience.
	Issuer, ClientID string
	// CAFile has the certificate of the provider's authority.
	CAFile string
	// UserClaim and GroupsClaim are the claims with the name and the groups of the user.
	// GroupsPrefix is put before each group.
	UserClaim, GroupsClaim, GroupsPrefix string
}

func (o OIDC) configure(arguments *envtest.Arguments) {
	arguments.Append("oidc-issuer-url", o.Issuer)
	arguments.Append("oidc-client-id", o.ClientID)
	arguments.Append("oidc-ca-file", o.CAFile)
	arguments.Append("oidc-username-claim", o.UserClaim)
	arguments.Append("oidc-groups-claim", o.GroupsClaim)
	arguments.Append("oidc-groups-prefix", o.GroupsPrefix)
}

// ControlPlane is a running kube-apiserver with its etcd.
type ControlPlane struct {
	env    *envtest.Environment
	config *rest.Config
	// namesDir has the certificate of Options.Names; empty without names.
	namesDir string

	// users guards env.AddUser, which counts certificates without a lock.
	users sync.Mutex
}

// Start starts a control plane and installs the CRDs.
func Start(o Options) (*ControlPlane, error) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join(Root(), "bin", "envtest")
	}
	if _, err := os.Stat(filepath.Join(assets, "kube-apiserver")); err != nil {
		return nil, fmt.Errorf("%w (not found in %s)", ErrNoBinaries, assets)
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		CRDDirectoryPaths:        o.CRDs,
		ErrorIfCRDPathMissing:    true,
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: startTimeout},
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  stopTimeout,
	}
	if o.EtcdData != "" {
		env.ControlPlane.Etcd = &envtest.Etcd{DataDir: o.EtcdData}
	}
	// No pods run here, so quotas and default mounts of service accounts only cost time.
	// Priority and fairness stays enabled, as in a real cluster.
	env.ControlPlane.GetAPIServer().Configure().Append("service-account-max-token-expiration", "24h")
	if o.AuditLog != "" {
		if err := audit(env.ControlPlane.GetAPIServer().Configure(), o.AuditLog); err != nil {
			return nil, err
		}
	}
	if o.OIDC != nil {
		o.OIDC.configure(env.ControlPlane.GetAPIServer().Configure())
	}
	c := &ControlPlane{env: env}
	var authority []byte
	if len(o.Names) > 0 {
		var err error
		if c.namesDir, authority, err = certify(env.ControlPlane.GetAPIServer().Configure(), o.Names); err != nil {
			return nil, err
		}
	}
	config, err := env.Start()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a control plane: %w", err), c.Stop())
	}
	config.CAData = append(config.CAData, authority...)
	c.config = config
	return c, nil
}

// Stop ends the processes.
func (c *ControlPlane) Stop() error {
	err := c.env.Stop()
	if c.namesDir != "" {
		err = errors.Join(err, os.RemoveAll(c.namesDir))
	}
	return err
}

// Config returns the rest.Config of an administrator (system:masters).
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// EtcdURL returns the address of etcd, which serves its API without credentials on loopback.
func (c *ControlPlane) EtcdURL() string { return c.env.ControlPlane.Etcd.URL.String() }

// Kubeconfig returns the administrator's kubeconfig, with a client certificate. Server is the
// address to use, such as that of a Proxy; empty for the control plane's own.
func (c *ControlPlane) Kubeconfig(server string) ([]byte, error) {
	return c.kubeconfig(server, &clientcmdapi.AuthInfo{
		ClientCertificateData: c.config.CertData,
		ClientKeyData:         c.config.KeyData,
	})
}

// UserKubeconfig returns a kubeconfig with a client certificate of a user. Each call issues a
// new certificate.
func (c *ControlPlane) UserKubeconfig(server, user string, groups ...string) ([]byte, error) {
	config, err := c.UserConfig(user, groups...)
	if err != nil {
		return nil, err
	}
	return c.kubeconfig(server, &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
	})
}

// UserConfig returns a rest.Config of a user, with a new client certificate.
func (c *ControlPlane) UserConfig(user string, groups ...string) (*rest.Config, error) {
	c.users.Lock()
	defer c.users.Unlock()
	u, err := c.env.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate for %s: %w", user, err)
	}
	return u.Config(), nil
}

// TokenKubeconfig returns a kubeconfig with a new bearer token of the ServiceAccount
// kube-system/<account>. The lifetime must be at least 10 minutes. If the ServiceAccount does
// not exist, it is created as a cluster-admin, like the user of a CAPI kubeconfig.
func (c *ControlPlane) TokenKubeconfig(ctx context.Context, server, account string, lifetime time.Duration) ([]byte, error) {
	token, err := c.Token(ctx, account, lifetime)
	if err != nil {
		return nil, err
	}
	return c.kubeconfig(server, &clientcmdapi.AuthInfo{Token: token})
}

// Token returns a new token as in TokenKubeconfig.
func (c *ControlPlane) Token(ctx context.Context, account string, lifetime time.Duration) (string, error) {
	set, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return "", err
	}
	const namespace = metav1.NamespaceSystem
	if err := c.ensureAdmin(ctx, set, namespace, account); err != nil {
		return "", fmt.Errorf("creating ServiceAccount %s/%s: %w", namespace, account, err)
	}
	seconds := int64(lifetime.Seconds())
	request, err := set.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token for %s/%s: %w", namespace, account, err)
	}
	return request.Status.Token, nil
}

func (c *ControlPlane) ensureAdmin(ctx context.Context, set kubernetes.Interface, namespace, account string) error {
	_, err := set.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = set.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = set.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "playground-" + account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// The API server applies the binding a moment later.
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + namespace + ":" + account, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "namespaces"},
	}}
	err = wait.PollUntilContextTimeout(ctx, rightsPoll, rightsTimeout, true, func(ctx context.Context) (bool, error) {
		answer, err := set.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	})
	if err != nil {
		return fmt.Errorf("waiting until it has the rights of cluster-admin: %w", err)
	}
	return nil
}

func (c *ControlPlane) kubeconfig(server string, user *clientcmdapi.AuthInfo) ([]byte, error) {
	if server == "" {
		server = c.config.Host
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos["user"] = user
	config.Contexts["context"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "user"}
	config.CurrentContext = "context"
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return raw, nil
}

// Root returns the root directory of the repository, derived from the path of this file, so
// that tests of any package find bin/.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// CRDs returns the directories with the CustomResourceDefinitions of products, such as
// cluster-api. `make crds crds-old` writes them to bin/crds; Capstan's own (capstan) are in
// config/crd/bases.
func CRDs(products ...string) []string {
	paths := make([]string, 0, len(products))
	for _, p := range products {
		if p == "capstan" {
			paths = append(paths, filepath.Join(Root(), "config", "crd", "bases"))
			continue
		}
		paths = append(paths, filepath.Join(Root(), "bin", "crds", p))
	}
	return paths
}
