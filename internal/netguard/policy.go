package netguard

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ErrForbidden is the class of every refusal of this package.
var ErrForbidden = errors.New("the hub must not call this address")

// Error is the refusal of one address or host.
type Error struct {
	// Address is the IP address without its zone, "localhost" or the name of a metadata
	// service. It contains no other text from the caller, which may be secret.
	Address string
	// Reason is a clause that says what kind of address it is.
	Reason string
}

// Error names the address, the reason and what to do.
func (e *Error) Error() string {
	return fmt.Sprintf("the hub must not call %s: %s; use another address", e.Address, e.Reason)
}

// Unwrap returns ErrForbidden.
func (*Error) Unwrap() error { return ErrForbidden }

// Reasons of refusals.
const (
	reasonNoAddress   = "it is not an IP address"
	reasonUnspecified = "it is the unspecified address"
	reasonLoopback    = "it is a loopback address, the hub itself"
	reasonMulticast   = "it is a multicast or broadcast address"
	reasonLinkLocal   = "it is a link-local address, where clouds serve credentials"
	reasonMetadata    = "it is a cloud metadata address"
	reasonName        = "it names a cloud metadata service"
	reasonNoName      = "it is neither a DNS name nor an IP address"
	reasonNumber      = "it ends in a number and is not an IP address in its usual form"
)

// metadataAddresses are the metadata addresses outside the link-local ranges.
var metadataAddresses = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):      true, // AWS, IPv6
	netip.MustParseAddr("fd00:ec2::23"):       true, // AWS, Pod identity, IPv6
	netip.MustParseAddr("fd20:ce::254"):       true, // Google, IPv6
	netip.MustParseAddr("168.63.129.16"):      true, // Azure
	netip.MustParseAddr("100.100.100.200"):    true, // Alibaba
	netip.MustParseAddr("fd00:100::100:200"):  true, // Alibaba, IPv6
	netip.MustParseAddr("192.0.0.192"):        true, // Oracle
	netip.MustParseAddr("fd00:c1::a9fe:a9fe"): true, // Oracle, IPv6
	netip.MustParseAddr("fd00:42::42"):        true, // Scaleway, IPv6
	netip.MustParseAddr("fd00:a9fe:a9fe::1"):  true, // Linode, IPv6
}

// metadataNames resolve to metadata addresses inside a cloud.
var metadataNames = map[string]bool{
	"metadata":                 true,
	"metadata.google.internal": true,
	"instance-data":            true,
}

// loopbackNames are further names of loopback in the hosts files of systems.
var loopbackNames = map[string]bool{
	"localhost.localdomain":   true,
	"localhost4":              true,
	"localhost6":              true,
	"localhost6.localdomain6": true,
	"ip6-localhost":           true,
	"ip6-loopback":            true,
}

// nat64 holds IPv6 addresses that carry an IPv4 address in their last four bytes.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// broadcast is the limited broadcast address, for which netip has no method.
var broadcast = netip.MustParseAddr("255.255.255.255")

// Policy says which addresses the hub may dial. The zero value refuses every
// forbidden address, loopback included.
type Policy struct {
	// AllowLoopback allows loopback addresses, for a fleet on one machine. It allows
	// nothing else.
	AllowLoopback bool
}

// Check returns nil if the hub may dial the address, else an *Error.
func (p Policy) Check(address netip.Addr) error {
	if reason := p.reason(address); reason != "" {
		return &Error{Address: address.WithZone("").String(), Reason: reason}
	}
	return nil
}

// CheckHost judges a host as it is written, without a port or brackets. It returns
// nil for a name that is neither localhost nor a known metadata service.
func (p Policy) CheckHost(host string) error {
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if metadataNames[name] {
		return &Error{Address: name, Reason: reasonName}
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		if p.AllowLoopback {
			return nil
		}
		return &Error{Address: "localhost", Reason: reasonLoopback}
	}
	address, err := netip.ParseAddr(name)
	if err != nil {
		return nil // It is a name. Control judges what it resolves to.
	}
	return p.Check(address)
}

// CheckProxied judges a host as it is written that a proxy is going to resolve, without a port or
// brackets. It is stricter than CheckHost: no address is judged afterwards, so it also refuses
// the usual other names of loopback, every text that a resolver may read as an IPv4 address
// (2130706433, 0x7f.1, 127.1), and a text that is not a DNS name.
func (p Policy) CheckProxied(host string) error {
	name := strings.TrimRight(strings.ToLower(host), ".")
	if err := p.CheckHost(name); err != nil {
		return err
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	if loopbackNames[name] {
		if p.AllowLoopback {
			return nil
		}
		return &Error{Address: name, Reason: reasonLoopback}
	}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}) {
		return &Error{Address: "the host of the URL", Reason: reasonNoName}
	}
	if numeric(name[strings.LastIndexByte(name, '.')+1:]) {
		return &Error{Address: "the host of the URL", Reason: reasonNumber}
	}
	return nil
}

// numeric reports whether a resolver may read a host whose last label is this as an IPv4 address:
// it is a decimal, octal or hexadecimal number (https://url.spec.whatwg.org/#ends-in-a-number-checker).
func numeric(label string) bool {
	digits, isDigit := label, func(r rune) bool { return r >= '0' && r <= '9' }
	if rest, hex := strings.CutPrefix(label, "0x"); hex {
		digits, isDigit = rest, func(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'f' }
	} else if label == "" {
		return false
	}
	return !strings.ContainsFunc(digits, func(r rune) bool { return !isDigit(r) })
}

// reason why the address is forbidden; empty if it is not.
func (p Policy) reason(address netip.Addr) string {
	address = address.Unmap().WithZone("")
	if nat64.Contains(address) {
		bytes := address.As16()
		address = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	switch {
	case !address.IsValid():
		return reasonNoAddress
	case address.IsUnspecified():
		return reasonUnspecified
	case address.IsLoopback():
		if p.AllowLoopback {
			return ""
		}
		return reasonLoopback
	case address.IsMulticast() || address == broadcast:
		return reasonMulticast
	case address.IsLinkLocalUnicast():
		return reasonLinkLocal
	case metadataAddresses[address]:
		return reasonMetadata
	}
	return ""
}
