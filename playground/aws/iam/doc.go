// Package iam simulates the roles and managed policies of IAM for playground/aws, over the
// query protocol, for the real SDK.
//
// Purpose: CloudFormation creates the roles of Capstan's templates here, and EventBridge
// (package events) is allowed or denied what they say.
//
// Contract: roles and policies belong to an account; all regions have the same ones. Names,
// limits and error codes are those of AWS: a role with policies and a policy with roles
// cannot be deleted (DeleteConflict). A policy document that package policy does not support
// is a MalformedPolicyDocument. Unknown parameters of a call are a ValidationError. Service
// implements events.Roles.
//
// Locking: Service.mu protects all roles and policies.
//
// Trade-offs: changes are effective at once; in AWS they take seconds. Users, groups,
// instance profiles, paths, permissions boundaries and tags do not exist. The policies of
// callers are not evaluated; a Rule of the aws.Server denies calls. Lists have one page.
package iam
