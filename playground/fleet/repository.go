package fleet

import (
	"context"
	"fmt"
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
	// robot is who the hub is at Gitea, and repositorySecret how it knows.
	robot            = "capstan"
	repositorySecret = "fleet-repository"
	// promotionID stands in the body of a pull request, before the identity of the
	// promotion that it carries out.
	promotionID = "Promotion-ID: "

	giteaCAName = "gitea.crt"
)

// startGitea starts Gitea with the repository, and an account for the hub.
func (f *Fleet) startGitea(ctx context.Context, parts *parts) (err error) {
	if f.gitea, err = git.Start(ctx); err != nil {
		return err
	}
	parts.down.add(f.gitea.Stop)
	parts.start("Gitea", f.gitea.Alive)
	manifests := map[string]string{}
	for _, env := range Environments {
		manifests[billingPath(env)] = billingManifest(env, firstRevision)
	}
	if f.repository, err = f.gitea.CreateRepository(ctx, organisation, repositoryName, manifests); err != nil {
		return err
	}
	if f.robot, err = f.gitea.AddUser(ctx, robot); err != nil {
		return err
	}
	if err := f.repository.Allow(ctx, robot); err != nil {
		return err
	}
	return f.files.write(giteaCAName, f.gitea.CA())
}

// sync applies the repository to the clusters.
func (f *Fleet) sync() flux.Sync {
	clusters := map[string]client.Client{}
	for _, name := range Environments {
		clusters[name] = f.workloads[name].client
	}
	return flux.Sync{
		Repository: flux.GitRepository{
			URL: f.repository.URL(), Branch: git.Main, CA: f.gitea.CA(),
			Username: f.gitea.Admin().Username, Password: f.gitea.Admin().Token,
		},
		Clusters: clusters,
		Logger:   funcr.New(func(_, said string) { say(f.out, "      Flux: %s", said) }, funcr.Options{}),
	}
}

// declareRepository puts the hub's credentials for it into the management cluster.
func (f *Fleet) declareRepository(ctx context.Context) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: repositorySecret},
		StringData: map[string]string{
			"username": f.robot.Username, "password": f.robot.Token, "token": f.robot.Token, "caFile": string(f.gitea.CA()),
		},
	}
	if err := f.client.Create(ctx, secret); err != nil {
		return fmt.Errorf("declaring the repository's Secret: %w", err)
	}
	return nil
}

// byPullRequest is how billing is promoted.
func (f *Fleet) byPullRequest() pipelinesv1.Strategy {
	return pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{
		Type: pipelinesv1.Gitea, URL: f.repository.URL(), BaseBranch: git.Main,
		SecretRef: pipelinesv1.LocalObjectReference{Name: repositorySecret},
	}}
}

func billingPath(env string) string { return path.Join("clusters", env, billing+".yaml") }

// billingManifest is what the team wrote. The marker is in the environments that are
// promoted into; what dev runs the team decides.
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

// release in dev: a commit of the team, or, for shop, what its CI would do.
func (f *Fleet) release(ctx context.Context, app, revision string) error {
	if app != billing {
		return f.workloads[dev].release(app).Declare(ctx, revision)
	}
	_, err := f.repository.Commit(ctx, git.Main, billingPath(dev), "Release "+app+" "+revision,
		func(string) string { return billingManifest(dev, revision) })
	return err
}

// merge waits for the pull request of a promotion and merges it, as a reviewer would.
func (f *Fleet) merge(ctx context.Context, s *stage, pipeline, env, revision string) error {
	var open *gitea.PullRequest
	if err := s.await(ctx, fmt.Sprintf("a pull request asks for %s %s in %s", pipeline, revision, env), func(ctx context.Context) error {
		p, err := f.only(ctx, pipeline, env, revision, capstanv1.PhaseAwaitingMerge)
		if err != nil {
			return err
		}
		opened, err := f.repository.PullRequests(ctx)
		if err != nil {
			return err
		}
		found := pullRequests(opened, strategy.Identity(p))
		if len(found) != 1 || found[0].HTMLURL != p.Status.URL {
			return fmt.Errorf("%d pull requests of the Promotion %s, whose own is %q", len(found), p.Name, p.Status.URL)
		}
		open = found[0]
		return nil
	}); err != nil {
		return err
	}
	if err := f.repository.Merge(ctx, open.Index); err != nil {
		return err
	}
	s.note("%q is merged: %s", open.Title, open.HTMLURL)
	return nil
}

// pullRequests of the promotion with that identity, open or not.
func pullRequests(all []*gitea.PullRequest, identity string) []*gitea.PullRequest {
	var found []*gitea.PullRequest
	for _, pr := range all {
		if claims(pr, identity) {
			found = append(found, pr)
		}
	}
	return found
}

// claims: the pull request says that it is that promotion's.
func claims(pr *gitea.PullRequest, identity string) bool {
	for line := range strings.Lines(pr.Body) {
		if strings.TrimSpace(line) == promotionID+identity {
			return true
		}
	}
	return false
}
