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

// declareFleet applies config/ to the management cluster, and creates the clusters with
// their kubeconfigs, as an administrator does.
func (w *world) declareFleet() {
	w.Helper()
	for _, name := range []string{systemNamespace, fleetNamespace, appsNamespace} {
		w.g.Expect(w.admin.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	w.kubectl("apply", "-k", "config/admission")
	w.kubectl("apply", "-k", "config/rbac")
	w.kubectl("apply", "-n", fleetNamespace, "-k", "config/rbac/cluster-secrets")
	w.kubectl("apply", "-n", appsNamespace, "-k", "config/rbac/pipeline-secrets")
	const validity = 8 * time.Hour
	for _, name := range environments {
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

// declarePipelines creates the Pipelines, as the teams do.
func (w *world) declarePipelines() {
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
	for _, app := range []string{shop, billing} {
		p := &pipelinesv1.Pipeline{
			ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: app},
			Spec: pipelinesv1.PipelineSpec{
				AppRef: pipelinesv1.LocalAppReference{APIVersion: helmv2.GroupVersion.String(), Kind: helmv2.HelmReleaseKind, Name: app},
				Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{
					Type:       pipelinesv1.Gitea,
					URL:        w.repository.URL(),
					BaseBranch: git.Main,
					SecretRef:  pipelinesv1.LocalObjectReference{Name: repositorySecret},
				}}},
			},
		}
		for _, env := range environments {
			p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{
				Name: env,
				Targets: []pipelinesv1.Target{{
					Namespace: app,
					ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{
						APIVersion: clusterv1.GroupVersion.String(), Kind: pipelinesv1.ClusterKindCluster, Namespace: fleetNamespace, Name: env,
					},
				}},
			})
		}
		w.g.Expect(w.admin.Create(w.Context(), p)).To(Succeed())
	}
}
