package annotation

import (
	"fmt"
	"slices"
	"strings"
)

// Keys that cluster-autoscaler's clusterapi provider reads.
const (
	prefixUpstream = "capacity.cluster-autoscaler.kubernetes.io/"

	CPU           = prefixUpstream + "cpu"
	Memory        = prefixUpstream + "memory"
	GPUType       = prefixUpstream + "gpu-type"
	GPUCount      = prefixUpstream + "gpu-count"
	EphemeralDisk = prefixUpstream + "ephemeral-disk"
	MaxPods       = prefixUpstream + "maxPods"
	Labels        = prefixUpstream + "labels"
)

// Keys that OpenShift's fork of cluster-autoscaler reads. The requirements fix them.
const (
	prefixOpenShift = "machine.openshift.io/"

	LegacyVCPU     = prefixOpenShift + "vCPU"
	LegacyMemoryMb = prefixOpenShift + "memoryMb"
	LegacyGPU      = prefixOpenShift + "GPU"
)

// Applied is the annotation that records the written values.
const Applied = "capstan.dev/capacity-applied"

// FieldManager of the patches that write annotations.
const FieldManager = "capstan-annotator"

// Labels of nodes.
const (
	LabelArch         = "kubernetes.io/arch"
	LabelOS           = "kubernetes.io/os"
	LabelInstanceType = "node.kubernetes.io/instance-type"
	LabelRegion       = "topology.kubernetes.io/region"
	LabelZone         = "topology.kubernetes.io/zone"
)

// Family is a set of annotation keys.
type Family string

// Families of keys. The labels are written with any of them: OpenShift's fork reads
// upstream's key.
const (
	Upstream  Family = "upstream"
	OpenShift Family = "openshift"
)

// Families returns all families.
func Families() []Family { return []Family{Upstream, OpenShift} }

// ParseFamilies parses names of families. The error lists the valid names.
func ParseFamilies(names []string) ([]Family, error) {
	var all []Family
	for _, n := range names {
		f := Family(strings.TrimSpace(n))
		if !slices.Contains(Families(), f) {
			return nil, fmt.Errorf("%q is not a family of annotations: use %s, %s or both", n, Upstream, OpenShift)
		}
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no family of annotations is set: use %s, %s or both", Upstream, OpenShift)
	}
	return all, nil
}

// Concerns reports whether this package reads or writes an annotation with this key.
func Concerns(key string) bool {
	return strings.HasPrefix(key, prefixUpstream) || strings.HasPrefix(key, prefixOpenShift) || key == Applied
}
