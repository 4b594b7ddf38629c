package alerts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// patience with programs that start on a loaded machine.
const patience = 90 * time.Second

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(patience)
	os.Exit(leaks.Main(m.Run))
}

// world is a namespace of a management cluster with Flux's notification-controller and the hub.
type world struct {
	*WithT
	t  *testing.T
	c  client.Client
	ns string
}

// object of a manifest in the namespace.
func (w *world) object(manifest string) *unstructured.Unstructured {
	w.t.Helper()
	u := &unstructured.Unstructured{}
	w.Expect(yaml.Unmarshal([]byte(manifest), &u.Object)).To(Succeed())
	u.SetNamespace(w.ns)
	return u
}

// component applies config/flux-notifications to Flux's definition of Alerts, as kustomize does
// for users.
func component(t *testing.T, c client.Client) {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	crd, err := os.ReadFile(filepath.Join(controlplane.Root(), "bin", "crds", "notification-controller", "notification.toolkit.fluxcd.io_alerts.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, "alerts.yaml"), crd, 0o600)).To(Succeed())
	shipped, err := filepath.EvalSymlinks(filepath.Join("..", "..", "config", "flux-notifications"))
	g.Expect(err).NotTo(HaveOccurred())
	shipped, err = filepath.Abs(shipped)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.CopyFS(filepath.Join(dir, "flux-notifications"), os.DirFS(shipped))).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: [alerts.yaml]\ncomponents: [flux-notifications]\n"), 0o600)).To(Succeed())
	var stderr bytes.Buffer
	kubectl := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "kustomize", dir)
	kubectl.Stderr = &stderr
	out, err := kubectl.Output()
	g.Expect(err).NotTo(HaveOccurred(), stderr.String())
	for document := range strings.SplitSeq(string(out), "\n---\n") {
		u := &unstructured.Unstructured{}
		g.Expect(yaml.Unmarshal([]byte(document), &u.Object)).To(Succeed())
		g.Expect(c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kustomize"), client.ForceOwnership)).To(Succeed(), document)
	}
}

const anyPipeline = `[{kind: Pipeline, name: "*"}]`

// newWorld makes a namespace, and applies config/flux-notifications to Flux's definition of Alerts.
// Before, the API server must refuse an Alert that selects Pipelines; newWorld returns when it
// accepts it.
func newWorld(t *testing.T, config *rest.Config, namespace string) *world {
	t.Helper()
	g := NewWithT(t)
	scheme := hub.Scheme()
	g.Expect(helmv2.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(config, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	w := &world{WithT: g, t: t, c: c, ns: namespace}
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}})).To(Succeed())
	refused := c.Create(t.Context(), w.object(`{apiVersion: notification.toolkit.fluxcd.io/v1beta3, kind: Alert, metadata: {name: early}, spec: {providerRef: {name: x}, eventSources: `+anyPipeline+`}}`))
	g.Expect(apierrors.IsInvalid(refused)).To(BeTrue(), "Flux itself permits the kind Pipeline now, so the component is not needed: %v", refused)
	component(t, c)
	g.Eventually(func() error { // The API server takes a moment to enforce a changed definition.
		return client.IgnoreAlreadyExists(c.Create(t.Context(), w.object(`{apiVersion: notification.toolkit.fluxcd.io/v1beta3, kind: Alert, metadata: {name: probe}, spec: {providerRef: {name: x}, suspend: true, eventSources: `+anyPipeline+`}}`)))
	}).Should(Succeed())
	return w
}

// TestComponent: the shipped component and samples apply to Flux's definitions. An Alert that
// selects Pipelines is refused before, and accepted with it; a kind that neither Flux nor Capstan
// has stays refused. notification-controller may read Pipelines.
func TestComponent(t *testing.T) {
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan", "notification-controller")})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(plane.Stop()).To(Succeed()) })
	w := newWorld(t, plane.Config(), "component")
	invalid := w.c.Create(t.Context(), w.object(`{apiVersion: notification.toolkit.fluxcd.io/v1beta3, kind: Alert, metadata: {name: other}, spec: {providerRef: {name: x}, eventSources: [{kind: Promotion, name: "*"}]}}`))
	w.Expect(apierrors.IsInvalid(invalid)).To(BeTrue(), "%v", invalid)
	var role rbacv1.ClusterRole
	w.Expect(w.c.Get(t.Context(), client.ObjectKey{Name: "capstan-flux-notifications"}, &role)).To(Succeed())
	w.Expect(role.Rules[0].Resources).To(Equal([]string{"pipelines"}))
	for _, name := range []string{"eventingbackend", "provider", "alert"} {
		manifest, err := os.ReadFile(filepath.Join("..", "..", "config", "flux-notifications", "samples", name+".yaml"))
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(w.c.Create(t.Context(), w.object(string(manifest)))).To(Succeed(), name)
	}
}
