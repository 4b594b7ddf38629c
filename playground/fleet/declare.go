package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// Namespaces of the management cluster, and the two Pipelines.
const (
	// hubNamespace and hubAccount are those of config/rbac.
	hubNamespace   = "capstan-system"
	hubAccount     = "capstan-hub"
	fleetNamespace = "fleet"
	appsNamespace  = "apps"

	shop    = "shop"    // automatic, by notifications
	billing = "billing" // by pull requests; prod is manual
)

const (
	firstRevision = "1.0.0"
	fieldOwner    = client.FieldOwner("playground")
	// fluxPause is the time between the steps of a release: long enough for a watch to see them.
	fluxPause = 200 * time.Millisecond
)

// declare creates what administrators and the team of shop create.
func declare(ctx context.Context, m *management, clusters workloads, files *files, installation []byte) error {
	for _, name := range []string{hubNamespace, fleetNamespace, appsNamespace} {
		if err := m.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	if err := install(ctx, m, installation); err != nil {
		return err
	}
	if err := declareUsers(ctx, m, files); err != nil {
		return err
	}
	for _, name := range Environments {
		if err := declareCluster(ctx, m, clusters[name], files); err != nil {
			return fmt.Errorf("declaring cluster %s: %w", name, err)
		}
	}
	gitops := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gitops.weave.works/v1alpha1",
		"kind":       pipelinesv1.ClusterKindGitopsCluster,
		"metadata":   map[string]any{"namespace": fleetNamespace, "name": prod},
		"spec":       map[string]any{"capiClusterRef": map[string]any{"name": prod}},
	}}
	if err := m.Create(ctx, gitops); err != nil {
		return fmt.Errorf("declaring the GitopsCluster: %w", err)
	}
	if err := m.Create(ctx, pipelineShop()); err != nil {
		return fmt.Errorf("declaring Pipeline %s: %w", shop, err)
	}
	return nil
}

// install applies the manifests that an installation has: the policies, the webhooks, the
// hub's rights, and those to the Secrets of the namespaces with credentials.
func install(ctx context.Context, m *management, installation []byte) error {
	if len(installation) > 0 {
		objects, err := decodeManifest(bytes.NewReader(installation))
		if err != nil {
			return fmt.Errorf("the installation: %w", err)
		}
		if err := apply(ctx, m, "", objects); err != nil {
			return err
		}
		return aliasService(ctx, m)
	}
	for _, manifests := range []struct{ dir, namespace string }{
		{"admission", ""}, {"webhook", ""}, {"rbac", ""}, {"rbac/cluster-secrets", fleetNamespace}, {"rbac/pipeline-secrets", appsNamespace},
	} {
		if err := applyManifests(ctx, m, filepath.Join(controlplane.Root(), "config", manifests.dir), manifests.namespace); err != nil {
			return err
		}
	}
	return aliasService(ctx, m)
}

// pipelineShop is automatic; it names the prod cluster by its GitopsCluster.
func pipelineShop() *pipelinesv1.Pipeline {
	p := pipeline(shop, byNotification)
	p.Spec.Environments[len(p.Spec.Environments)-1].Targets[0].ClusterRef = &pipelinesv1.CrossNamespaceClusterReference{
		APIVersion: "gitops.weave.works/v1alpha1", Kind: pipelinesv1.ClusterKindGitopsCluster,
		Namespace: fleetNamespace, Name: prod,
	}
	return p
}

// pipelineBilling waits for an approval before prod.
func pipelineBilling(by pipelinesv1.Strategy) *pipelinesv1.Pipeline {
	p := pipeline(billing, by)
	p.Spec.Environments[len(p.Spec.Environments)-1].Promotion = &pipelinesv1.Promotion{Manual: true, Strategy: by}
	return p
}

var byNotification = pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}

func pipeline(app string, by pipelinesv1.Strategy) *pipelinesv1.Pipeline {
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: app},
		Spec: pipelinesv1.PipelineSpec{
			AppRef: pipelinesv1.LocalAppReference{
				APIVersion: helmv2.GroupVersion.String(), Kind: helmv2.HelmReleaseKind, Name: app,
			},
			Promotion: &pipelinesv1.Promotion{Strategy: by},
		},
	}
	for _, name := range Environments {
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{
			Name: name,
			Targets: []pipelinesv1.Target{{
				Namespace: app,
				ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{
					APIVersion: clusterv1.GroupVersion.String(), Kind: pipelinesv1.ClusterKindCluster,
					Namespace: fleetNamespace, Name: name,
				},
			}},
		})
	}
	return p
}

// declareCluster declares a CAPI Cluster in the state that its providers produce, with the
// Secret of its kubeconfig.
func declareCluster(ctx context.Context, m *management, w *workload, files *files) error {
	host, port, ok := strings.Cut(strings.TrimPrefix(w.proxy.URL(), "https://"), ":")
	number, err := strconv.ParseInt(port, 10, 32)
	if !ok || err != nil {
		return fmt.Errorf("the proxy's address %q: %w", w.proxy.URL(), err)
	}
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: w.name},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: host, Port: int32(number)},
			InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: infrastructureGroup, Kind: "AWSCluster", Name: w.name},
		},
	}
	if err := m.Create(ctx, cluster); err != nil {
		return err
	}
	if err := m.Create(ctx, infrastructure("AWSCluster", w.name, map[string]any{"region": region})); err != nil {
		return err
	}
	cluster.Status.SetTypedPhase(clusterv1.ClusterPhaseProvisioned)
	if err := m.Status().Update(ctx, cluster); err != nil {
		return err
	}
	if err := writeCredentials(ctx, m, w, firstCredentials); err != nil {
		return err
	}
	direct, err := w.plane.Kubeconfig("")
	if err != nil {
		return err
	}
	return files.kubeconfig(w.name, direct)
}

// deployShop declares the first revision of shop everywhere and waits until it is deployed.
func deployShop(ctx context.Context, clusters workloads) error {
	for _, w := range clusters {
		if err := w.release(shop).Declare(ctx, firstRevision); err != nil {
			return err
		}
	}
	return deployed(ctx, clusters, shop)
}

// deployed waits until Flux has deployed an application everywhere.
func deployed(ctx context.Context, clusters workloads, app string) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, w := range clusters {
		release := w.release(app)
		group.Go(func() error {
			return eventually(ctx, func(ctx context.Context) error {
				obj := &helmv2.HelmRelease{}
				if err := release.Client.Get(ctx, release.Key, obj); err != nil {
					return err
				}
				if obj.Status.ObservedGeneration != obj.Generation {
					return fmt.Errorf("HelmRelease %s in %s is not deployed yet", release.Key, name)
				}
				return nil
			})
		})
	}
	return group.Wait()
}

// applyManifests applies the Kubernetes objects of a folder of config, into the
// namespace if one is given.
func applyManifests(ctx context.Context, m *management, dir, namespace string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		read, err := readManifest(path)
		if err != nil {
			return err
		}
		objects = append(objects, read...)
	}
	if err := apply(ctx, m, namespace, objects); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// apply objects, into the namespace if one is given.
func apply(ctx context.Context, m *management, namespace string, objects []*unstructured.Unstructured) error {
	applied := 0
	for _, obj := range objects {
		if obj.GroupVersionKind().Group == "kustomize.config.k8s.io" {
			continue
		}
		if namespace != "" {
			obj.SetNamespace(namespace)
		}
		if err := m.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
		applied++
	}
	if applied == 0 {
		return errors.New("there is no manifest")
	}
	return nil
}

func readManifest(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	objects, err := decodeManifest(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return objects, nil
}

func decodeManifest(from io.Reader) ([]*unstructured.Unstructured, error) {
	const buffer = 4 << 10
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(from, buffer); ; {
		obj := &unstructured.Unstructured{}
		switch err := decoder.Decode(&obj.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(obj.Object) > 0:
			objects = append(objects, obj)
		}
	}
}
