package annotation

import "strconv"

// Node is the capacity of a future node of the group.
type Node struct {
	// VCPU and MemoryMiB are above 0.
	VCPU, MemoryMiB int64
	// GPUs of all vendors, for the legacy key.
	GPUs int64
	// Accelerator is the extended resource that pods request, and AcceleratorCount the number
	// of devices; empty and 0 for none.
	Accelerator      string
	AcceleratorCount int64
	// Pods is the maximum number of pods; 0 when it is not written.
	Pods int64
	// DiskGiB is the size of the root volume; 0 when not known.
	DiskGiB int64
	// Labels of the future node.
	Labels map[string]string
}

// values returns the annotations of a Node, without its labels.
func (n Node) values(families []Family) map[string]string {
	v := map[string]string{}
	number := func(key string, n int64, unit string) {
		if n > 0 {
			v[key] = strconv.FormatInt(n, 10) + unit
		}
	}
	for _, f := range families {
		switch f {
		case Upstream:
			number(CPU, n.VCPU, "")
			number(Memory, n.MemoryMiB, "Mi")
			number(EphemeralDisk, n.DiskGiB, "Gi")
			number(MaxPods, n.Pods, "")
			if n.Accelerator != "" && n.AcceleratorCount > 0 {
				v[GPUType] = n.Accelerator
				number(GPUCount, n.AcceleratorCount, "")
			}
		case OpenShift:
			number(LegacyVCPU, n.VCPU, "")
			number(LegacyMemoryMb, n.MemoryMiB, "")
			v[LegacyGPU] = strconv.FormatInt(max(0, n.GPUs), 10)
		}
	}
	return v
}
