// Package provision writes CloudFormation templates of what a source needs in AWS: the
// queue and what may be done with it, and the rules that fill it.
//
// Purpose: `capstan aws-eventing print`. The hub itself creates nothing in AWS, and has
// no right to.
//
// Contract: Hub and Member are pure functions of their Options: the same template, byte
// for byte, each time. A template is of no account and region: it is deployed to each
// region of the account with the queue (Hub) and of each account whose events go there
// (Member), and takes both from where it is. Two rules for an account and region,
// however many clusters and instances: they name kinds of events (those that package
// message reads), and no instance. Every right is the least that does: which actions the
// consumer calls, of which queues, and who may send to them. No right is given to an
// account as a whole without a condition.
//
// Trade-offs: names are fixed, by Options.Name, so that the two sides know each other
// without an exchange of ARNs; the role of a member bears the region in its name, as
// roles are of all regions. What AWS counts (50 principals and 8 KiB in a queue's policy)
// is kept by a bound on members; an organization has none.
package provision
