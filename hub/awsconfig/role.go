package awsconfig

// Role is an IAM role to assume for a call. The zero value is the process' own identity. It is
// comparable, and contains no secret.
type Role struct {
	// ARN of the role.
	ARN string
	// ExternalID that the role's trust policy may require.
	ExternalID string
	// SessionName in CloudTrail; "capstan" when empty.
	SessionName string
}
