package annotator

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/internal/capa"
)

// managedLabels are the domains of labels that Cluster API copies from machines to nodes.
// cluster-autoscaler reads them at a wrong path, so the labels annotation has them as well.
var managedLabels = []string{clusterv1.NodeRoleLabelPrefix, clusterv1.NodeRestrictionLabelDomain, clusterv1.ManagedNodeLabelDomain}

// least returns the capacity that each node of a group has, for any of its instance types. limited
// says that EKS limits the pods of its nodes.
func least(all []capacity.Capacity, pods capacity.PodsPolicy, limited bool) annotation.Node {
	n := nodeOf(all[0], pods, limited)
	for _, c := range all[1:] {
		other := nodeOf(c, pods, limited)
		n.VCPU = min(n.VCPU, other.VCPU)
		n.MemoryMiB = min(n.MemoryMiB, other.MemoryMiB)
		n.GPUs = min(n.GPUs, other.GPUs)
		n.Pods = min(n.Pods, other.Pods)
		n.AcceleratorCount = min(n.AcceleratorCount, other.AcceleratorCount)
		if n.Accelerator != other.Accelerator {
			n.Accelerator, n.AcceleratorCount, n.GPUs = "", 0, 0
		}
	}
	return n
}

func nodeOf(c capacity.Capacity, pods capacity.PodsPolicy, limited bool) annotation.Node {
	n := annotation.Node{
		VCPU: c.VCPU, MemoryMiB: c.MemoryMiB, GPUs: c.Accelerator.GPUs(),
		Accelerator: c.Accelerator.Resource, AcceleratorCount: c.Accelerator.Count,
		Pods: c.Pods(pods),
	}
	if limited && pods.Mode != capacity.PodsFixed { // A fixed number is what the user knows.
		n.Pods = c.ManagedPods(n.Pods)
	}
	return n
}

// architecture returns the architecture of all types, or a notice if they differ.
func architecture(all []capacity.Capacity) (string, []notice) {
	names := map[string][]string{}
	for _, c := range all {
		names[c.Architecture] = append(names[c.Architecture], c.InstanceType)
	}
	if none := names[""]; len(none) > 0 {
		return "", []notice{warn(ReasonFailedUpdate, WordNoArchitecture, "EC2 lists no architecture of %s that Kubernetes supports: the label %s is not written",
			strings.Join(none, ", "), annotation.LabelArch)}
	}
	if len(names) > 1 {
		return "", []notice{warn(ReasonFailedUpdate, WordArchitectures, "the pool mixes %s (%s) with %s (%s): the label %s is not written",
			strings.Join(names[capacity.AMD64], ", "), capacity.AMD64, strings.Join(names[capacity.ARM64], ", "), capacity.ARM64, annotation.LabelArch)}
	}
	return all[0].Architecture, nil
}

// labelsOf returns the labels of a future node of the group.
func labelsOf(group *unstructured.Unstructured, m machines, region, arch string) map[string]string {
	labels := map[string]string{annotation.LabelOS: m.os, annotation.LabelRegion: region}
	if arch != "" {
		labels[annotation.LabelArch] = arch
	}
	if len(m.types) == 1 {
		labels[annotation.LabelInstanceType] = m.types[0]
	}
	if zone := zoneOf(group); zone != "" {
		labels[annotation.LabelZone] = zone
	}
	own, _, _ := unstructured.NestedStringMap(group.Object, "spec", "template", "metadata", "labels")
	for key, value := range own {
		domain, _, qualified := strings.Cut(key, "/")
		if qualified && slices.ContainsFunc(managedLabels, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }) {
			labels[key] = value
		}
	}
	return labels
}

// zoneOf returns the zone of a group whose nodes are all in one zone; else "".
func zoneOf(group *unstructured.Unstructured) string {
	if zone := capa.Text(group, "spec", "template", "spec", "failureDomain"); zone != "" {
		return zone
	}
	if zones, _, _ := unstructured.NestedStringSlice(group.Object, "spec", "failureDomains"); len(zones) == 1 {
		return zones[0]
	}
	return ""
}
