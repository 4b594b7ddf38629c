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

// Capacity is the capacity of a node of one instance type. It contains no pointers except its
// strings, so that thousands are cheap and equal ones can be shared.
type Capacity struct {
	// InstanceType is EC2's name of it, such as "m5.large".
	InstanceType string
	// VCPU is the number of virtual processors with EC2's default options; above 0.
	VCPU int64
	// MemoryMiB is the memory in MiB; above 0.
	MemoryMiB int64
	// Architecture is the value of kubernetes.io/arch: AMD64, ARM64, or empty if Kubernetes
	// supports none that EC2 lists, as for a Mac.
	Architecture string
	// Accelerator is the zero value if there is none.
	Accelerator Accelerator
	// Network is the zero value if EC2 does not report it.
	Network Network
	// InstanceStoreGB is the size of all disks of the instance store together, in GB
	// as EC2 counts them; 0 if there are none.
	InstanceStoreGB int64
	// BareMetal instances run without EC2's hypervisor.
	BareMetal bool
}

// FromInstanceTypeInfo converts EC2's description of an instance type. The error is an
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

// IncompleteError says that EC2's description of an instance type lacks required facts. A
// retry soon does not help.
type IncompleteError struct {
	InstanceType string
	// Missing are the names of the facts that are missing.
	Missing []string
}

// Error implements error.
func (e *IncompleteError) Error() string {
	return fmt.Sprintf("EC2 does not report %s of instance type %q", strings.Join(e.Missing, " and "), e.InstanceType)
}

// plausible is the maximum of EC2's counts of devices, cores, interfaces and addresses, so that
// no product of them overflows. Each count is below 200 today.
const plausible = 1 << 16

// number returns a count, or 0 if it is missing or not plausible.
func number(n *int32) int64 {
	if n == nil || *n < 0 || *n > plausible {
		return 0
	}
	return int64(*n)
}

// architecture returns the first architecture that Kubernetes supports. CAPA selects the image
// by the same one. Types of old generations list i386 before x86_64. Macs list x86_64_mac or
// arm64_mac, which Kubernetes does not support.
func architecture(info *types.ProcessorInfo) string {
	if info == nil {
		return ""
	}
	for _, a := range info.SupportedArchitectures {
		switch a { //nolint:exhaustive // Nodes have no other architectures.
		case types.ArchitectureTypeX8664:
			return AMD64
		case types.ArchitectureTypeArm64:
			return ARM64
		}
	}
	return ""
}
