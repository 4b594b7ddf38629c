// Package sts simulates the Security Token Service for playground/aws: AssumeRole,
// AssumeRoleWithWebIdentity and GetCallerIdentity.
//
// Contract: a caller can assume a role that was added if it has the external id (for
// AssumeRole) or the token (for AssumeRoleWithWebIdentity) of the role. The Server accepts
// the issued credentials until they expire by its clock.
package sts
