package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log" //nolint:depguard // The registry takes no other logger.
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"code.gitea.io/sdk/gitea"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/flux"
	"github.com/capstan-hub/capstan/playground/git"
)

// The applications, each with a Pipeline, a repository, and a namespace in each cluster, of its name.
// Its Kustomization is promoted by that part of the revision.
const byCommit, byTag, byDigest = "by-commit", "by-tag", "by-digest"

const (
	fluxInterval = "2s"
	// manyIntervals is how long a promotion that repeats itself is waited for.
	manyIntervals = 10 * time.Second
)

// TestKustomizations promotes Kustomizations by pull requests from the cluster dev to the cluster
// prod. In each cluster, Flux's source-controller and kustomize-controller apply a directory of the
// repository in Gitea, as `flux bootstrap` configures them.
func TestKustomizations(t *testing.T) {
	began := time.Now()
	w := begin(t, (*world).installConfig, dev, prod)
	w.startKustomize()
	t.Cleanup(w.endHub)
	w.startHub(direct...)
	w.hubReady()
	t.Logf("%.1f s: clusters, Gitea, Flux and the hub are up", time.Since(began).Seconds())
	w.part("a commit of the repository that the hub writes to is promoted once", (*world).commitIsPromotedOnce)
	w.part("the tag of an artifact is promoted", (*world).tagIsPromoted)
	w.part("the digest of an artifact is promoted", (*world).digestIsPromoted)
	w.stopHub()
}

// startKustomize starts source-controller and kustomize-controller in each cluster.
func (w *world) startKustomize() {
	w.Helper()
	for _, cluster := range w.clusters {
		kubeconfig, err := w.workloads[cluster].plane.Kubeconfig("")
		w.g.Expect(err).NotTo(HaveOccurred())
		sources, err := flux.StartSourceController(kubeconfig)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.Cleanup(func() { w.end(cluster, "source-controller", sources) })
		kustomize, err := flux.StartKustomizeController(kubeconfig)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.Cleanup(func() { w.end(cluster, "kustomize-controller", kustomize) })
	}
}

// controller is a process of one of Flux's controllers.
type controller interface {
	Log() string
	Stop() error
}

// end stops a controller, and prints its log if the test has failed.
func (w *world) end(cluster, name string, of controller) {
	w.Helper()
	if w.Failed() {
		w.Logf("The last log lines of %s of %s:\n%s", name, cluster, of.Log())
	}
	w.g.Expect(of.Stop()).To(Succeed())
}

// commitIsPromotedOnce: dev runs the main branch of the repository, which also has the manifests of
// prod. So each merge of a promotion gives dev another commit, which the hub must not promote: it
// differs only in what the promotion wrote. The hub merges by itself, so that no user could end the loop.
func (w *world) commitIsPromotedOnce() {
	const app = byCommit
	w.createRepository(app, map[string]string{
		content(app):           configMap("1.0.0"),
		manifestPath(dev, app): kustomization(app, "GitRepository", "fleet", "./app"),
	})
	release := func(version string) string {
		commit, err := w.repository.Commit(w.Context(), git.Main, content(app), "Release "+version, func(string) string { return configMap(version) })
		w.g.Expect(err).NotTo(HaveOccurred())
		return commit
	}
	old := release("1.1.0")
	w.commitManifest(prod, app, w.gitSource(app, "commit", old, app+":prod:commit")+"---\n"+kustomization(app, "GitRepository", app, "./app"))
	first := release("1.2.0")
	w.bootstrap(app)
	w.runs(dev, app, "main@sha1:"+first, "1.2.0")
	w.runs(prod, app, "sha1:"+old, "1.1.0")

	w.declareKustomization(app, true)
	w.promotedOnce(app, first, "1.2.0", 1)
	second := release("1.3.0")
	w.promotedOnce(app, second, "1.3.0", 2)
}

// promotedOnce waits until prod runs the commit and dev the merge of it, and then for a loop: there is
// one pull request for each of the releases, one Promotion that carried it out, and one of the merge,
// which brought nothing new.
func (w *world) promotedOnce(app, commit, version string, releases int) {
	w.Helper()
	w.runs(prod, app, "sha1:"+commit, version)
	var merge string
	w.g.Eventually(func(g Gomega) {
		branch, err := w.repository.Head(w.Context(), git.Main)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(branch).NotTo(Equal(commit))
		merge = branch
	}).Should(Succeed())
	w.runs(dev, app, "main@sha1:"+merge, version)
	once := func(g Gomega) {
		g.Expect(w.pullRequestsInto(app)).To(HaveLen(releases))
		g.Expect(w.pullRequestsInto(app)).To(HaveEach(HaveField("HasMerged", true)))
		all := w.promotionsInProd(g, app)
		g.Expect(all).To(HaveLen(2*releases), "%v", states(all))
		// What merged the commit may end when dev has the merge already.
		carried, merged := all[2*releases-2], all[2*releases-1]
		g.Expect(carried.Spec.Revision).To(Equal("main@sha1:" + commit))
		g.Expect(carried.Status.Phase + "/" + capstanv1.PromotionPhase(carried.Status.Reason)).To(BeElementOf(
			capstanv1.PhaseSucceeded+"/RolledOut", capstanv1.PhaseSuperseded+"/SourceMovedOn", capstanv1.PhaseSuperseded+"/NewerPromotion"))
		g.Expect(merged.Spec.Revision).To(Equal("main@sha1:" + merge))
		g.Expect(merged.Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
		g.Expect(merged.Status.Reason).To(Equal("NothingNew"))
		head, err := w.repository.Head(w.Context(), git.Main)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(head).To(Equal(merge), "nothing is merged again")
	}
	w.g.Eventually(once).Should(Succeed())
	w.g.Consistently(once).WithTimeout(manyIntervals).Should(Succeed())
	w.Logf("%s: %v", version, states(w.promotionsInProd(w.g, app)))
}

// tagIsPromoted: both environments follow tags of an OCI artifact.
func (w *world) tagIsPromoted() {
	pushed := w.startRegistry(byTag)
	pushed.push("1.0.0")
	w.artifactIsPromoted(pushed, "tag", "1.0.0", func(tag, digest string) (value, revision string) { return tag, tag + "@" + digest })
}

// digestIsPromoted: dev follows tags of an OCI artifact, and prod is pinned to digests.
func (w *world) digestIsPromoted() {
	pushed := w.startRegistry(byDigest)
	w.artifactIsPromoted(pushed, "digest", pushed.push("1.0.0"), func(_, digest string) (value, revision string) { return digest, digest })
}

// artifactIsPromoted promotes 1.1.0 of an artifact from dev, by a part of its revision. written
// returns what the marker of prod then has, and the revision that Flux reports.
func (w *world) artifactIsPromoted(pushed *artifacts, part, now string, written func(tag, digest string) (value, revision string)) {
	app := pushed.app
	inProd := func(value string) string {
		return pushed.source(part, value, app+":prod:"+part) + "---\n" + kustomization(app, "OCIRepository", app, "./")
	}
	inDev := func(tag string) string {
		return pushed.source("tag", tag, "") + "---\n" + kustomization(app, "OCIRepository", app, "./")
	}
	w.createRepository(app, map[string]string{manifestPath(dev, app): inDev("1.0.0"), manifestPath(prod, app): inProd(now)})
	w.bootstrap(app)
	first := pushed.push("1.0.0")
	_, revision := written("1.0.0", first)
	w.runs(dev, app, "1.0.0@"+first, "1.0.0")
	w.runs(prod, app, revision, "1.0.0")
	w.declareKustomization(app, false)
	w.g.Eventually(func() error { return w.agreed(app, dev, "1.0.0@"+first) }).Should(Succeed())
	w.g.Eventually(func() error { return w.agreed(app, prod, revision) }).Should(Succeed())

	digest := pushed.push("1.1.0")
	value, revision := written("1.1.0", digest)
	w.commitManifest(dev, app, inDev("1.1.0"))
	w.g.Eventually(func(g Gomega) { g.Expect(w.pullRequestsInto(app)).To(HaveLen(1)) }).Should(Succeed())
	pr := w.pullRequestsInto(app)[0]
	w.g.Expect(w.repository.Read(w.Context(), pr.Head.Ref, manifestPath(prod, app))).To(Equal(inProd(value)), "the marked value changes, and nothing else")
	w.g.Expect(w.repository.Merge(w.Context(), pr.Index)).To(Succeed())
	w.runs(dev, app, "1.1.0@"+digest, "1.1.0")
	w.runs(prod, app, revision, "1.1.0")
	once := func(g Gomega) {
		all := w.promotionsInProd(g, app)
		g.Expect(all).To(HaveExactElements(And(
			HaveField("Spec.Revision", "1.1.0@"+digest), HaveField("Status.Phase", capstanv1.PhaseSucceeded), HaveField("Status.URL", pr.HTMLURL))), "%v", states(all))
		g.Expect(w.pullRequestsInto(app)).To(HaveLen(1))
	}
	w.g.Eventually(once).Should(Succeed())
	w.g.Consistently(once).WithTimeout(absence).Should(Succeed())
	w.Logf("%v", states(w.promotionsInProd(w.g, app)))
}

// content is the path of what Flux applies for an application in its own repository.
func content(app string) string { return "app/" + app + ".yaml" }

// configMap is what an application consists of.
func configMap(version string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {version: " + version + "}\n"
}

// kustomization returns the Kustomization of an application, which applies the path of a source.
func kustomization(app, kind, source, path string) string {
	return strings.NewReplacer("$APP", app, "$INTERVAL", fluxInterval, "$KIND", kind, "$SOURCE", source, "$PATH", path).Replace(`apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata:
  namespace: $APP
  name: $APP
spec:
  interval: $INTERVAL
  retryInterval: 1s
  prune: true
  targetNamespace: $APP
  path: $PATH
  sourceRef: {kind: $KIND, name: $SOURCE}
`)
}

// ref returns the line of a source's reference, with a marker unless it is empty.
func ref(field, value, marker string) string {
	line := fmt.Sprintf("    %s: %s", field, value)
	if marker != "" {
		line += fmt.Sprintf(` # {"$promotion": "%s:%s"}`, appsNamespace, marker)
	}
	return line + "\n"
}

// gitSource returns the GitRepository of an application.
func (w *world) gitSource(app, field, value, marker string) string {
	return fmt.Sprintf("apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata:\n  namespace: %s\n  name: %s\nspec:\n  interval: %s\n  url: %s\n  secretRef: {name: fleet}\n  ref:\n%s",
		app, app, fluxInterval, w.repository.URL(), ref(field, value, marker))
}

func (w *world) commitManifest(env, app, text string) {
	w.Helper()
	_, err := w.repository.Commit(w.Context(), git.Main, manifestPath(env, app), "Change "+app+" in "+env, func(string) string { return text })
	w.g.Expect(err).NotTo(HaveOccurred())
}

// bootstrap makes Flux apply a directory of the repository in each cluster.
func (w *world) bootstrap(app string) {
	w.Helper()
	admin := w.gitea.Admin()
	for _, cluster := range w.clusters {
		c := w.workloads[cluster].client
		w.g.Expect(c.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: app}})).To(Succeed())
		w.g.Expect(c.Create(w.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: app, Name: "fleet"},
			Data:       map[string][]byte{"username": []byte(admin.Username), "password": []byte(admin.Token), "ca.crt": w.gitea.CA()},
		})).To(Succeed())
		for _, text := range []string{
			strings.Replace(w.gitSource(app, "branch", git.Main, ""), "name: "+app+"\n", "name: fleet\n", 1),
			strings.Replace(kustomization(app, "GitRepository", "fleet", "./clusters/"+cluster), "name: "+app+"\n", "name: fleet\n", 1),
		} {
			u := &unstructured.Unstructured{}
			w.g.Expect(yaml.Unmarshal([]byte(text), &u.Object)).To(Succeed())
			w.g.Expect(c.Create(w.Context(), u)).To(Succeed())
		}
	}
}

// runs waits until kustomize-controller has applied the revision to a cluster, with the version in it.
func (w *world) runs(cluster, app, revision, version string) {
	w.Helper()
	w.g.Eventually(func(g Gomega) {
		c := w.workloads[cluster].client
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("kustomize.toolkit.fluxcd.io/v1")
		u.SetKind("Kustomization")
		g.Expect(c.Get(w.Context(), client.ObjectKey{Namespace: app, Name: app}, u)).To(Succeed())
		applied, _, _ := unstructured.NestedString(u.Object, "status", "lastAppliedRevision")
		g.Expect(applied).To(Equal(revision), "%s in %s: %v", app, cluster, u.Object["status"])
		got := &corev1.ConfigMap{}
		g.Expect(c.Get(w.Context(), client.ObjectKey{Namespace: app, Name: "app"}, got)).To(Succeed())
		g.Expect(got.Data).To(HaveKeyWithValue("version", version))
	}).Should(Succeed())
}

// declareKustomization creates the Pipeline of an application.
func (w *world) declareKustomization(app string, autoMerge bool) {
	w.Helper()
	p := w.pipeline(app, pipelinesv1.LocalAppReference{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization", Name: app}, w.clusters...)
	p.Spec.Promotion.Strategy.PullRequest.AutoMerge = autoMerge
	w.g.Expect(w.admin.Create(w.Context(), p)).To(Succeed())
}

// promotionsInProd returns the Promotions of an application in their order.
func (w *world) promotionsInProd(g Gomega, app string) []capstanv1.Promotion {
	var list capstanv1.PromotionList
	g.Expect(w.admin.List(w.Context(), &list, client.InNamespace(appsNamespace))).To(Succeed())
	var found []capstanv1.Promotion
	for _, one := range list.Items {
		if one.Spec.Pipeline.Name == app {
			g.Expect(one.Spec.Environment).To(Equal(prod))
			found = append(found, one)
		}
	}
	return found
}

// states of Promotions, for messages.
func states(all []capstanv1.Promotion) []string {
	var lines []string
	for _, p := range all {
		lines = append(lines, fmt.Sprintf("%s %s: %s: %s", p.Spec.Revision, p.Status.Phase, p.Status.Reason, p.Status.Message))
	}
	return lines
}

// pullRequestsInto returns the pull requests of an application into prod.
func (w *world) pullRequestsInto(app string) []*gitea.PullRequest {
	w.Helper()
	all, err := w.repository.PullRequests(w.Context())
	w.g.Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(all, func(pr *gitea.PullRequest) bool {
		return !strings.HasPrefix(pr.Title, expected{app, prod, ""}.title())
	})
}

// artifacts is a registry with the artifacts of an application.
type artifacts struct {
	w    *world
	app  string
	host string
}

// startRegistry starts a registry until the end of the part.
func (w *world) startRegistry(app string) *artifacts {
	w.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	w.Cleanup(server.Close)
	return &artifacts{w: w, app: app, host: strings.TrimPrefix(server.URL, "http://")}
}

// source returns the OCIRepository of the application.
func (a *artifacts) source(field, value, marker string) string {
	return fmt.Sprintf("apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata:\n  namespace: %s\n  name: %s\nspec:\n  interval: %s\n  insecure: true\n  url: oci://%s/%s\n  ref:\n%s",
		a.app, a.app, fluxInterval, a.host, a.app, ref(field, value, marker))
}

// push pushes an artifact as `flux push artifact` does, and returns its digest.
func (a *artifacts) push(tag string) string {
	a.w.Helper()
	g := a.w.g
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	tape := tar.NewWriter(zip)
	text := configMap(tag)
	g.Expect(tape.WriteHeader(&tar.Header{Name: "app.yaml", Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg})).To(Succeed())
	_, err := tape.Write([]byte(text))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(tape.Close()).To(Succeed())
	g.Expect(zip.Close()).To(Succeed())
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.cncf.flux.config.v1+json")
	image, err = mutate.AppendLayers(image, static.NewLayer(packed.Bytes(), "application/vnd.cncf.flux.content.v1.tar+gzip"))
	g.Expect(err).NotTo(HaveOccurred())
	at, err := name.NewTag(a.host+"/"+a.app+":"+tag, name.Insecure)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(remote.Write(at, image, remote.WithContext(a.w.Context()))).To(Succeed())
	digest, err := image.Digest()
	g.Expect(err).NotTo(HaveOccurred())
	return digest.String()
}
