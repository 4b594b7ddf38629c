package awsconfig

// Role is an IAM role to be assumed for a call. The zero value is the process' own
// identity. It is comparable, and holds no secret.
type Role struct {
	// ARN of the role.
	ARN string
	// ExternalID that the role's trust policy may ask for.
	ExternalID string
	// SessionName in CloudTrail; a name of this process when empty.
	SessionName string
}
