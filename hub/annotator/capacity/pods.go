package capacity

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Sources of the numbers: the AWS VPC CNI's arithmetic, and the Amazon EKS user
// guide, "Choosing an optimal Amazon EC2 node instance type".
const (
	// prefixAddresses is how many addresses are in the /28 that stands for one
	// address where prefixes are delegated.
	prefixAddresses = 16
	// hostNetworkPods is how many pods EKS counts beside those with an address of
	// their own: the CNI's and kube-proxy, on the host's network.
	hostNetworkPods = 2
	// EKS lets a node run smallNodePods, or bigNodePods from bigNodeVCPU on, however
	// many addresses there are.
	smallNodePods, bigNodePods, bigNodeVCPU = 110, 250, 30
	// KubeletPods is kubelet's own default of --max-pods.
	KubeletPods = 110
)

// Network is what bounds a node's pods where each has an address of the VPC.
type Network struct {
	// Interfaces that fit the default network card. The CNI gives pods addresses of
	// no other card.
	Interfaces int64
	// Addresses is how many IPv4 addresses an interface can have, its own among them.
	Addresses int64
	// Prefixes says that interfaces may have prefixes in place of addresses: those of
	// Nitro instances.
	Prefixes bool
}

// network of a type, or the zero value if it cannot be told.
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
		// Bare metal has no hypervisor, and the cards of Nitro.
		Prefixes: info.Hypervisor == types.InstanceTypeHypervisorNitro || aws.ToBool(info.BareMetal),
	}
}

// PodsMode is how the pods of a node are counted.
type PodsMode string

// Modes of counting pods.
const (
	// PodsOff counts none: the autoscaler's own default holds.
	PodsOff PodsMode = "off"
	// PodsENI counts the addresses of the default card's interfaces, as the AWS VPC
	// CNI does by default.
	PodsENI PodsMode = "eni"
	// PodsPrefixDelegation counts a prefix for each address, up to EKS' limits, as the
	// CNI does with ENABLE_PREFIX_DELEGATION. An instance that can have no prefixes
	// counts as with PodsENI.
	PodsPrefixDelegation PodsMode = "prefix-delegation"
	// PodsFixed is one number for all nodes, as with a CNI that has addresses of its
	// own.
	PodsFixed PodsMode = "fixed"
)

// PodsPolicy is a mode with what belongs to it. The zero value is PodsOff.
type PodsPolicy struct {
	Mode PodsMode
	// Fixed is the number of PodsFixed.
	Fixed int64
}

// ParsePodsPolicy reads "off", "eni", "prefix-delegation", "fixed=<n>", or "fixed" for
// KubeletPods. The error names all of them.
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

// Pods that a node of the type runs at most; 0 when the policy counts none, or EC2
// does not say what to count.
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

// ManagedPods is a count of pods cut to what EKS allows on a node of a managed node
// group without an image of its own.
func (c Capacity) ManagedPods(pods int64) int64 {
	if c.VCPU < bigNodeVCPU {
		return min(pods, smallNodePods)
	}
	return min(pods, bigNodePods)
}

// addressPods is the number of pods with per of them to an address. The first address
// of an interface is the interface's own.
func (c Capacity) addressPods(per int64) int64 {
	if c.Network.Interfaces == 0 {
		return 0
	}
	return c.Network.Interfaces*(c.Network.Addresses-1)*per + hostNetworkPods
}
