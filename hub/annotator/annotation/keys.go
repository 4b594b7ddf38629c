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

// Keys of the seed, which OpenShift's fork of cluster-autoscaler reads.
const (
	prefixOpenShift = "machine.openshift.io/"

	LegacyVCPU     = prefixOpenShift + "vCPU"
	LegacyMemoryMb = prefixOpenShift + "memoryMb"
	LegacyGPU      = prefixOpenShift + "GPU"
)

// Applied is the record of what was written here.
const Applied = "capstan.dev/capacity-applied"

// Labels of nodes.
const (
	LabelArch         = "kubernetes.io/arch"
	LabelOS           = "kubernetes.io/os"
	LabelInstanceType = "node.kubernetes.io/instance-type"
	LabelRegion       = "topology.kubernetes.io/region"
	LabelZone         = "topology.kubernetes.io/zone"
)

// Family of keys.
type Family string

// Families of keys. The labels are written with any of them: OpenShift's fork reads
// upstream's key.
const (
	Upstream  Family = "upstream"
	OpenShift Family = "openshift"
)

// Families is all of them.
func Families() []Family { return []Family{Upstream, OpenShift} }

// ParseFamilies reads names of families. The error names those there are.
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

// Concerns is whether an annotation of this key is read or written here.
func Concerns(key string) bool {
	return strings.HasPrefix(key, prefixUpstream) || strings.HasPrefix(key, prefixOpenShift) || key == Applied
}
