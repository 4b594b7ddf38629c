package capacity

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Values of the label kubernetes.io/arch.
const (
	AMD64 = "amd64"
	ARM64 = "arm64"
)

// Capacity of a node of one instance type. It holds no pointer but its strings, so
// that thousands are cheap and equal ones can be shared.
type Capacity struct {
	// InstanceType is EC2's name of it, such as "m5.large".
	InstanceType string
	// VCPU is the number of virtual processors with EC2's default options; above 0.
	VCPU int64
	// MemoryMiB is the memory in MiB; above 0.
	MemoryMiB int64
	// Architecture as kubernetes.io/arch names it: AMD64, ARM64, or empty where
	// Kubernetes runs on none that EC2 names, as on a Mac.
	Architecture string
	// Accelerator is the zero value where there is none.
	Accelerator Accelerator
	// Network is the zero value where EC2 did not say.
	Network Network
	// InstanceStoreGB is the size of all disks of the instance store together, in GB
	// as EC2 counts them; 0 where there are none.
	InstanceStoreGB int64
	// BareMetal instances run without EC2's hypervisor.
	BareMetal bool
}

// FromInstanceTypeInfo reads what EC2 says of an instance type. The error is an
// *IncompleteError when vCPUs or memory are missing or not above 0.
func FromInstanceTypeInfo(info types.InstanceTypeInfo) (Capacity, error) {
	c := Capacity{
		InstanceType: string(info.InstanceType),
		Architecture: architecture(info.ProcessorInfo),
		Accelerator:  accelerator(info.GpuInfo, info.NeuronInfo),
		Network:      network(info),
		BareMetal:    aws.ToBool(info.BareMetal),
	}
	if info.VCpuInfo != nil {
		c.VCPU = int64(aws.ToInt32(info.VCpuInfo.DefaultVCpus))
	}
	if info.MemoryInfo != nil {
		c.MemoryMiB = aws.ToInt64(info.MemoryInfo.SizeInMiB)
	}
	if info.InstanceStorageInfo != nil {
		c.InstanceStoreGB = max(0, aws.ToInt64(info.InstanceStorageInfo.TotalSizeInGB))
	}

	var missing []string
	if c.VCPU <= 0 {
		missing = append(missing, "vCPUs")
	}
	if c.MemoryMiB <= 0 {
		missing = append(missing, "memory")
	}
	if missing != nil {
		return Capacity{}, &IncompleteError{InstanceType: c.InstanceType, Missing: missing}
	}
	return c, nil
}

// IncompleteError says that EC2 knows an instance type but not all that a node of it
// needs. Asking again soon does not help.
type IncompleteError struct {
	InstanceType string
	// Missing are the names of the facts that are missing.
	Missing []string
}

// Error implements error.
func (e *IncompleteError) Error() string {
	return fmt.Sprintf("EC2 does not report %s of instance type %q", strings.Join(e.Missing, " and "), e.InstanceType)
}

// plausible bounds what EC2 says of devices, cores, interfaces and addresses, each
// below 200 today, so that no product of them overflows.
const plausible = 1 << 16

// number of something, or 0 where there is none or EC2 cannot mean it.
func number(n *int32) int64 {
	if n == nil || *n < 0 || *n > plausible {
		return 0
	}
	return int64(*n)
}

// architecture is the first that Kubernetes runs on: the one that CAPA picks the
// image by. Types of an old generation name i386 before x86_64; Macs name x86_64_mac
// or arm64_mac, which are neither.
func architecture(info *types.ProcessorInfo) string {
	if info == nil {
		return ""
	}
	for _, a := range info.SupportedArchitectures {
		switch a { //nolint:exhaustive // The others are no architecture of a node.
		case types.ArchitectureTypeX8664:
			return AMD64
		case types.ArchitectureTypeArm64:
			return ARM64
		}
	}
	return ""
}
