package fleet

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"code.gitea.io/sdk/gitea"
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/flux"
	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/strategy"
)

const (
	// The repository with the manifests of billing.
	organisation, repositoryName = "platform", "fleet"
	// robot is the hub's user at Gitea, and repositorySecret has its credentials.
	robot            = "capstan"
	repositorySecret = "fleet-repository"
	// promotionID is in the body of a pull request, before the identity of its promotion.
	promotionID = "Promotion-ID: "

	giteaCAName = "gitea.crt"
)

// billingTeam has its manifests in a repository of Gitea, and merges the hub's pull requests.
// It starts in the middle of the story: Gitea may be built until then.
type billingTeam struct {
	out        io.Writer
	files      *files
	management *management
	workloads  workloads
	build      *giteaBuild
	parts      *parts

	// gitea has the repository; the hub is robot there. All are set by start.
	gitea      *git.Server
	repository *git.Repository
	robot      git.Account

	// mergedFrom is the branch of the pull request that was merged last, and deletions how often Gitea had deleted it before.
	mergedFrom string
	deletions  int
}

// newBillingTeam is not started. Its parts end at this place of the teardown.
func newBillingTeam(out io.Writer, files *files, m *management, w workloads, build *giteaBuild, parts *parts) *billingTeam {
	return &billingTeam{out: out, files: files, management: m, workloads: w, build: build, parts: parts.nested()}
}

func (b *billingTeam) started() bool { return b.repository != nil }

// start waits for Gitea, starts it, declares the Pipeline, and waits until the first revision
// is deployed.
func (b *billingTeam) start(ctx context.Context) error {
	if err := b.build.wait(ctx, b.out); err != nil {
		return err
	}
	say(b.out, "\nStarting Gitea, and deploying %s %s everywhere from a repository", billing, firstRevision)
	if err := b.startGitea(ctx); err != nil {
		return fmt.Errorf("starting Gitea: %w", err)
	}
	b.parts.start("Flux of the repository", b.sync().Start)
	// A Pipeline that exists before the application does promotes it where it is not there yet.
	if err := deployed(ctx, b.workloads, billing); err != nil {
		return err
	}
	if err := b.declare(ctx); err != nil {
		return err
	}
	say(b.out, "The pull requests, from another terminal:")
	printCommands(b.out, "curl -s --cacert "+b.files.path(giteaCAName)+" '"+b.apiURL("/pulls?state=all")+`' | grep -o '"title":"[^"]*"'`)
	return nil
}

// startGitea starts Gitea with the repository, and an account for the hub.
func (b *billingTeam) startGitea(ctx context.Context) (err error) {
	if b.gitea, err = git.Start(ctx); err != nil {
		return err
	}
	b.parts.down.add(b.gitea.Stop)
	b.parts.start("Gitea", b.gitea.Alive)
	manifests := map[string]string{}
	for _, env := range Environments {
		manifests[billingPath(env)] = billingManifest(env, firstRevision)
	}
	repository, err := b.gitea.CreateRepository(ctx, organisation, repositoryName, manifests)
	if err != nil {
		return err
	}
	if b.robot, err = b.gitea.AddUser(ctx, robot); err != nil {
		return err
	}
	if err := repository.Allow(ctx, robot); err != nil {
		return err
	}
	b.repository = repository
	return b.files.write(giteaCAName, b.gitea.CA())
}

// sync applies the repository to the clusters.
func (b *billingTeam) sync() flux.Sync {
	clusters := map[string]client.Client{}
	for name, w := range b.workloads {
		clusters[name] = w.client
	}
	return flux.Sync{
		Repository: flux.GitRepository{
			URL: b.repository.URL(), Branch: git.Main, CA: b.gitea.CA(),
			Username: b.gitea.Admin().Username, Password: b.gitea.Admin().Token,
		},
		Clusters: clusters,
		Logger:   funcr.New(func(_, said string) { say(b.out, "      Flux: %s", said) }, funcr.Options{}),
	}
}

// declare the Pipeline, and the hub's credentials for the repository.
func (b *billingTeam) declare(ctx context.Context) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: repositorySecret},
		StringData: map[string]string{
			"username": b.robot.Username, "password": b.robot.Token, "token": b.robot.Token, "caFile": string(b.gitea.CA()),
		},
	}
	if err := b.management.Create(ctx, secret); err != nil {
		return fmt.Errorf("declaring the repository's Secret: %w", err)
	}
	pipeline := pipelineBilling(pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{
		Type: pipelinesv1.Gitea, URL: b.repository.URL(), BaseBranch: git.Main,
		SecretRef: pipelinesv1.LocalObjectReference{Name: repositorySecret},
	}})
	if err := b.management.Create(ctx, pipeline); err != nil {
		return fmt.Errorf("declaring Pipeline %s: %w", pipeline.Name, err)
	}
	return nil
}

// apiURL is a URL of Gitea's API for the repository, with the administrator's password of
// this playground.
func (b *billingTeam) apiURL(path string) string {
	return b.withPassword(b.gitea.URL() + "/api/v1/repos/" + b.repository.Owner + "/" + b.repository.Name + path)
}

func (b *billingTeam) withPassword(url string) string {
	admin := b.gitea.Admin()
	return strings.Replace(url, "://", "://"+admin.Username+":"+admin.Password+"@", 1)
}

// pullRequests of the repository; none before start.
func (b *billingTeam) pullRequests(ctx context.Context) ([]*gitea.PullRequest, error) {
	if !b.started() {
		return nil, nil
	}
	return b.repository.PullRequests(ctx)
}

func billingPath(env string) string { return path.Join("clusters", env, billing+".yaml") }

// billingManifest is the team's. The environments that are promoted into have the marker; the
// team chooses the version in dev.
func billingManifest(env, revision string) string {
	marker := ""
	if env != dev {
		marker = fmt.Sprintf(` # {"$promotion": "%s:%s:%s"}`, appsNamespace, billing, env)
	}
	return strings.NewReplacer("$APP", billing, "$API", helmv2.GroupVersion.String(), "$VERSION", revision+marker).Replace(`apiVersion: v1
kind: Namespace
metadata:
  name: $APP
---
apiVersion: $API
kind: HelmRelease
metadata:
  namespace: $APP
  name: $APP
spec:
  interval: 1h
  chart:
    spec:
      chart: $APP
      version: $VERSION
      sourceRef: {kind: HelmRepository, name: charts}
`)
}

// developers release in dev by a commit.
func (b *billingTeam) developers() developers {
	return developers{app: billing, release: func(ctx context.Context, revision string) error {
		_, err := b.repository.Commit(ctx, git.Main, billingPath(dev), "Release "+billing+" "+revision,
			func(string) string { return billingManifest(dev, revision) })
		return err
	}}
}

// merge waits for the pull request of a promotion into an environment, and merges it.
func (b *billingTeam) merge(ctx context.Context, s *stage, promotions promotions, env, revision string) error {
	return b.mergeOf(ctx, s, fmt.Sprintf("a pull request for %s %s in %s is open", billing, revision, env), func(ctx context.Context) (*capstanv1.Promotion, error) {
		return promotions.only(ctx, billing, env, revision, capstanv1.PhaseAwaitingMerge)
	})
}

// mergeOf waits for the pull request of the promotion that find returns, and merges it.
func (b *billingTeam) mergeOf(ctx context.Context, s *stage, expects string, find func(context.Context) (*capstanv1.Promotion, error)) error {
	var open *gitea.PullRequest
	if err := s.await(ctx, expects, func(ctx context.Context) error {
		p, err := find(ctx)
		if err != nil {
			return err
		}
		opened, err := b.repository.PullRequests(ctx)
		if err != nil {
			return err
		}
		found := pullRequestsOf(opened, strategy.Identity(p))
		if len(found) != 1 || found[0].HTMLURL != p.Status.URL {
			return fmt.Errorf("%d pull requests of the Promotion %s, whose own is %q", len(found), p.Name, p.Status.URL)
		}
		open = found[0]
		return nil
	}); err != nil {
		return err
	}
	b.mergedFrom = open.Head.Ref
	var err error
	if b.deletions, err = b.repository.Deletions(ctx, b.mergedFrom); err != nil {
		return err
	}
	if err := b.repository.Merge(ctx, open.Index); err != nil {
		return err
	}
	s.note("%q is merged: %s", open.Title, open.HTMLURL)
	return nil
}

// tidied: the hub has deleted the branch of the pull request that was merged last, and Gitea has handled the deletion. A pull
// request that is opened before that is closed by Gitea, and opened again by the hub at its next check.
func (b *billingTeam) tidied(ctx context.Context) error {
	deletions, err := b.repository.Deletions(ctx, b.mergedFrom)
	if err == nil && deletions <= b.deletions {
		err = fmt.Errorf("branch %s is not deleted", b.mergedFrom)
	}
	return err
}

// pullRequestsOf the promotion with that identity, open or not.
func pullRequestsOf(all []*gitea.PullRequest, identity string) []*gitea.PullRequest {
	var found []*gitea.PullRequest
	for _, pr := range all {
		if claims(pr, identity) {
			found = append(found, pr)
		}
	}
	return found
}

// claims: the body of the pull request has the identity of the promotion.
func claims(pr *gitea.PullRequest, identity string) bool {
	for line := range strings.Lines(pr.Body) {
		if strings.TrimSpace(line) == promotionID+identity {
			return true
		}
	}
	return false
}
