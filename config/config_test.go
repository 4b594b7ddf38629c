// Package config_test applies the manifests of this directory to a real API server
// with kubectl, as a user does, and checks the rights, policies and objects that result.
package config_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

const (
	// patience is the time limit for conditions that an idle machine meets at once. The
	// API server enforces a new admission policy after one or two seconds.
	patience = 30 * time.Second
	// hubUser is the hub's own user name.
	hubUser = "system:serviceaccount:capstan-system:capstan-hub"
)

// world is shared by the tests of this package: a management cluster with
// config/default applied.
var world struct {
	plane   *controlplane.ControlPlane
	kubectl string
	env     []string
	admin   client.Client
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	failed := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	log.SetLogger(logr.Discard())
	// Capstan's own CRDs come with config/default.
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("cluster-api", "cluster-controller")})
	if err != nil {
		return failed(err)
	}
	defer func() {
		if err := plane.Stop(); err != nil {
			code = failed(err)
		}
	}()
	world.plane = plane
	home, err := os.MkdirTemp("", "capstan-config-")
	if err != nil {
		return failed(err)
	}
	defer func() {
		if err := os.RemoveAll(home); err != nil {
			code = failed(err)
		}
	}()
	if err := setUp(home); err != nil {
		return failed(err)
	}
	return m.Run()
}

func setUp(home string) error {
	kubeconfig, err := world.plane.Kubeconfig("")
	if err != nil {
		return err
	}
	path := filepath.Join(home, "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return err
	}
	// kubectl caches discovery in HOME: each run has its own.
	world.env = append(os.Environ(), "KUBECONFIG="+path, "HOME="+home)
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join(controlplane.Root(), "bin", "envtest")
	}
	world.kubectl = filepath.Join(assets, "kubectl")

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), capstanv1.AddToScheme(scheme), pipelinesv1.AddToScheme(scheme), eventingv1.AddToScheme(scheme)); err != nil {
		return err
	}
	world.admin, err = client.New(world.plane.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if _, warnings, err := kubectl(context.Background(), "apply", "-k", "default"); err != nil {
		return err
	} else if warnings != "" {
		return fmt.Errorf("config/default applies with warnings: %s", warnings)
	}
	return nil
}

// kubectl runs in this directory, against the management cluster.
func kubectl(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	command := exec.CommandContext(ctx, world.kubectl, args...)
	command.Env = world.env
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	if err := command.Run(); err != nil {
		return out.String(), complaints.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, complaints.String())
	}
	return out.String(), complaints.String(), nil
}

// as returns a client that impersonates the user.
func as(t *testing.T, user string) client.Client {
	t.Helper()
	g := NewWithT(t)
	config := world.plane.Config()
	if strings.HasPrefix(user, "system:serviceaccount:") {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	} else {
		var err error
		config, err = world.plane.UserConfig(user)
		g.Expect(err).NotTo(HaveOccurred())
	}
	c, err := client.New(config, client.Options{Scheme: world.admin.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

// namespace creates a namespace for one test.
func namespace(t *testing.T, name string) string {
	t.Helper()
	g := NewWithT(t)
	g.Expect(world.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	return name
}

// bind gives a user a role in a namespace, which may patch Promotions.
func bind(t *testing.T, namespace, kind, role, user string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(world.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role + "-" + user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
	g.Eventually(func() (bool, error) { // The API server applies the binding a moment later.
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: "patch", Group: capstanv1.GroupVersion.Group, Resource: "promotions",
			},
		}}
		err := world.admin.Create(t.Context(), review)
		return review.Status.Allowed, err
	}).WithTimeout(patience).Should(BeTrue())
}

// allow creates a role in a namespace and binds it to a user.
func allow(t *testing.T, namespace, role, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(world.admin.Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role}, Rules: rules,
	})).To(Succeed())
	bind(t, namespace, "Role", role, user)
}
