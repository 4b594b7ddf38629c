// Package beb publishes to SAP Event Mesh, once called Business Event Bus, by its REST
// gateway.
//
// Contract: the Secret is a service key: messaging (a JSON list, of which the element
// with broker.type saprestmgw is used) and namespace; ca.crt may be added. A key without
// such an element is an error. The event is posted to <uri>/sap/ems/v1/events with the
// header qos, its source replaced by the namespace, as Event Mesh wants it.
//
// A token (OAuth2, client credentials) is fetched when there is none, shortly before it
// ends, and once more when Event Mesh answers 401: tokens may be withdrawn. Whoever
// publishes meanwhile waits for the one that fetches.
//
// Answers mean what they mean to package webhook. Neither bytes of the Secret nor
// anything that the token endpoint answered is part of an error.
//
// # Locking
//
// tokens.mu guards the token and is not held over I/O; who fetches holds the one place
// in tokens.turn, which is waited for no longer than the caller's context.
//
// # Trade-offs
//
// It was tried against a fake that speaks the documented REST API, never against a real
// tenant.
package beb
