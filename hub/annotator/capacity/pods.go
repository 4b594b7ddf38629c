package capacity

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Sources of the numbers: the formula of the AWS VPC CNI, and the Amazon EKS user
// guide, "Choosing an optimal Amazon EC2 node instance type".
const (
	// prefixAddresses is the number of addresses of a /28. With prefix delegation, an
	// interface has a /28 in place of each address.
	prefixAddresses = 16
	// hostNetworkPods is the number of pods on the host's network that EKS adds: the CNI's and
	// kube-proxy.
	hostNetworkPods = 2
	// EKS limits the pods of a node to smallNodePods, or to bigNodePods from bigNodeVCPU vCPUs,
	// independent of the number of addresses.
	smallNodePods, bigNodePods, bigNodeVCPU = 110, 250, 30
	// KubeletPods is kubelet's own default of --max-pods.
	KubeletPods = 110
)

// Network limits a node's pods if each pod has an address of the VPC.
type Network struct {
	// Interfaces is the maximum number of interfaces of the default network card. The CNI uses
	// only this card for pods.
	Interfaces int64
	// Addresses is the maximum number of IPv4 addresses of an interface, including its own.
	Addresses int64
	// Prefixes says that interfaces may have prefixes in place of addresses, as on Nitro
	// instances.
	Prefixes bool
}

// network returns the Network of a type, or the zero value if it is not known.
func network(info types.InstanceTypeInfo) Network {
	n := info.NetworkInfo
	if n == nil {
		return Network{}
	}
	interfaces := number(n.MaximumNetworkInterfaces)
	for _, card := range n.NetworkCards {
		if aws.ToInt32(card.NetworkCardIndex) == aws.ToInt32(n.DefaultNetworkCardIndex) {
			interfaces = number(card.MaximumNetworkInterfaces)
			break
		}
	}
	addresses := number(n.Ipv4AddressesPerInterface)
	if interfaces == 0 || addresses < 2 {
		return Network{}
	}
	return Network{
		Interfaces: interfaces,
		Addresses:  addresses,
		// Bare metal has no hypervisor, but has Nitro cards.
		Prefixes: info.Hypervisor == types.InstanceTypeHypervisorNitro || aws.ToBool(info.BareMetal),
	}
}

// PodsMode is how the pods of a node are counted.
type PodsMode string

// Modes of counting pods.
const (
	// PodsOff writes no count: the autoscaler uses its default.
	PodsOff PodsMode = "off"
	// PodsENI counts the addresses of the default card's interfaces, as the AWS VPC
	// CNI does by default.
	PodsENI PodsMode = "eni"
	// PodsPrefixDelegation counts a prefix for each address, up to EKS' limits, as the
	// CNI does with ENABLE_PREFIX_DELEGATION. An instance type without prefixes
	// is counted as with PodsENI.
	PodsPrefixDelegation PodsMode = "prefix-delegation"
	// PodsFixed is one number for all nodes, as for a CNI with its own address range.
	PodsFixed PodsMode = "fixed"
)

// PodsPolicy is a mode with its parameter. The zero value is PodsOff.
type PodsPolicy struct {
	Mode PodsMode
	// Fixed is the number of pods for PodsFixed.
	Fixed int64
}

// ParsePodsPolicy parses "off", "eni", "prefix-delegation", "fixed=<n>", or "fixed" for
// KubeletPods. The error lists all of them.
func ParsePodsPolicy(s string) (PodsPolicy, error) {
	mode, number, numbered := strings.Cut(s, "=")
	p := PodsPolicy{Mode: PodsMode(mode)}
	switch p.Mode {
	case PodsOff, PodsENI, PodsPrefixDelegation:
		if !numbered {
			return p, nil
		}
	case PodsFixed:
		p.Fixed = KubeletPods
		if !numbered {
			return p, nil
		}
		n, err := strconv.ParseInt(number, 10, 32)
		if err == nil && n > 0 {
			p.Fixed = n
			return p, nil
		}
	}
	return PodsPolicy{}, fmt.Errorf("%q is not a way to count pods: use %s, %s, %s, %s or %s=<number above 0>",
		s, PodsOff, PodsENI, PodsPrefixDelegation, PodsFixed, PodsFixed)
}

// Pods returns the maximum number of pods of a node; 0 when the policy is PodsOff, or EC2 does
// not report the facts.
func (c Capacity) Pods(p PodsPolicy) int64 {
	switch p.Mode {
	case PodsENI:
		return c.addressPods(1)
	case PodsPrefixDelegation:
		if !c.Network.Prefixes {
			return c.addressPods(1)
		}
		return c.ManagedPods(c.addressPods(prefixAddresses))
	case PodsFixed:
		return p.Fixed
	case PodsOff:
	}
	return 0
}

// ManagedPods limits a count of pods to the maximum of EKS for a node of a managed node group
// without a custom image.
func (c Capacity) ManagedPods(pods int64) int64 {
	if c.VCPU < bigNodeVCPU {
		return min(pods, smallNodePods)
	}
	return min(pods, bigNodePods)
}

// addressPods returns the number of pods, with per pods for each address. The first address of
// an interface is its own.
func (c Capacity) addressPods(per int64) int64 {
	if c.Network.Interfaces == 0 {
		return 0
	}
	return c.Network.Interfaces*(c.Network.Addresses-1)*per + hostNetworkPods
}
