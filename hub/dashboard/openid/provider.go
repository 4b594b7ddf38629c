package openid

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
)

const (
	// requestTimeout bounds one request to the provider. A user waits for it.
	requestTimeout = 10 * time.Second
	// maxAnswer is the maximum size of an answer of the provider, in bytes. Discovery and
	// keys have a few KiB.
	maxAnswer = 1 << 20
	// discoverEvery is how often the configuration is requested while the provider does not
	// respond.
	discoverEvery = 5 * time.Second
	// maxIdle connections to the provider are kept, for idleFor.
	maxIdle = 4
	idleFor = time.Minute
)

// ErrUnavailable is returned when the provider does not respond, or its answer is not the
// configuration of the issuer.
var ErrUnavailable = errors.New("the OpenID Connect provider is not available")

// Config of a Provider.
type Config struct {
	// Issuer of the ID tokens, such as https://id.example.org; CheckURL accepts it.
	Issuer string
	// ClientID of the dashboard at the provider.
	ClientID string
	// ClientSecret of the client; empty for a public client.
	ClientSecret string
	// Scopes to request. The scope openid is always requested. The scope offline_access is
	// not requested from a provider that lists its scopes without it.
	Scopes []string
	// RedirectURL is where the provider sends the browser after the sign-in.
	RedirectURL string
	// SignedOutURL is where the provider sends the browser after the sign-out.
	SignedOutURL string
	// Roots are the certificate authorities to trust; nil for those of the system.
	Roots *x509.CertPool
	Clock clock.PassiveClock
}

// Provider is an OpenID Connect provider. Its methods can be called concurrently.
type Provider struct {
	config Config
	client *http.Client
	asking singleflight.Group

	// mu guards the fields that follow.
	mu          sync.Mutex
	lockedFound *found
	// lockedFailure is the error of the last discovery, at lockedFailedAt.
	lockedFailure  error
	lockedFailedAt time.Time
}

// found is the discovered configuration.
type found struct {
	oauth2   *oauth2.Config
	verifier *oidc.IDTokenVerifier
	endpoints
}

// endpoints are the fields of the discovery document that go-oidc does not read.
type endpoints struct {
	Scopes      []string `json:"scopes_supported"`
	AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
	Revocation  string   `json:"revocation_endpoint"`
	EndSession  string   `json:"end_session_endpoint"`
}

// CheckURL reports what is wrong with the URL of an issuer or of the dashboard. It must be
// absolute, by https unless its host is loopback, and have no user, query or fragment.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a URL", raw)
	case u.Host == "" || u.Hostname() == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return fmt.Errorf("%q is not an https:// URL, such as https://id.example.org", raw)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return fmt.Errorf("%q is not encrypted: use https:// (http:// is accepted for loopback addresses only)", raw)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fmt.Errorf("%q must not have a user, a query or a fragment", raw)
	}
	return nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// New returns a Provider. It sends no request.
func New(c Config) *Provider {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: requestTimeout}).DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: requestTimeout,
		MaxIdleConns:        maxIdle,
		IdleConnTimeout:     idleFor,
		ForceAttemptHTTP2:   true,
	}
	return &Provider{config: c, client: &http.Client{
		Transport:     limited{transport},
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Host returns the host of the issuer, for texts.
func (p *Provider) Host() string {
	u, err := url.Parse(p.config.Issuer)
	if err != nil {
		return p.config.Issuer
	}
	return u.Host
}

// Issuer returns the URL of the issuer.
func (p *Provider) Issuer() string { return p.config.Issuer }

// ClientID returns the name of the dashboard at the provider.
func (p *Provider) ClientID() string { return p.config.ClientID }

// Close closes idle connections.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// limited limits the size of answers.
type limited struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.Transport.RoundTrip(r)
	if err == nil {
		answer.Body = limitedBody{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	}
	return answer, err
}

type limitedBody struct {
	io.Reader
	io.Closer
}

// discover returns the configuration of the provider. The error is an ErrUnavailable.
func (p *Provider) discover(ctx context.Context) (*found, error) {
	if known, err := p.known(); known != nil || err != nil {
		return known, err
	}
	answer, err, _ := p.asking.Do("", func() (any, error) {
		// Other requests wait for the same answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		f, err := p.request(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil {
			p.lockedFailure, p.lockedFailedAt = fmt.Errorf("%w: %w", ErrUnavailable, err), p.config.Clock.Now()
			return nil, p.lockedFailure
		}
		p.lockedFound, p.lockedFailure = f, nil
		return f, nil
	})
	if err != nil {
		return nil, err
	}
	f, _ := answer.(*found)
	return f, nil
}

// known returns the configuration if it was read, or the error of a recent request.
func (p *Provider) known() (*found, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lockedFailure != nil && p.config.Clock.Since(p.lockedFailedAt) < discoverEvery {
		return nil, p.lockedFailure
	}
	return p.lockedFound, nil
}

// request reads the discovery document.
func (p *Provider) request(ctx context.Context) (*found, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.config.Issuer)
	if err != nil {
		return nil, err
	}
	var more endpoints
	if err := provider.Claims(&more); err != nil {
		return nil, fmt.Errorf("reading the configuration of %s: %w", p.config.Issuer, err)
	}
	endpoint := provider.Endpoint()
	for name, address := range map[string]string{"authorization_endpoint": endpoint.AuthURL, "token_endpoint": endpoint.TokenURL} {
		if err := checkEndpoint(address); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", name, p.config.Issuer, err)
		}
	}
	// An optional endpoint that cannot be used is taken as absent.
	for _, optional := range []*string{&more.Revocation, &more.EndSession} {
		if checkEndpoint(*optional) != nil {
			*optional = ""
		}
	}
	endpoint.AuthStyle = p.authStyle(more.AuthMethods)
	return &found{
		oauth2: &oauth2.Config{
			ClientID: p.config.ClientID, ClientSecret: p.config.ClientSecret, Endpoint: endpoint,
			RedirectURL: p.config.RedirectURL, Scopes: scopes(p.config.Scopes, more.Scopes),
		},
		verifier:  provider.Verifier(&oidc.Config{ClientID: p.config.ClientID, Now: p.config.Clock.Now}),
		endpoints: more,
	}, nil
}

// checkEndpoint checks an address of the discovery document. It may have a query.
func checkEndpoint(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("%q is not a URL", address)
	}
	u.RawQuery = ""
	return CheckURL(u.String())
}

// authStyle returns how the client authenticates: a public client only names itself.
func (p *Provider) authStyle(methods []string) oauth2.AuthStyle {
	if p.config.ClientSecret == "" || (len(methods) > 0 && !slices.Contains(methods, "client_secret_basic")) {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// scopes returns those to request of those that are configured. An empty list of supported
// scopes means that the provider does not list them.
func scopes(configured, supported []string) []string {
	all := []string{oidc.ScopeOpenID}
	for _, s := range configured {
		s = strings.TrimSpace(s)
		if s == "" || slices.Contains(all, s) || s == oidc.ScopeOfflineAccess && len(supported) > 0 && !slices.Contains(supported, s) {
			continue
		}
		all = append(all, s)
	}
	return all
}
