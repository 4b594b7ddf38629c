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

// Refusal is why a kubeconfig is not used.
type Refusal struct {
	// Reason in one word.
	Reason Reason
	// Field that is at fault, as it is called in the file.
	Field string
	// Fix is what to do about it.
	Fix string
}

func (r *Refusal) Error() string {
	if r.Field == "" {
		return "the kubeconfig " + r.Fix
	}
	return fmt.Sprintf("the kubeconfig's %s %s", r.Field, r.Fix)
}

func refuse(reason Reason, field, fix string) *Refusal {
	return &Refusal{Reason: reason, Field: field, Fix: fix}
}
