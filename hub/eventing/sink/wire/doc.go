// Package wire is what all sinks need of the network: whom they may call, and with
// what TLS.
//
// Purpose: url, proxyUrl and the Secret of an EventingBackend are anybody's to write
// who may write objects in the namespace. Here it is settled, once, what the hub does
// with them.
//
// Contract: a connection is made to no address that clusters/kubeconfig forbids
// (link-local, metadata services, multicast, the hub itself). The check comes after a
// name is resolved and before a packet is sent. TLS is 1.2 at least and always verified.
// An HTTP client follows no redirect. An error about a Secret names the key and what is
// wrong with it (ErrSecret), never what it holds; an error of a call names the host and
// no more of the URL.
//
// Locking: none; a Secret is read once, when a sink is made.
package wire
