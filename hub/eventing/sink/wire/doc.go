// Package wire holds what all sinks need of the network: which addresses they may
// call, and their TLS settings.
//
// Purpose: users who may write objects in a namespace set url, proxyUrl and the Secret
// of its EventingBackends. This package decides, once, what the hub does with them.
//
// Contract: no connection is made to an address that internal/netguard forbids
// (link-local, metadata services, multicast, the hub itself). The check comes after a
// name is resolved and before a packet is sent. TLS is 1.2 at least and always verified.
// An HTTP client follows no redirect. An error about a Secret names the key and what is
// wrong with it (ErrSecret), never what it holds; an error of a call names the host and
// no more of the URL.
//
// Locking: none; a Secret is read once, when a sink is made.
package wire
