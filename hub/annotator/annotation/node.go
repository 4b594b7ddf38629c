package annotation

import "strconv"

// Node is what a node of the group would be.
type Node struct {
	// VCPU and MemoryMiB; above 0.
	VCPU, MemoryMiB int64
	// GPUs of all vendors, for the legacy key.
	GPUs int64
	// Accelerator is the extended resource that pods ask for, and AcceleratorCount how
	// many there are; empty and 0 for none.
	Accelerator      string
	AcceleratorCount int64
	// Pods that it runs at most; 0 when that is not to be said.
	Pods int64
	// DiskGiB of its root volume; 0 when not known.
	DiskGiB int64
	// Labels that it will bear.
	Labels map[string]string
}

// values are the annotations of a Node, but for its labels.
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
