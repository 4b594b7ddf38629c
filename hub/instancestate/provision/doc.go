// Package provision writes the CloudFormation templates of a source: the queue with its
// policies, and the rules that send events to it.
//
// Purpose: it implements `capstan aws-eventing print`, and gives the other commands of
// aws-eventing their templates and expected values (Set). The hub itself creates nothing in
// AWS, and has no permission to.
//
// Contract: Hub and Member are pure functions of their Options: they always return the
// same bytes. A template does not contain its own account and region. It is deployed to
// each region of the account with the queue (Hub) and of each account that sends events
// there (Member). There are two rules for an account and region, for any number of clusters
// and instances: they match the types of events that package message reads, and no
// instance. Permissions are minimal: the actions that the consumer calls on each queue,
// and the senders to the queues. No permission is granted to an account as a whole without
// a condition.
//
// Trade-offs: Options.Name fixes all names, so that both sides work without an exchange of
// ARNs. The role of a member has the region in its name, as roles are global. A limit on
// members keeps the limits of AWS (50 principals and 8 KiB in a queue's policy); an
// organization has no limit.
package provision
