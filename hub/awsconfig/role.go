package awsconfig

import "unique"

// Role is an IAM role to assume for a call. The zero value is the process' own identity. It is
// comparable, and contains no secret.
type Role struct {
	// ARN of the role.
	ARN string
	// ExternalID that the role's trust policy may require.
	ExternalID string
	// SessionName in CloudTrail; "capstan" when empty.
	SessionName string
	// source is the role with which this one is assumed (Through); zero for the process' own identity.
	source unique.Handle[Role]
}

// Through returns the role as one that is assumed with the credentials of another role; with those of the
// process if that is the zero value.
func (r Role) Through(source Role) Role {
	r.source = unique.Handle[Role]{}
	if source != (Role{}) {
		r.source = unique.Make(source)
	}
	return r
}

// Source returns the role with which a role is assumed: the zero value for the process' own identity.
func (r Role) Source() Role {
	if r.source == (unique.Handle[Role]{}) {
		return Role{}
	}
	return r.source.Value()
}
