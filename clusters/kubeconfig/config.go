package kubeconfig

import (
	"fmt"
	"net/url"
)

// Config contains the fields of a kubeconfig that the hub uses.
type Config struct {
	// Server is https://host[:port][/path], without user, query or fragment.
	Server *url.URL
	// TLSServerName replaces the host in the check of the server's certificate.
	TLSServerName string
	// CAData is a PEM bundle; the system's roots are used if it is empty.
	CAData []byte
	// CertData and KeyData are a PEM key pair, or both empty.
	CertData, KeyData []byte
	// Token is a bearer token, or empty.
	Token string
}

// String returns the server and the kinds of credentials.
func (c *Config) String() string {
	if c == nil || c.Server == nil {
		return "kubeconfig{}"
	}
	return fmt.Sprintf("kubeconfig{server: %s, client certificate: %t, token: %t}", c.Server, len(c.CertData) > 0, c.Token != "")
}

// Format keeps secrets out of every verb of fmt.
func (c *Config) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(c.String())) }

// MarshalJSON keeps secrets out of JSON.
func (c *Config) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%q", c.String()), nil }

// MarshalLog keeps secrets out of logs.
func (c *Config) MarshalLog() any { return c.String() }
