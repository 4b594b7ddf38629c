package awsconfig

import (
	"errors"
	"fmt"
	"strings"
)

// Auth is the source of the process' own credentials.
type Auth string

const (
	// AuthDefault is the SDK's chain: environment, files, web identity, EKS Pod
	// Identity, the node's role.
	AuthDefault Auth = "default"
	// AuthIRSA is only a web identity: IAM Roles for Service Accounts.
	AuthIRSA Auth = "irsa"
)

// Environment variables that EKS' webhook sets for IRSA.
const (
	envRoleARN     = "AWS_ROLE_ARN"
	envTokenFile   = "AWS_WEB_IDENTITY_TOKEN_FILE"
	envSessionName = "AWS_ROLE_SESSION_NAME"
)

// ErrNoIRSA is the class of CheckIRSA's error.
var ErrNoIRSA = errors.New("IRSA is not configured")

// ParseAuth parses the value of --aws-auth.
func ParseAuth(s string) (Auth, error) {
	switch a := Auth(s); a {
	case AuthDefault, AuthIRSA:
		return a, nil
	}
	return "", fmt.Errorf("%q is not a way to authenticate to AWS: use %s or %s", s, AuthIRSA, AuthDefault)
}

// CheckIRSA returns an error of class ErrNoIRSA that names the missing environment variables of
// IRSA.
func CheckIRSA(getenv func(string) string) error {
	var missing []string
	for _, name := range []string{envRoleARN, envTokenFile} {
		if getenv(name) == "" {
			missing = append(missing, name)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%w: both %s and %s are required, missing: %s; annotate the ServiceAccount with eks.amazonaws.com/role-arn, "+
		"or use --aws-auth=%s", ErrNoIRSA, envRoleARN, envTokenFile, strings.Join(missing, ", "), AuthDefault)
}
