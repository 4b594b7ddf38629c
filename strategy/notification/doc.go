// Package notification executes a promotion by publishing it: as a Kubernetes Event on the
// Pipeline and, if an address is set, as a Flux event.
//
// Contract: reason and message are those of weaveworks pipeline-controller, so that existing
// receivers continue to work. Metadata keys have the prefix of the Pipeline's API group,
// because Flux notification-controller drops all other keys.
//
// Delivery is at least once under a stable id (metadata promotion-id). If a process dies
// after the receiver's answer and before the record of it, the same event is sent again, equal
// to the byte. The name of the Kubernetes Event is derived from the id, so it exists only once.
// Receivers that must not act twice must remember the id.
package notification
