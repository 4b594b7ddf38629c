// Package awsset checks, creates and deletes the AWS resources of a queue, with the credentials of
// the user who runs capstan.
//
// Purpose: it implements `capstan aws-eventing check`, `apply` and `delete`. The hub does not
// import it: the hub has no right to change anything in AWS, and calls SQS only.
//
// Contract: Open finds the caller and its accounts. The order of Targets is that in which stacks
// are created; delete uses the reverse one. Check reads only, but for one test event. Its
// expected values are a provision.Set, so that they are those of the template. Plan, for a new
// stack Prepare, creates a CloudFormation change set; Discard or Execute ends it. Only
// Inventory.Delete deletes a stack. Every failure of a call becomes a
// Failure, which names the action, the caller and the fix.
//
// Locking: none. A Target is used by one goroutine at a time.
//
// Trade-offs: the plan is CloudFormation's own (docs/decisions/0052). A change set of an existing
// stack is drift-aware, because otherwise it would not repair what a user changed by hand.
package awsset
