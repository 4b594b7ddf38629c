package e2e

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"code.gitea.io/sdk/gitea"
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/git"
)

// expected is a promotion that must have exactly one pull request.
type expected struct{ app, env, revision string }

func (p expected) title() string {
	return fmt.Sprintf("Promote %s/%s in %s to %s", appsNamespace, p.app, p.env, p.revision)
}

func (p expected) branch() string {
	return fmt.Sprintf("promotion-%s-%s-%s", appsNamespace, p.app, p.env)
}

// source is the previous environment.
func (p expected) source() string {
	before := ""
	for _, env := range environments {
		if env == p.env {
			return before
		}
		before = env
	}
	return ""
}

// hop is one promotion and the times of its observed steps.
type hop struct {
	expected
	url                                string
	observed, opened, merged, finished time.Time
}

// revisionIsPromoted: a new chart version in dev is promoted to prod by two pull requests.
func (w *world) revisionIsPromoted() {
	const revision = "1.1.0"
	w.startHub(direct...)
	w.hubReady()
	w.atRest(firstRevision)

	began := time.Now()
	w.release(revision, shop)
	var hops []hop
	for _, env := range environments[1:] {
		hops = append(hops, w.hop(expected{shop, env, revision}))
	}
	w.atRest(firstRevision, billing)
	w.audit()
	w.stopHub()
	w.Logf("every hop, in seconds after %s was committed for dev:\n%s", revision, table(hops, began))
}

// settle waits until the first revision is installed everywhere, so that the hub starts
// with an idle fleet.
func (w *world) settle() {
	w.Helper()
	for _, env := range environments {
		for _, app := range []string{shop, billing} {
			w.g.Eventually(func(g Gomega) { w.installed(g, app, env, firstRevision) }).Should(Succeed())
		}
	}
}

// release commits a new version for dev, as the teams' CI does.
func (w *world) release(revision string, apps ...string) {
	w.Helper()
	for _, app := range apps {
		_, err := w.repository.Commit(w.Context(), git.Main, manifestPath(dev, app), fmt.Sprintf("Release %s %s", app, revision),
			func(string) string { return manifest(dev, app, revision) })
		w.g.Expect(err).NotTo(HaveOccurred())
		for _, env := range environments[1:] {
			w.expected = append(w.expected, expected{app, env, revision})
		}
	}
}

// hop follows a promotion from the observed revision to its end, and merges its pull request.
func (w *world) hop(p expected) hop {
	w.Helper()
	h := hop{expected: p}
	w.g.Eventually(func() error { return w.agreed(p.app, p.source(), p.revision) }).Should(Succeed())
	h.observed = time.Now()

	pr := w.open(p)
	h.opened, h.url = time.Now(), pr.HTMLURL
	w.checkPullRequest(p, pr)

	w.g.Expect(w.repository.Merge(w.Context(), pr.Index)).To(Succeed())
	h.merged = time.Now()
	w.succeeded(p, h.url)
	h.finished = time.Now()
	return h
}

// open waits for the promotion's pull request.
func (w *world) open(p expected) (pr *gitea.PullRequest) {
	w.Helper()
	w.g.Eventually(func(g Gomega) {
		all, err := w.repository.PullRequests(w.Context())
		g.Expect(err).NotTo(HaveOccurred())
		var ours []*gitea.PullRequest
		for _, one := range all {
			if one.Title == p.title() {
				ours = append(ours, one)
			}
		}
		g.Expect(ours).To(HaveLen(1), "pull requests %q; %s", p.title(), w.ledger(p))
		pr = ours[0]
	}).Should(Succeed())
	return pr
}

// checkPullRequest checks that the pull request is from the environment's own branch, and
// changes the marked scalar and nothing else.
func (w *world) checkPullRequest(p expected, pr *gitea.PullRequest) {
	w.Helper()
	w.g.Expect(pr.State).To(Equal(gitea.StateOpen))
	w.g.Expect(pr.Base.Ref).To(Equal(git.Main))
	w.g.Expect(pr.Head.Ref).To(Equal(p.branch()))
	w.g.Expect(pr.Poster.UserName).To(Equal(w.robot.Username))
	w.g.Expect(pr.Body).To(ContainSubstring("%s/%s/%s", appsNamespace, p.app, p.env))
	c, err := w.gitea.Client(w.Context(), w.gitea.Admin())
	w.g.Expect(err).NotTo(HaveOccurred())
	files, _, err := c.ListPullRequestFiles(w.repository.Owner, w.repository.Name, pr.Index, gitea.ListPullRequestFilesOptions{})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(files).To(HaveExactElements(HaveField("Filename", manifestPath(p.env, p.app))))
	w.g.Expect(w.repository.Read(w.Context(), p.branch(), manifestPath(p.env, p.app))).To(Equal(manifest(p.env, p.app, p.revision)))
}

// succeeded waits until the promotion is over and the real helm-controller has
// installed the revision.
func (w *world) succeeded(p expected, url string) {
	w.Helper()
	w.g.Eventually(func(g Gomega) {
		found := w.promotionsOf(g, p)
		g.Expect(found).To(HaveExactElements(HaveField("Status.Phase", capstanv1.PhaseSucceeded)), w.ledger(p))
		g.Expect(found[0].Status.URL).To(Equal(url))
		w.installed(g, p.app, p.env, p.revision)
	}).Should(Succeed())
}

// installed checks that helm-controller's status has the revision.
func (w *world) installed(g Gomega, app, env, revision string) {
	release := &helmv2.HelmRelease{}
	g.Expect(w.workloads[env].client.Get(w.Context(), client.ObjectKey{Namespace: app, Name: app}, release)).To(Succeed())
	g.Expect(apimeta.IsStatusConditionTrue(release.Status.Conditions, "Ready")).To(BeTrue(), "%s in %s: %v", app, env, release.Status.Conditions)
	g.Expect(release.Status.History).NotTo(BeEmpty())
	latest := release.Status.History.Latest()
	g.Expect(latest.Status).To(Equal("deployed"))
	// An OCIRepository appends twelve characters of the artifact's digest.
	g.Expect(latest.ChartVersion).To(HavePrefix(revision + "+"))
}

// atRest waits until the applications (all, if none is named) run the revision
// everywhere, according to the status of their Pipelines.
func (w *world) atRest(revision string, apps ...string) {
	w.Helper()
	if len(apps) == 0 {
		apps = []string{shop, billing}
	}
	for _, app := range apps {
		for _, env := range environments {
			w.g.Eventually(func() error { return w.agreed(app, env, revision) }).Should(Succeed())
		}
	}
}

// agreed checks that the hub has observed the revision in all targets of the environment.
func (w *world) agreed(app, env, revision string) error {
	p := &pipelinesv1.Pipeline{}
	if err := w.admin.Get(w.Context(), client.ObjectKey{Namespace: appsNamespace, Name: app}, p); err != nil {
		return err
	}
	status := p.Status.Environments[env]
	if status == nil || status.Agreed == nil || status.Agreed.Revision != revision {
		return fmt.Errorf("%s in %s does not run %s as the Pipeline has it: %+v; conditions %+v", app, env, revision, status, p.Status.Conditions)
	}
	return nil
}

func (w *world) promotionsOf(g Gomega, p expected) []capstanv1.Promotion {
	var list capstanv1.PromotionList
	g.Expect(w.admin.List(w.Context(), &list, client.InNamespace(appsNamespace))).To(Succeed())
	var found []capstanv1.Promotion
	for _, one := range list.Items {
		if one.Spec.Pipeline.Name == p.app && one.Spec.Environment == p.env && one.Spec.Revision == p.revision {
			found = append(found, one)
		}
	}
	return found
}

// ledger returns the state of the Promotions, for the message of a failure.
func (w *world) ledger(p expected) string {
	var states []string
	for _, one := range w.promotionsOf(w.g, p) {
		states = append(states, fmt.Sprintf("Promotion %s is %s: %s: %s (%s)", one.Name, one.Status.Phase, one.Status.Reason, one.Status.Message, one.Status.URL))
	}
	return fmt.Sprintf("%d Promotions. %s. The last log lines of the hub:\n%s", len(states), strings.Join(states, "; "), w.hub.Tail())
}

// audit compares all pull requests, branches and Promotions with the expected ones: each
// exists once and is merged, and there are no others.
func (w *world) audit() {
	w.Helper()
	all, err := w.repository.PullRequests(w.Context())
	w.g.Expect(err).NotTo(HaveOccurred())
	var titles, titlesExpected []string
	branches := map[string]bool{git.Main: true}
	for _, pr := range all {
		w.g.Expect(pr.HasMerged).To(BeTrue(), "%q is %s", pr.Title, pr.State)
		titles = append(titles, pr.Title)
	}
	for _, p := range w.expected {
		titlesExpected = append(titlesExpected, p.title())
		branches[p.branch()] = true
		// The hub writes the Promotion after the Pipeline.
		w.g.Eventually(func(g Gomega) {
			g.Expect(w.promotionsOf(g, p)).To(HaveExactElements(HaveField("Status.Phase", capstanv1.PhaseSucceeded)), "%+v", p)
		}).Should(Succeed())
	}
	w.g.Expect(titles).To(ConsistOf(titlesExpected), "one pull request for each promotion, and no other")
	var promotions capstanv1.PromotionList
	w.g.Expect(w.admin.List(w.Context(), &promotions)).To(Succeed())
	w.g.Expect(promotions.Items).To(HaveLen(len(titlesExpected)))
	found, err := w.repository.Branches(w.Context())
	w.g.Expect(err).NotTo(HaveOccurred())
	for _, name := range found {
		w.g.Expect(branches).To(HaveKey(name), "no other branch exists")
	}
}

// table formats the times of hops, in seconds after a start.
func table(hops []hop, began time.Time) string {
	var out strings.Builder
	rows := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "  promotion\tobserved\tpull request\tmerged\trolled out\t")
	for _, h := range hops {
		fmt.Fprintf(rows, "  %s %s into %s", h.app, h.revision, h.env)
		for _, at := range []time.Time{h.observed, h.opened, h.merged, h.finished} {
			fmt.Fprintf(rows, "\t%.1f", at.Sub(began).Seconds())
		}
		fmt.Fprintf(rows, "\t%s\n", h.url)
	}
	_ = rows.Flush()
	return out.String()
}
