package netguard

import (
	"net/netip"
	"syscall"
)

// Control refuses to dial a forbidden address. It is for net.Dialer.Control, which
// the dialer calls with each address that a name resolved to. The error is an
// *Error inside a *net.OpError.
func (p Policy) Control(_, address string, _ syscall.RawConn) error {
	resolved, err := netip.ParseAddrPort(address)
	if err != nil {
		return p.Check(netip.Addr{})
	}
	return p.Check(resolved.Addr())
}
