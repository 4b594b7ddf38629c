// Package wire has the network code that all sinks share: allowed addresses, TLS settings, and
// HTTP calls.
//
// Purpose: users who may write objects in a namespace set url, proxyUrl and the Secret of its
// EventingBackends. The rules for what the hub does with these values are only here.
//
// Contract: no connection is made to an address that internal/netguard forbids (link-local,
// metadata services, multicast, the hub itself). The check runs after a name is resolved and
// before a packet is sent. TLS is at least 1.2 and always verified. An HTTP client follows no
// redirect. An error about a Secret (ErrSecret) names the key and what is wrong with it, never
// its value. An error of a call names the host and no other part of the URL.
//
// Locking: none; a Secret is read once, when a sink is made.
package wire
