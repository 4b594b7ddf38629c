package controlplane_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const (
	// patience is how long Eventually waits for steps that take moments on an idle machine.
	patience = 20 * time.Second
	// silence is how long a test waits to show that no answer comes: longer than any answer of
	// a server on loopback, and shorter than a client's own retries.
	silence = time.Second
)

// newest are the products whose CRDs are installed together in one cluster; the old ones are
// other versions of the same CRDs.
var (
	newest = []string{
		"capstan", "cluster-api", "cluster-api-provider-aws", "helm-controller",
		"kustomize-controller", "source-controller", "cluster-controller",
	}
	old = []string{"cluster-api-old", "cluster-api-provider-aws-old", "helm-controller-old"}
)

// plane is the control plane of all tests here.
var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(func() int {
		log.SetLogger(logr.Discard())
		started, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs(newest...)})
		if err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
			return 1
		}
		plane = started
		code := m.Run()
		if err := plane.Stop(); err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
			return 1
		}
		if err := leaks.FindAll(); err != nil && code == 0 {
			_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
			return 1
		}
		return code
	}())
}

func TestEveryProductIsEstablished(t *testing.T) {
	g := NewWithT(t)
	crds := established(g, t.Context(), plane)
	g.Expect(crds).To(HaveKeyWithValue("pipelines.pipelines.weave.works", []string{"v1alpha1"}))
	g.Expect(crds).To(HaveKeyWithValue("promotions.capstan.dev", []string{"v1alpha1"}))
	g.Expect(crds).To(HaveKeyWithValue("clusters.cluster.x-k8s.io", ConsistOf("v1beta1", "v1beta2")))
	g.Expect(crds).To(HaveKeyWithValue("helmreleases.helm.toolkit.fluxcd.io", []string{"v2"}))
	g.Expect(crds).To(HaveKeyWithValue("kustomizations.kustomize.toolkit.fluxcd.io", []string{"v1"}))
	g.Expect(crds).To(HaveKeyWithValue("gitopsclusters.gitops.weave.works", []string{"v1alpha1"}))
	g.Expect(crds).To(HaveKey("ocirepositories.source.toolkit.fluxcd.io"))
	g.Expect(crds).To(HaveKey("awsmachines.infrastructure.cluster.x-k8s.io"))
	for _, product := range newest {
		g.Expect(namesOf(g, product)).NotTo(BeEmpty(), product)
		for _, name := range namesOf(g, product) {
			g.Expect(crds).To(HaveKey(name), product)
		}
	}
}

func TestEarlierReleasesAreEstablished(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	earlier, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs(old...)})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(earlier.Stop()).To(Succeed()) }()

	crds := established(g, t.Context(), earlier)
	g.Expect(crds).To(HaveKeyWithValue("clusters.cluster.x-k8s.io", []string{"v1beta1"}))
	g.Expect(crds).To(HaveKeyWithValue("helmreleases.helm.toolkit.fluxcd.io", ConsistOf("v2", "v2beta1", "v2beta2")))
	g.Expect(crds).To(HaveKey("awsmachinepools.infrastructure.cluster.x-k8s.io"))

	// An API server without a conversion webhook converts between versions only by name: an
	// object is readable in each version.
	client, err := dynamic.NewForConfig(quiet(earlier.Config()))
	g.Expect(err).NotTo(HaveOccurred())
	releases := func(version string) dynamic.ResourceInterface {
		return client.Resource(schema.GroupVersionResource{
			Group: "helm.toolkit.fluxcd.io", Version: version, Resource: "helmreleases",
		}).Namespace("default")
	}
	release := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "helm.toolkit.fluxcd.io/v2beta1",
		"kind":       "HelmRelease",
		"metadata":   map[string]any{"name": "podinfo"},
		"spec": map[string]any{
			"interval": "1m",
			"chart": map[string]any{"spec": map[string]any{
				"chart": "podinfo", "sourceRef": map[string]any{"kind": "HelmRepository", "name": "podinfo"},
			}},
		},
	}}
	_, err = releases("v2beta1").Create(t.Context(), release, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, version := range []string{"v2beta1", "v2beta2", "v2"} {
		read, err := releases(version).Get(t.Context(), "podinfo", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred(), version)
		g.Expect(read.GetAPIVersion()).To(Equal("helm.toolkit.fluxcd.io/" + version))
	}
}

func TestKubeconfigs(t *testing.T) {
	g := NewWithT(t)
	admin, err := plane.Kubeconfig("")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(whoAmI(g, t.Context(), admin)).To(And(
		HaveField("Username", "admin"), HaveField("Groups", ContainElement("system:masters"))))

	user, err := plane.UserKubeconfig("", "ann", "team-a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(whoAmI(g, t.Context(), user)).To(And(
		HaveField("Username", "ann"), HaveField("Groups", ContainElement("team-a"))))
	_, err = clientOf(g, user).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "a user has no rights but what RBAC gives: %v", err)

	token, err := plane.TokenKubeconfig(t.Context(), "", "capi", 10*time.Minute)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(whoAmI(g, t.Context(), token)).To(HaveField("Username", "system:serviceaccount:kube-system:capi"))
	_, err = clientOf(g, token).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred(), "the account of a CAPI kubeconfig is a cluster-admin")

	again, err := plane.TokenKubeconfig(t.Context(), "", "capi", 10*time.Minute)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).NotTo(Equal(token), "each call issues another token")
}

// Tests that share a control plane do this at the same time.
func TestUsersAtTheSameTime(t *testing.T) {
	g := NewWithT(t)
	var serials sync.Map
	var all errgroup.Group
	for range 8 {
		all.Go(func() error {
			config, err := plane.UserConfig("ann")
			if err != nil {
				return err
			}
			block, _ := pem.Decode(config.CertData)
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return err
			}
			if _, twice := serials.LoadOrStore(certificate.SerialNumber.String(), true); twice {
				return fmt.Errorf("two certificates have the serial number %s", certificate.SerialNumber)
			}
			return nil
		})
	}
	g.Expect(all.Wait()).To(Succeed())
}

func TestProxyModes(t *testing.T) {
	g := NewWithT(t)
	proxy, err := controlplane.NewProxy(plane.Config().Host)
	g.Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := plane.Kubeconfig(proxy.URL())
	g.Expect(err).NotTo(HaveOccurred())
	client := clientOf(g, kubeconfig)
	ask := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		return err
	}
	g.Expect(ask(patience)).To(Succeed())

	watch, err := client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	defer watch.Stop()

	proxy.Set(controlplane.Swallow)
	err = ask(silence)
	g.Expect(errors.Is(err, context.DeadlineExceeded)).To(BeTrue(), "a black hole does not answer: %v", err)

	proxy.Set(controlplane.Pass)
	g.Expect(ask(patience)).To(Succeed(), "what was swallowed goes on")

	proxy.Set(controlplane.Refuse)
	g.Expect(ask(silence)).NotTo(Succeed())
	// An open watch ends when its connection is cut.
	g.Eventually(watch.ResultChan()).WithTimeout(patience).Should(BeClosed())

	proxy.Set(controlplane.Pass)
	g.Eventually(func() error { return ask(patience) }).WithTimeout(patience).Should(Succeed())

	proxy.Set(controlplane.Swallow)
	g.Expect(proxy.Close()).To(Succeed(), "Close ends what is swallowed as well")
	g.Expect(ask(silence)).NotTo(Succeed())
}

func TestStartWithoutBinaries(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
	_, err := controlplane.Start(controlplane.Options{})
	g.Expect(err).To(MatchError(controlplane.ErrNoBinaries))
	g.Expect(err).To(MatchError(ContainSubstring("make controlplane")))
}

// established waits until every CRD of the control plane is established, and returns the
// versions that each serves.
func established(g *WithT, ctx context.Context, c *controlplane.ControlPlane) map[string][]string {
	client, err := clientset.NewForConfig(quiet(c.Config()))
	g.Expect(err).NotTo(HaveOccurred())
	served := map[string][]string{}
	g.Eventually(func(g Gomega) {
		list, err := client.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		for _, crd := range list.Items {
			g.Expect(crd.Status.Conditions).To(ContainElement(And(
				HaveField("Type", apiextensionsv1.Established),
				HaveField("Status", apiextensionsv1.ConditionTrue))), crd.Name)
			served[crd.Name] = nil // reset in each poll
			for _, v := range crd.Spec.Versions {
				if v.Served {
					served[crd.Name] = append(served[crd.Name], v.Name)
				}
			}
		}
	}).WithTimeout(patience).Should(Succeed())
	return served
}

// namesOf returns the names of the CRDs in a product's directory.
func namesOf(g *WithT, product string) []string {
	path := controlplane.CRDs(product)[0]
	read := envtest.CRDInstallOptions{Paths: []string{path}}
	g.Expect(envtest.ReadCRDFiles(&read)).To(Succeed())
	names := make([]string, 0, len(read.CRDs))
	for _, crd := range read.CRDs {
		names = append(names, crd.Name)
	}
	return names
}

func clientOf(g *WithT, kubeconfig []byte) *kubernetes.Clientset {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	client, err := kubernetes.NewForConfig(quiet(config))
	g.Expect(err).NotTo(HaveOccurred())
	return client
}

func whoAmI(g *WithT, ctx context.Context, kubeconfig []byte) authenticationv1.UserInfo {
	review, err := clientOf(g, kubeconfig).AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	return review.Status.UserInfo
}

// quiet discards warnings about deprecated versions.
func quiet(config *rest.Config) *rest.Config {
	config.WarningHandler = rest.NoWarnings{}
	return config
}
