package e2e

import (
	"fmt"
	"strings"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/git"
)

const (
	systemNamespace = "capstan-system"
	fleetNamespace  = "fleet"
	appsNamespace   = "apps"

	// The applications, each with a Pipeline and in each cluster a namespace of its
	// name.
	shop, billing = "shop", "billing"
	firstRevision = "1.0.0"

	repositorySecret = "fleet-repository"
)

func manifestPath(env, app string) string { return fmt.Sprintf("clusters/%s/%s.yaml", env, app) }

// manifest returns the manifest of an application as its team writes it. The team chooses
// the revision of dev; the other environments have a marker.
func manifest(env, app, revision string) string {
	marker := ""
	if env != dev {
		marker = fmt.Sprintf(` # {"$promotion": "%s:%s:%s"}`, appsNamespace, app, env)
	}
	return strings.NewReplacer("$APP", app, "$TAG", revision+marker).Replace(`apiVersion: v1
kind: Namespace
metadata:
  name: $APP
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata:
  namespace: $APP
  name: $APP
spec:
  interval: 1h
  url: oci://charts.playground.invalid/$APP
  ref:
    tag: $TAG
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata:
  namespace: $APP
  name: $APP
spec:
  interval: 1h
  chartRef: {kind: OCIRepository, name: $APP}
  install: {disableWait: true}
  upgrade: {disableWait: true}
`)
}

// installConfig applies config/ to the management cluster, as an administrator does.
func (w *world) installConfig() {
	w.Helper()
	w.namespace(systemNamespace)
	w.kubectl("apply", "--server-side", "-k", "config/crd")
	w.served()
	w.kubectl("apply", "-k", "config/admission")
	w.kubectl("apply", "-k", "config/rbac")
	w.kubectl("apply", "-n", fleetNamespace, "-k", "config/rbac/cluster-secrets")
	w.kubectl("apply", "-n", appsNamespace, "-k", "config/rbac/pipeline-secrets")
}

// served waits until the API server serves Capstan's kinds.
func (w *world) served() {
	w.Helper()
	w.kubectl("wait", "--for=condition=Established", "--all", "customresourcedefinitions")
}

func (w *world) namespace(name string) {
	w.Helper()
	w.g.Expect(w.admin.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
}

// declareFleet creates the clusters with their kubeconfigs, as an administrator does.
func (w *world) declareFleet() {
	w.Helper()
	w.declareRepositorySecret()
	const validity = 8 * time.Hour
	for _, name := range w.clusters {
		cluster := &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: name},
			Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}},
		}
		w.g.Expect(w.admin.Create(w.Context(), cluster)).To(Succeed())
		kubeconfig, err := w.workloads[name].plane.TokenKubeconfig(w.Context(), "", "capstan", validity)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(w.admin.Create(w.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: fleetNamespace, Name: name + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: name},
			},
			Type: clusterv1.ClusterSecretType,
			Data: map[string][]byte{"value": kubeconfig},
		})).To(Succeed())
	}
}

// declareRepositorySecret creates the Secret with the hub's account at Gitea.
func (w *world) declareRepositorySecret() {
	w.Helper()
	w.g.Expect(w.admin.Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: repositorySecret},
		Data: map[string][]byte{
			"username": []byte(w.robot.Username),
			"password": []byte(w.robot.Token),
			"token":    []byte(w.robot.Token),
			"caFile":   w.gitea.CA(),
		},
	})).To(Succeed())
}

// declarePipelines creates the Pipelines, as the teams do.
func (w *world) declarePipelines() {
	w.Helper()
	for _, app := range []string{shop, billing} {
		w.g.Expect(w.admin.Create(w.Context(), w.pipeline(app, helmRelease(app), environments...))).To(Succeed())
	}
}

func helmRelease(name string) pipelinesv1.LocalAppReference {
	return pipelinesv1.LocalAppReference{APIVersion: helmv2.GroupVersion.String(), Kind: helmv2.HelmReleaseKind, Name: name}
}

// pipeline returns a Pipeline that promotes by pull requests in the repository. Each environment has
// the cluster of its name, and there the namespace that has the name of the application.
func (w *world) pipeline(name string, app pipelinesv1.LocalAppReference, envs ...string) *pipelinesv1.Pipeline {
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: name},
		Spec: pipelinesv1.PipelineSpec{
			AppRef: app,
			Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{
				Type:       pipelinesv1.Gitea,
				URL:        w.repository.URL(),
				BaseBranch: git.Main,
				SecretRef:  pipelinesv1.LocalObjectReference{Name: repositorySecret},
			}}},
		},
	}
	for _, env := range envs {
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env, Targets: []pipelinesv1.Target{target(env, app.Name)}})
	}
	return p
}

// target is a namespace of a cluster.
func target(cluster, namespace string) pipelinesv1.Target {
	return pipelinesv1.Target{Namespace: namespace, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: pipelinesv1.ClusterKindCluster, Namespace: fleetNamespace, Name: cluster,
	}}
}
