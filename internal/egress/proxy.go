package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// maxCredentials is the largest size of a file with credentials, in bytes.
const maxCredentials = 4 << 10

// Options of New.
type Options struct {
	// URL of the proxy: http:// or https://, a host and a port, without user and password.
	URL string
	// CredentialsFile has "user:password" for the proxy, read for each connection; empty for a proxy
	// without authentication.
	CredentialsFile string
	// NoProxy has the targets that are connected to directly: a host, .domain, *.domain, an IP
	// address or a CIDR, each but the last with an optional port, or "*" for all.
	NoProxy []string
	// Flag is the flag that gave the URL, without dashes, for messages.
	Flag string
}

// Proxy is an HTTP proxy of the administrator. A nil *Proxy is none.
type Proxy struct {
	address     *url.URL
	credentials string
	flag        string
	choose      func(*url.URL) (*url.URL, error)
}

// New checks the options and returns the Proxy; nil when the URL is empty. It does not dial, and
// does not read the file with the credentials.
func New(o Options) (*Proxy, error) {
	for _, entry := range o.NoProxy {
		if err := checkException(entry); err != nil {
			return nil, err
		}
	}
	if o.URL == "" {
		if o.CredentialsFile != "" {
			return nil, errors.New("credentials are given, but no proxy: give its URL, too")
		}
		return nil, nil //nolint:nilnil // A nil *Proxy is none.
	}
	// The URL is not quoted: it may contain a password.
	address, err := url.Parse(o.URL)
	switch {
	case err != nil || address.Host == "" || (address.Scheme != "http" && address.Scheme != "https"):
		return nil, errors.New("the URL of the proxy is not http://host:port or https://host:port")
	case address.User != nil:
		return nil, errors.New("the URL of the proxy has a user, which everyone could read who may list processes or read logs: put user:password into the file of its credentials flag")
	case strings.Trim(address.Path, "/") != "" || address.RawQuery != "" || address.ForceQuery || address.Fragment != "":
		return nil, errors.New("the URL of the proxy has more than http://host:port or https://host:port")
	case !isHost(address.Hostname()):
		return nil, errors.New("the host in the URL of the proxy is neither a DNS name nor an IP address")
	}
	address.Path = ""
	config := &httpproxy.Config{HTTPSProxy: address.String(), NoProxy: strings.Join(o.NoProxy, ",")}
	return &Proxy{address: address, credentials: o.CredentialsFile, flag: o.Flag, choose: config.ProxyFunc()}, nil
}

// checkException refuses what httpproxy would ignore.
func checkException(entry string) error {
	_, network := netip.ParsePrefix(entry)
	if entry == "" || strings.ContainsAny(entry, " \t,@") || strings.Contains(entry, "/") && network != nil {
		return fmt.Errorf("%q is not a host, .domain, *.domain, IP address, CIDR or *", entry)
	}
	return nil
}

// String returns the URL of the proxy, which has no credentials; empty for none.
func (p *Proxy) String() string {
	if p == nil {
		return ""
	}
	return p.address.String()
}

// Serves reports whether connections to host:port go through the proxy.
func (p *Proxy) Serves(hostPort string) bool {
	if p == nil {
		return false
	}
	through, err := p.choose(&url.URL{Scheme: "https", Host: hostPort})
	return err == nil && through != nil
}

// hostPort of the proxy.
func (p *Proxy) hostPort() string {
	port := p.address.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[p.address.Scheme]
	}
	return net.JoinHostPort(p.address.Hostname(), port)
}

// user reads the user and the password; both are empty without a file.
func (p *Proxy) user() (name, password string, err error) {
	if p.credentials == "" {
		return "", "", nil
	}
	file, err := os.Open(p.credentials)
	if err != nil {
		return "", "", err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxCredentials))
	if err != nil {
		return "", "", err
	}
	name, password, has := strings.Cut(strings.TrimRight(string(raw), "\r\n"), ":")
	if !has || name == "" {
		return "", "", fmt.Errorf("the file %s does not contain user:password", p.credentials)
	}
	return name, password, nil
}

// isHost reports whether a text is an IP address or only has the characters of a DNS name.
func isHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host != "" && !strings.ContainsFunc(host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	})
}
