package kubeconfig

import "fmt"

// Reason for refusing a kubeconfig, in one word.
type Reason string

// Reasons for refusing a kubeconfig.
const (
	ReasonEmpty         Reason = "Empty"
	ReasonTooLarge      Reason = "TooLarge"
	ReasonUnreadable    Reason = "Unreadable"
	ReasonContext       Reason = "ContextMissing"
	ReasonCluster       Reason = "ClusterMissing"
	ReasonUser          Reason = "UserMissing"
	ReasonServer        Reason = "ServerInvalid"
	ReasonNotHTTPS      Reason = "ServerNotHTTPS"
	ReasonAddress       Reason = "ServerAddressRefused"
	ReasonInsecure      Reason = "InsecureSkipTLSVerify"
	ReasonProxy         Reason = "ProxyURL"
	ReasonTLSServerName Reason = "TLSServerNameInvalid"
	ReasonFilePath      Reason = "FilePath"
	ReasonAuthority     Reason = "CertificateAuthorityInvalid"
	ReasonExec          Reason = "Exec"
	ReasonAuthProvider  Reason = "AuthProvider"
	ReasonImpersonation Reason = "Impersonation"
	ReasonBasicAuth     Reason = "UsernamePassword"
	ReasonToken         Reason = "TokenInvalid"
	ReasonCertificate   Reason = "ClientCertificateInvalid"
	ReasonNoCredentials Reason = "NoCredentials"
)

// Refusal is the error for a kubeconfig that the hub does not use.
type Refusal struct {
	// Reason in one word.
	Reason Reason
	// Field is the name of the wrong field in the file; empty for the whole file.
	Field string
	// Problem says what is wrong with the field and what to do.
	Problem string
}

func (r *Refusal) Error() string {
	if r.Field == "" {
		return "the kubeconfig " + r.Problem
	}
	return fmt.Sprintf("the kubeconfig's %s %s", r.Field, r.Problem)
}

func refuse(reason Reason, field, problem string) *Refusal {
	return &Refusal{Reason: reason, Field: field, Problem: problem}
}
