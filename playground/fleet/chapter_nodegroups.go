package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/hub/annotator/publication"
	"github.com/capstan-hub/capstan/internal/hubname"
)

const (
	infrastructureGroup = "infrastructure.cluster.x-k8s.io"

	// The node groups of dev; each begins with the template of its name.
	web, gpu = "web", "gpu"

	// The annotations that cluster-autoscaler reads.
	capacityPrefix = "capacity.cluster-autoscaler.kubernetes.io/"
	capacityLabels = capacityPrefix + "labels"
	// teamLabel is a label that users wrote.
	teamLabel = "team=vision"
)

// nodeGroupChapter declares two node groups and changes the template of one.
type nodeGroupChapter struct{ management *management }

func (c nodeGroupChapter) play(ctx context.Context, s *stage) error {
	m5 := map[string]string{"cpu": "2", "memory": "8192Mi"}
	g5 := map[string]string{"cpu": "4", "memory": "16384Mi", "gpu-type": "nvidia.com/gpu", "gpu-count": "1"}
	for _, group := range []struct{ name, instanceType string }{{web, "m5.large"}, {gpu, "g5.xlarge"}} {
		if err := c.declareNodeGroup(ctx, group.name, group.instanceType); err != nil {
			return err
		}
		s.note("MachineDeployment %s of %s is declared, of no replicas; its labels for nodes say %s", group.name, group.instanceType, teamLabel)
	}
	if err := s.await(ctx, "web has 2 CPUs, 8 GiB and no GPU, and the labels of an m5.large in "+region, c.has(web, "m5.large", m5)); err != nil {
		return err
	}
	if err := s.await(ctx, "gpu has 4 CPUs, 16 GiB and one nvidia.com/gpu, and the labels of a g5.xlarge", c.has(gpu, "g5.xlarge", g5)); err != nil {
		return err
	}
	group := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: gpu}}
	swap := fmt.Sprintf(`{"spec":{"template":{"spec":{"infrastructureRef":{"name":%q}}}}}`, web)
	if err := c.management.Patch(ctx, group, client.RawPatch("application/merge-patch+json", []byte(swap))); err != nil {
		return err
	}
	s.note("MachineDeployment gpu has the template of web")
	if err := s.await(ctx, "gpu is an m5.large now: the GPU's annotations are removed, "+teamLabel+" is still there", c.has(gpu, "m5.large", m5)); err != nil {
		return err
	}
	return s.await(ctx, "when EC2 listed the types of "+region+" is published for `capstan explain`", func(ctx context.Context) error {
		state, err := publication.Read(ctx, c.management, hubNamespace, hubname.Default)
		if err == nil && !slices.ContainsFunc(state.Regions, func(r catalogue.RegionState) bool { return r.Name == region && !r.Listed.IsZero() }) {
			err = fmt.Errorf("ConfigMap %s has the regions %v", publication.Name, state.Regions)
		}
		return err
	})
}

// declareNodeGroup of dev, with an AWSMachineTemplate of its name.
func (c nodeGroupChapter) declareNodeGroup(ctx context.Context, name, instanceType string) error {
	template := infrastructure("AWSMachineTemplate", name,
		map[string]any{"template": map[string]any{"spec": map[string]any{"instanceType": instanceType}}})
	if err := c.management.Create(ctx, template); err != nil {
		return fmt.Errorf("declaring AWSMachineTemplate %s: %w", name, err)
	}
	labels := map[string]string{clusterv1.ClusterNameLabel: dev, clusterv1.MachineDeploymentNameLabel: name}
	group := &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: name, Annotations: map[string]string{capacityLabels: teamLabel}},
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: dev,
			Replicas:    ptr.To[int32](0),
			Selector:    metav1.LabelSelector{MatchLabels: labels},
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: labels},
				Spec: clusterv1.MachineSpec{
					ClusterName: dev,
					Bootstrap:   clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{
						APIGroup: infrastructureGroup, Kind: "AWSMachineTemplate", Name: name,
					},
				},
			},
		},
	}
	if err := c.management.Create(ctx, group); err != nil {
		return fmt.Errorf("declaring MachineDeployment %s: %w", name, err)
	}
	return nil
}

// infrastructure is an object of CAPA's.
func infrastructure(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": infrastructureGroup + "/v1beta2",
		"kind":       kind,
		"metadata":   map[string]any{"namespace": fleetNamespace, "name": name},
		"spec":       spec,
	}}
}

// has: the node group has these capacities and no others, the labels of a node of the
// instance type, and the users' own label.
func (c nodeGroupChapter) has(name, instanceType string, capacities map[string]string) check {
	return func(ctx context.Context) error {
		group := &clusterv1.MachineDeployment{}
		if err := c.management.Get(ctx, client.ObjectKey{Namespace: fleetNamespace, Name: name}, group); err != nil {
			return err
		}
		got := map[string]string{}
		for key, value := range group.Annotations {
			if what, is := strings.CutPrefix(key, capacityPrefix); is && key != capacityLabels {
				got[what] = value
			}
		}
		if !maps.Equal(got, capacities) {
			return fmt.Errorf("MachineDeployment %s has the capacities %v", name, got)
		}
		labels := strings.Split(group.Annotations[capacityLabels], ",")
		for _, label := range []string{
			"kubernetes.io/arch=amd64", "kubernetes.io/os=linux",
			"node.kubernetes.io/instance-type=" + instanceType, "topology.kubernetes.io/region=" + region, teamLabel,
		} {
			if !slices.Contains(labels, label) {
				return fmt.Errorf("MachineDeployment %s has the labels %v, without %s", name, labels, label)
			}
		}
		return nil
	}
}
