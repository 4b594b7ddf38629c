// Package sts is the Security Token Service of the playground's AWS: AssumeRole,
// AssumeRoleWithWebIdentity and GetCallerIdentity.
//
// Contract: a role that was added can be assumed by whoever fulfils its trust: the
// external id for AssumeRole, the token for AssumeRoleWithWebIdentity. What is given
// out is known to the Server until it expires by its clock.
package sts
