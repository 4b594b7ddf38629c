// Package netguard decides which addresses the hub may dial.
//
// Purpose: kubeconfigs, Pipelines and EventingBackends name hosts that the hub
// dials. Users who may write these objects must not reach services that only the
// hub can reach: the hub's own machine and the metadata services of clouds, which
// serve credentials. This package holds the one policy. Connections to clusters,
// to Git services, to event backends, to SQS endpoints and to --events-addr use it.
//
// Contract: Check judges an IP address and does no I/O. Control is for
// net.Dialer.Control: it runs after a name is resolved and before a packet is
// sent, so a name cannot change its address between check and use. CheckHost
// judges a host as it is written; it accepts a name that it does not know, because
// Control judges the address that the name resolves to. An IPv4 address that is
// written as an IPv4-mapped or a NAT64 IPv6 address is judged as that IPv4
// address. Private addresses (RFC 1918, unique local) are allowed: clusters and
// brokers have them. Each refusal is an *Error, which errors.Is finds as
// ErrForbidden. Its message names the address, the reason and what to do. The
// caller adds the object.
//
// Locking: none. A Policy is a value; the tables are never written.
//
// Trade-offs: metadata services outside the link-local ranges are a list of
// addresses, which grows with the clouds. A range such as fd00::/8 would need no
// list, but clusters have such addresses. A proxy resolves names itself, so what a
// proxy dials is not checked here. Through a proxy of the administrator, CheckProxied
// judges only the host as it is written (internal/egress); other clients that need the
// policy use no proxy, or one that the same user names. docs/decisions/0015 and 0045
// record the alternatives.
package netguard
