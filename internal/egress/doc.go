// Package egress connects to the hosts that objects of users name, directly or through an HTTP
// proxy of the administrator.
//
// Purpose: networks of companies allow outgoing connections only through a proxy. Connections to
// workload clusters and to Git services have the same rules for it, so the rules are here once.
//
// Contract: a Dialer is for http.Transport.DialContext. It returns a connection to the target, over
// which the caller makes TLS: the proxy only forwards bytes, and the caller verifies the certificate
// of the target itself. The proxy is requested by HTTP CONNECT (RFC 9110, 9.3.6). What the Dialer
// checks depends on the way to the target:
//
//   - directly: each address that the name resolves to, by netguard.Policy.Control;
//   - through the proxy: the name as it is written, by netguard.Policy.CheckProxied. The proxy
//     resolves the name, so the proxy must refuse what it resolves to. The address of the proxy
//     itself is not checked: the administrator gives it.
//
// Exceptions from the proxy have the semantics of NO_PROXY in golang.org/x/net/http/httpproxy. So
// localhost and loopback addresses are always dialled directly, and then checked.
//
// An error of the proxy is an *Error, which names the proxy and what to do. No error and no other
// text of this package contains the credentials, or the answer of the proxy. The credentials are
// read from a file for each connection, so a changed Secret needs no restart.
//
// Locking: none. A Proxy does not change after New.
//
// Trade-offs: net/http can use CONNECT, too, but makes the TLS connection to an https:// proxy with
// the certificates of the target, and the address check would be of the proxy only.
// docs/decisions/0045 records the alternatives.
package egress
