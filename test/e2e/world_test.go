package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/flux"
	"github.com/capstan-hub/capstan/playground/git"
)

const dev, staging, prod = "dev", "staging", "prod"

// environments of most Pipelines, in order; each has a cluster of its name.
var environments = []string{dev, staging, prod}

// world is the hub and its environment.
type world struct {
	*testing.T
	g *WithT
	// dir of the hub's process, its log, and kubeconfigs.
	dir string
	// clusters are the names of the workload clusters.
	clusters   []string
	management *controlplane.ControlPlane
	admin      client.Client
	workloads  map[string]*workload
	gitea      *git.Server
	repository *git.Repository
	robot      git.Account
	hub        *hubProcess
	// expected are the promotions that must have exactly one pull request each.
	expected []expected
}

// workload is one workload cluster.
type workload struct {
	plane  *controlplane.ControlPlane
	client client.Client
	helm   *flux.HelmController
}

// newWorld starts everything but the hub, until the end of the test.
func newWorld(t *testing.T) *world {
	t.Helper()
	began := time.Now()
	w := begin(t, (*world).installConfig, environments...)
	w.createFleetRepository()
	w.startFlux()
	w.declarePipelines()
	w.settle()
	t.Cleanup(w.endHub)
	t.Logf("%.1f s: clusters, Gitea and Flux are up", time.Since(began).Seconds())
	return w
}

// begin starts the clusters and Gitea, until the end of the test, and installs Capstan in the
// management cluster, which knows the others.
func begin(t *testing.T, install func(*world), clusters ...string) *world {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	before := goleak.IgnoreCurrent()
	g := NewWithT(t)
	t.Cleanup(func() { g.Eventually(func() error { return goleak.Find(before) }).Should(Succeed()) })
	w := &world{T: t, g: g, dir: t.TempDir(), clusters: clusters, workloads: map[string]*workload{}}
	w.startPlanes()
	w.startGitea()
	w.namespace(fleetNamespace)
	w.namespace(appsNamespace)
	install(w)
	w.declareFleet()
	return w
}

// part runs one part as a subtest.
func (w *world) part(name string, run func(*world)) {
	w.Helper()
	w.Run(name, func(t *testing.T) {
		inner := *w
		inner.T, inner.g = t, NewWithT(t)
		t.Cleanup(func() { w.hub, w.expected = inner.hub, inner.expected })
		run(&inner)
	})
}

// startPlanes starts the control planes, two at a time.
func (w *world) startPlanes() {
	w.Helper()
	const management, atOnce = "management", 2
	crds := map[string][]string{management: controlplane.CRDs("cluster-api", "cluster-controller", "helm-controller", "kustomize-controller")}
	for _, name := range w.clusters {
		crds[name] = controlplane.CRDs("helm-controller", "kustomize-controller", "source-controller")
	}
	started := make(chan *controlplane.ControlPlane, len(crds))
	planes := make(map[string]chan *controlplane.ControlPlane, len(crds))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for name, paths := range crds {
		options := controlplane.Options{CRDs: paths}
		if name != management {
			options.Names = []string{clusterBehind(name)}
		}
		plane := make(chan *controlplane.ControlPlane, 1)
		planes[name] = plane
		group.Go(func() error {
			p, err := controlplane.Start(options)
			if err != nil {
				return fmt.Errorf("cluster %s: %w", name, err)
			}
			started <- p
			plane <- p
			return nil
		})
	}
	err := group.Wait()
	close(started)
	w.Cleanup(func() {
		var stop errgroup.Group
		for p := range started {
			stop.Go(p.Stop)
		}
		w.g.Expect(stop.Wait()).To(Succeed())
	})
	w.g.Expect(err).NotTo(HaveOccurred())

	scheme := w.scheme()
	w.management = <-planes[management]
	w.admin = w.clientOf(w.management, scheme)
	for _, name := range w.clusters {
		plane := <-planes[name]
		w.workloads[name] = &workload{plane: plane, client: w.clientOf(plane, scheme)}
	}
}

func (w *world) scheme() *runtime.Scheme {
	w.Helper()
	scheme := hub.Scheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, helmv2.AddToScheme} {
		w.g.Expect(add(scheme)).To(Succeed())
	}
	return scheme
}

func (w *world) clientOf(plane *controlplane.ControlPlane, scheme *runtime.Scheme) client.Client {
	w.Helper()
	config := plane.Config()
	config.QPS = -1 // Tests poll often.
	c, err := client.New(config, client.Options{Scheme: scheme})
	w.g.Expect(err).NotTo(HaveOccurred())
	return c
}

// startGitea starts Gitea with the hub's account.
func (w *world) startGitea() {
	w.Helper()
	var err error
	w.gitea, err = git.Start(w.Context(), gitBehind)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("The last log lines of Gitea:\n%s", w.gitea.Log())
		}
		w.g.Expect(w.gitea.Stop()).To(Succeed())
	})
	w.robot, err = w.gitea.AddUser(w.Context(), "capstan")
	w.g.Expect(err).NotTo(HaveOccurred())
}

// createFleetRepository creates the repository with the manifests of shop and billing.
func (w *world) createFleetRepository() {
	w.Helper()
	files := map[string]string{"README.md": "What runs where.\n"}
	for _, env := range environments {
		for _, app := range []string{shop, billing} {
			files[manifestPath(env, app)] = manifest(env, app, firstRevision)
		}
	}
	w.createRepository("fleet", files)
}

// createRepository creates a repository that the hub may write to.
func (w *world) createRepository(name string, files map[string]string) {
	w.Helper()
	var err error
	w.repository, err = w.gitea.CreateRepository(w.Context(), "platform", name, files)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.repository.Allow(w.Context(), w.robot.Username)).To(Succeed())
}

// startFlux starts helm-controller and the simulation of the other controllers, which applies the main branch of the repository to the clusters.
func (w *world) startFlux() {
	w.Helper()
	charts, err := flux.NewCharts()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.during(charts.Start)
	clients := map[string]client.Client{}
	for _, name := range w.clusters {
		load := w.workloads[name]
		clients[name] = load.client
		sources, err := flux.NewSourceAgent(flux.SourceAgentOptions{Config: load.plane.Config(), Charts: charts, Logger: logr.Discard()})
		w.g.Expect(err).NotTo(HaveOccurred())
		w.during(sources.Start)
		kubeconfig, err := load.plane.Kubeconfig("")
		w.g.Expect(err).NotTo(HaveOccurred())
		load.helm, err = flux.StartHelmController(kubeconfig)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.Cleanup(func() {
			if w.Failed() {
				w.Logf("The last log lines of helm-controller of %s:\n%s", name, load.helm.Log())
			}
			w.g.Expect(load.helm.Stop()).To(Succeed())
		})
	}
	w.during(flux.Sync{
		Repository: flux.GitRepository{
			URL: w.repository.URL(), Branch: git.Main, CA: w.gitea.CA(),
			Username: w.gitea.Admin().Username, Password: w.gitea.Admin().Token,
		},
		Clusters: clients,
		Logger:   testr.New(w.T),
	}.Start)
}

// during calls start in a goroutine, and cancels its context at the end of the test.
func (w *world) during(start func(context.Context) error) {
	w.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx) }()
	w.Cleanup(func() {
		stop()
		w.g.Expect(<-ended).To(Succeed())
	})
}

// kubectl runs kubectl as an administrator of the management cluster.
func (w *world) kubectl(args ...string) {
	w.Helper()
	kubeconfig, err := w.management.Kubeconfig("")
	w.g.Expect(err).NotTo(HaveOccurred())
	args = append([]string{"--kubeconfig", w.file("admin.kubeconfig", kubeconfig)}, args...)
	command := exec.CommandContext(w.Context(), filepath.Join(controlplane.Root(), "bin", "envtest", "kubectl"), args...)
	command.Dir = controlplane.Root()
	out, err := command.CombinedOutput()
	w.g.Expect(err).NotTo(HaveOccurred(), string(out))
}

// file writes a file into the test's directory and returns its path.
func (w *world) file(name string, content []byte) string {
	w.Helper()
	const mode = 0o600
	path := filepath.Join(w.dir, name)
	w.g.Expect(os.WriteFile(path, content, mode)).To(Succeed())
	return path
}
