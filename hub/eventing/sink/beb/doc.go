// Package beb publishes to SAP Event Mesh, formerly Business Event Bus, through its REST
// gateway.
//
// Contract: the Secret is a service key: messaging (a JSON list, of which the element with
// broker.type saprestmgw is used) and namespace. It may also have ca.crt. A key without such
// an element is an error. The event is posted to <uri>/sap/ems/v1/events with the header qos.
// Its source is replaced by the namespace, because Event Mesh requires that.
//
// A token (OAuth2, client credentials) is fetched if there is none, and shortly before it
// expires. It is fetched once more if Event Mesh answers 401, because tokens may be revoked.
// Other calls wait for the one that fetches.
//
// Status codes have the same classes as in package webhook. An error contains no byte of the
// Secret and nothing of the token endpoint's answer.
//
// # Locking
//
// tokens.mu guards the token and is not held over I/O. The call that fetches holds the one
// place in tokens.turn. Other calls wait for it until their context ends.
//
// # Trade-offs
//
// It was tested with a fake of the documented REST API, not with a real tenant.
package beb
