package kubeconfig

import (
	"errors"
	"net/netip"
)

// Errors of CheckAddress.
var (
	errUnspecified = errors.New("it is the unspecified address")
	errLoopback    = errors.New("it is a loopback address, the hub itself")
	errMulticast   = errors.New("it is a multicast or broadcast address")
	errLinkLocal   = errors.New("it is a link-local address, where clouds serve credentials")
	errMetadata    = errors.New("it is a cloud metadata address")
)

// metadataAddresses are those outside the link-local ranges.
var metadataAddresses = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):   true, // AWS, IPv6
	netip.MustParseAddr("fd00:ec2::23"):    true, // AWS, Pod identity, IPv6
	netip.MustParseAddr("fd20:ce::254"):    true, // Google, IPv6
	netip.MustParseAddr("100.100.100.200"): true, // Alibaba
	netip.MustParseAddr("192.0.0.192"):     true, // Oracle
	netip.MustParseAddr("168.63.129.16"):   true, // Azure
}

// metadataNames resolve to metadata addresses within a cloud.
var metadataNames = map[string]bool{
	"metadata":                 true,
	"metadata.google.internal": true,
	"instance-data":            true,
}

// nat64 carries an IPv4 address in its last four bytes.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// broadcast is the one IPv4 address that is none of a kind netip names.
var broadcast = netip.MustParseAddr("255.255.255.255")

// CheckAddress says why the hub must not call an address that a kubeconfig leads
// to; nil when it may.
func CheckAddress(address netip.Addr, allowLoopback bool) error {
	address = address.Unmap().WithZone("")
	if nat64.Contains(address) {
		bytes := address.As16()
		address = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	switch {
	case !address.IsValid() || address.IsUnspecified():
		return errUnspecified
	case address.IsLoopback():
		if allowLoopback {
			return nil
		}
		return errLoopback
	case address.IsMulticast() || address == broadcast:
		return errMulticast
	case address.IsLinkLocalUnicast():
		return errLinkLocal
	case metadataAddresses[address]:
		return errMetadata
	}
	return nil
}
