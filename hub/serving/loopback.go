package serving

import (
	"net"
	"net/netip"
	"strings"
)

// Loopback reports whether only this machine can connect to a bind address, host:port.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && loopbackHost(host)
}

// OwnHost reports whether the Host header of a request names this machine by a loopback name. A
// server without sign-in must refuse other names: by DNS rebinding, the name of another site can
// resolve to this machine.
func OwnHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return loopbackHost(strings.Trim(host, "[]"))
}

func loopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
