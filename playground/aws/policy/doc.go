// Package policy evaluates policies of IAM and of resources for playground/aws.
//
// Purpose: the simulated services decide about a call as AWS does, so that a test fails if
// a policy of Capstan's templates is wrong.
//
// Contract: Parse returns a Document of one Kind, or an error that names the element that
// is not supported. An element is never ignored. Document.Evaluate returns a Decision for
// one Request. A Deny statement has priority over all Allow statements. The condition
// operators are StringEquals, StringLike, ArnEquals, ArnLike and Bool. An unknown operator never
// matches in an Allow statement and always matches in a Deny statement, so that it never
// grants anything. A key that the Request does not have does not match.
//
// Locking: none. A Document does not change after Parse.
//
// Trade-offs: NotAction, NotResource, NotPrincipal, policy variables and service control
// policies are not supported.
package policy
