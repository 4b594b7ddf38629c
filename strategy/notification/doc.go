// Package notification carries a promotion out by telling of it: a Kubernetes
// Event on the Pipeline and, where an address is given, a Flux event.
//
// Contract: reason and message are those of weaveworks pipeline-controller, so
// that what listened to it goes on working. Metadata keys carry the prefix of the
// Pipeline's API group, because Flux notification-controller drops all others.
//
// Delivery is at least once under a stable id (metadata promotion-id): a process
// that dies between the receiver's answer and the record of it sends the same
// event again, to the byte. The Kubernetes Event has a name made of the id, so
// there is one of it. Receivers that must not act twice remember the id.
package notification
