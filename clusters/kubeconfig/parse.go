package kubeconfig

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-hub/capstan/internal/netguard"
)

// maxBytes is the largest size of a kubeconfig: a Secret has at most 1 MiB.
const maxBytes = 1 << 20

// Options of Parse.
type Options struct {
	// AllowLoopback accepts loopback addresses as servers.
	AllowLoopback bool
}

// Parse reads a kubeconfig. Its error is a *Refusal.
func Parse(raw []byte, o Options) (*Config, error) {
	// The indirection keeps a nil *Refusal from becoming an error that is not nil.
	config, refusal := parse(raw, o)
	if refusal != nil {
		return nil, refusal
	}
	return config, nil
}

func parse(raw []byte, o Options) (*Config, *Refusal) {
	switch {
	case len(bytes.TrimSpace(raw)) == 0:
		return nil, refuse(ReasonEmpty, "", "is empty: put a kubeconfig into the Secret")
	case len(raw) > maxBytes:
		return nil, refuse(ReasonTooLarge, "", "is larger than 1 MiB: remove the contexts that are not used")
	}
	// The decoder's error is not returned: it may quote the text that it cannot decode.
	file, err := clientcmd.Load(raw)
	if err != nil {
		return nil, refuse(ReasonUnreadable, "", "cannot be read: it is not YAML or JSON of kind Config, apiVersion v1")
	}
	if file.CurrentContext == "" {
		return nil, refuse(ReasonContext, "current-context", "is not set: name the context to use")
	}
	context := file.Contexts[file.CurrentContext]
	if context == nil {
		return nil, refuse(ReasonContext, "current-context", "names a context that is not in the file")
	}
	cluster := file.Clusters[context.Cluster]
	if cluster == nil {
		return nil, refuse(ReasonCluster, "context", "names a cluster that is not in the file")
	}
	user := file.AuthInfos[context.AuthInfo]
	if user == nil {
		return nil, refuse(ReasonUser, "context", "names a user that is not in the file")
	}
	config := &Config{}
	for _, step := range []func() *Refusal{
		func() *Refusal { return config.takeServer(cluster, o) },
		func() *Refusal { return config.takeAuthority(cluster) },
		func() *Refusal { return refuseUser(user) },
		func() *Refusal { return config.takeCredentials(user) },
	} {
		if refusal := step(); refusal != nil {
			return nil, refusal
		}
	}
	return config, nil
}

func (c *Config) takeServer(cluster *clientcmdapi.Cluster, o Options) *Refusal {
	if cluster.Server == "" {
		return refuse(ReasonServer, "server", "is not set: give a URL such as https://host:6443")
	}
	server, err := url.Parse(cluster.Server)
	if err != nil || server.Hostname() == "" {
		return refuse(ReasonServer, "server", "is not a URL such as https://host:6443")
	}
	if server.Scheme != "https" {
		return refuse(ReasonNotHTTPS, "server", "must begin with https://: credentials are never sent without encryption")
	}
	if server.User != nil || server.RawQuery != "" || server.ForceQuery || server.Fragment != "" || server.Opaque != "" {
		return refuse(ReasonServer, "server", "must be https://host[:port][/path] without user, query or fragment")
	}
	if err := (netguard.Policy{AllowLoopback: o.AllowLoopback}).CheckHost(server.Hostname()); err != nil {
		return refuse(ReasonAddress, "server", "is refused: "+err.Error())
	}
	if cluster.ProxyURL != "" {
		return refuse(ReasonProxy, "proxy-url", "is not allowed: only the administrator names a proxy, by the hub's flag --cluster-proxy; remove it, and give a server that the hub reaches directly or through that proxy")
	}
	if cluster.InsecureSkipTLSVerify {
		return refuse(ReasonInsecure, "insecure-skip-tls-verify", "is not allowed: give certificate-authority-data instead")
	}
	if name := cluster.TLSServerName; name != "" {
		if _, err := netip.ParseAddr(name); err != nil && len(validation.IsDNS1123Subdomain(strings.ToLower(name))) > 0 {
			return refuse(ReasonTLSServerName, "tls-server-name", "is neither a DNS name nor an IP address")
		}
		c.TLSServerName = name
	}
	server.Path = strings.TrimSuffix(server.Path, "/")
	server.RawPath = ""
	c.Server = server
	return nil
}

func (c *Config) takeAuthority(cluster *clientcmdapi.Cluster) *Refusal {
	if cluster.CertificateAuthority != "" {
		return refuse(ReasonFilePath, "certificate-authority", "is a file path, which the hub does not read: use certificate-authority-data")
	}
	if len(cluster.CertificateAuthorityData) == 0 {
		return nil
	}
	if !x509.NewCertPool().AppendCertsFromPEM(cluster.CertificateAuthorityData) {
		return refuse(ReasonAuthority, "certificate-authority-data", "contains no PEM certificate")
	}
	c.CAData = cluster.CertificateAuthorityData
	return nil
}

// refuseUser refuses fields that run code, read files or impersonate another user.
func refuseUser(user *clientcmdapi.AuthInfo) *Refusal {
	const files = "is a file path, which the hub does not read: use "
	switch {
	case user.Exec != nil:
		return refuse(ReasonExec, "exec", "would run a program in the hub: use a token or a client certificate")
	case user.AuthProvider != nil:
		return refuse(ReasonAuthProvider, "auth-provider", "is not supported: use a token or a client certificate")
	case user.TokenFile != "":
		return refuse(ReasonFilePath, "tokenFile", files+"token")
	case user.ClientCertificate != "":
		return refuse(ReasonFilePath, "client-certificate", files+"client-certificate-data")
	case user.ClientKey != "":
		return refuse(ReasonFilePath, "client-key", files+"client-key-data")
	case user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups) > 0 || len(user.ImpersonateUserExtra) > 0:
		return refuse(ReasonImpersonation, "act-as", "is not supported: use the credentials of that user")
	case user.Username != "" || user.Password != "":
		return refuse(ReasonBasicAuth, "username and password", "are not supported: use a token or a client certificate")
	}
	return nil
}

func (c *Config) takeCredentials(user *clientcmdapi.AuthInfo) *Refusal {
	c.Token = strings.TrimSpace(user.Token)
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return refuse(ReasonToken, "token", "contains characters that are not allowed in a token")
	}
	hasCert, hasKey := len(user.ClientCertificateData) > 0, len(user.ClientKeyData) > 0
	switch {
	case hasCert != hasKey:
		return refuse(ReasonCertificate, "client-certificate-data and client-key-data", "must both be set, or neither")
	case hasCert:
		if _, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData); err != nil {
			return refuse(ReasonCertificate, "client-certificate-data and client-key-data", "are not a PEM certificate and its key")
		}
		c.CertData, c.KeyData = user.ClientCertificateData, user.ClientKeyData
	case c.Token == "":
		return refuse(ReasonNoCredentials, "user", "has neither a token nor a client certificate: add one of them")
	}
	return nil
}
