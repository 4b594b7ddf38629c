package fleet

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/simulated"
)

// The Pipeline edge and its environments: dev is one simulated cluster, and stores are all that have the label.
const (
	edge       = "edge"
	edgeDev    = "edge-dev"
	stores     = "stores"
	edgeApp    = "app-0" // The application that simulated clusters have.
	deadStore  = "edge-10"
	newStore   = "edge-12"
	storeCount = 10
)

var storeLabels = map[string]string{"tier": stores}

// edgeClusters are simulated workload clusters by name: edge-dev, ten stores, of which the first two are in ring 0 and the last
// does not answer, and one that is no store yet.
type edgeClusters map[string]*simulated.Cluster

// startEdge starts the clusters, and declares them and the Pipeline edge.
func startEdge(ctx context.Context, m *management, down *teardown) (edgeClusters, error) {
	const size = 2 << 10
	started, err := simulated.New(simulated.Options{Clusters: storeCount + 2, Applications: 1, ApplicationBytes: size, Revision: firstRevision})
	if err != nil {
		return nil, err
	}
	down.add(func() error { started.Close(); return nil })
	clusters := edgeClusters{}
	for i, c := range started.Clusters() {
		name, labels := storeName(i), map[string]string{}
		switch {
		case i == 0:
			name = edgeDev
		case i > storeCount:
			name = newStore
		default:
			labels["tier"] = stores
			if i <= 2 {
				labels["ring"] = "0"
			}
		}
		clusters[name] = c
		if err := declareEdgeCluster(ctx, m, name, labels, c.Kubeconfig()); err != nil {
			return nil, fmt.Errorf("declaring cluster %s: %w", name, err)
		}
	}
	clusters[deadStore].Set(simulated.Refuse)
	if err := m.Create(ctx, pipelineEdge()); err != nil {
		return nil, fmt.Errorf("declaring Pipeline %s: %w", edge, err)
	}
	return clusters, nil
}

func storeName(i int) string { return fmt.Sprintf("edge-%02d", i) }

func declareEdgeCluster(ctx context.Context, m *management, name string, labels map[string]string, kubeconfig []byte) error {
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: name, Labels: labels},
		Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: loopbackHost, Port: 6443}},
	}
	if err := m.Create(ctx, cluster); err != nil {
		return err
	}
	return m.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: secretName(name), Labels: map[string]string{clusterv1.ClusterNameLabel: name}},
		Type:       clusterv1.ClusterSecretType,
		Data:       map[string][]byte{kubeconfigKey: kubeconfig},
	})
}

// loopbackHost is written into Clusters; the hub reads the kubeconfig instead.
const loopbackHost = "127.0.0.1"

// pipelineEdge promotes to the stores in three waves, of which one store may be lost.
func pipelineEdge() *pipelinesv1.Pipeline {
	return &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: edge},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:    pipelinesv1.LocalAppReference{APIVersion: helmv2.GroupVersion.String(), Kind: helmv2.HelmReleaseKind, Name: edgeApp},
			Promotion: &pipelinesv1.Promotion{Strategy: byNotification},
			Environments: []pipelinesv1.Environment{
				{Name: dev, Targets: []pipelinesv1.Target{{Namespace: simulated.Namespace, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{
					APIVersion: clusterv1.GroupVersion.String(), Kind: pipelinesv1.ClusterKindCluster, Namespace: fleetNamespace, Name: edgeDev,
				}}}},
				{
					Name: stores,
					Targets: []pipelinesv1.Target{{Namespace: simulated.Namespace, Clusters: &pipelinesv1.ClusterSelector{
						Namespace: fleetNamespace, Selector: metav1.LabelSelector{MatchLabels: storeLabels},
					}}},
					Quorum: &pipelinesv1.Quorum{Lost: &pipelinesv1.LostTargets{After: "1m", Max: intstr.FromInt32(1)}, JoinWithin: "5s"},
					Waves: []pipelinesv1.Wave{
						{Name: "canary", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "0"}}, Soak: &pipelinesv1.Soak{For: "3s"}},
						{Name: "rest", Batches: 2},
					},
				},
			},
		},
	}
}

// act does what Git and Flux do for a wave of the stores: each of its clusters gets the revision.
func (c edgeClusters) act(n notification) error {
	if !strings.HasPrefix(n.Environment, pipelinesv1.StageName(stores, "")) {
		return fmt.Errorf("%w: %q", errNotOurs, n.Environment)
	}
	for _, cluster := range n.Clusters {
		if store := c[strings.TrimPrefix(cluster, fleetNamespace+"/")]; store != nil {
			store.Deploy(0, n.Revision)
		}
	}
	return nil
}
