package awsconfig

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"
	"k8s.io/utils/lru"

	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/internal/sdkhttp"
)

const (
	// product in the user agent, and the default name of a session.
	product = "capstan"

	// Time limits of one attempt: to connect, to the first byte of an answer, and to the last
	// byte. The first byte of a long poll of SQS takes 20 s.
	dialTimeout     = 5 * time.Second
	responseTimeout = 30 * time.Second
	attemptTimeout  = 60 * time.Second

	// attempts is the number of tries of a call, with waits that double up to mostBackoff.
	attempts    = 4
	mostBackoff = 10 * time.Second

	// A session is renewed renewBefore its end, with a random share, so that the sessions of
	// all roles are not renewed at the same time.
	renewBefore, renewSpread = 5 * time.Minute, 0.5

	// mostRoles is the maximum number of roles whose credentials are kept.
	mostRoles = 256
)

// Options of Load.
type Options struct {
	// Auth is the source of credentials; AuthDefault when empty.
	Auth Auth
	// Version of this program, for the user agent.
	Version string
	// Attempts is the number of tries of a call; 4 when 0.
	Attempts int
	// LoadOptions are applied after those of the hub. They replace what the environment
	// says, such as the endpoint and the credentials.
	LoadOptions []func(*config.LoadOptions) error
}

// Config is the AWS configuration of the process.
type Config struct {
	base aws.Config
	http *awshttp.BuildableClient
	sts  *sts.Client

	// mu guards roles.
	mu sync.Mutex
	// roles has the credentials of assumed roles, by Role.
	roles *lru.Cache
}

// Load returns the configuration. The error is of class ErrNoIRSA, or names the AWS setting in
// the environment or in a file that cannot be read.
func Load(ctx context.Context, o Options) (*Config, error) {
	if o.Auth == AuthIRSA {
		if err := CheckIRSA(os.Getenv); err != nil {
			return nil, err
		}
	}
	// Set below, when endpoints are known; no call happens before.
	own := &lateSTS{}
	base, err := config.LoadDefaultConfig(ctx, append([]func(*config.LoadOptions) error{
		config.WithDefaultRegion(homeRegion(os.Getenv(envRoleARN))),
		config.WithHTTPClient(newHTTPClient()),
		config.WithRetryer(func() aws.Retryer { return newRetryer(cmp.Or(o.Attempts, attempts)) }),
		config.WithAPIOptions([]func(*middleware.Stack) error{awsmiddleware.AddUserAgentKeyValue(product, o.Version)}),
		config.WithWebIdentityRoleCredentialOptions(func(w *stscreds.WebIdentityRoleOptions) { w.Client = own }),
	}, o.LoadOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	c := &Config{roles: lru.New(mostRoles)}
	// The SDK has added AWS_CA_BUNDLE to it.
	c.http = base.HTTPClient.(*awshttp.BuildableClient)
	base.HTTPClient = sdkhttp.Client{Next: c.http}
	own.Client = sts.NewFromConfig(base)
	if o.Auth == AuthIRSA {
		base.Credentials = cached(stscreds.NewWebIdentityRoleProvider(own,
			os.Getenv(envRoleARN), stscreds.IdentityTokenFile(os.Getenv(envTokenFile)),
			func(w *stscreds.WebIdentityRoleOptions) {
				w.RoleSessionName = cmp.Or(os.Getenv(envSessionName), product)
			}))
	}
	base.Credentials = provider{base.Credentials}
	c.base = base
	c.sts = sts.NewFromConfig(base)
	return c, nil
}

// lateSTS is an STS client that is set after its user is created.
type lateSTS struct{ *sts.Client }

// Region returns the process' own region.
func (c *Config) Region() string { return c.base.Region }

// In returns the configuration for calls in a region with the credentials of a role.
func (c *Config) In(region string, role Role) aws.Config {
	in := c.base.Copy()
	in.Region = region
	if role != (Role{}) {
		in.Credentials = c.assumed(role)
	}
	return in
}

// Guarded returns an HTTP client for an endpoint that an EventingBackend names: it dials
// only addresses that the policy allows, and its error names key endpoint. Endpoints of
// the environment (AWS_ENDPOINT_URL) are set by the administrator and are not checked. It uses no
// proxy of the environment: then only the proxy's address could be checked.
func (c *Config) Guarded(policy netguard.Policy) aws.HTTPClient {
	return sdkhttp.Client{Next: c.http.WithDialerOptions(func(d *net.Dialer) {
		d.Control = func(network, address string, raw syscall.RawConn) error {
			if err := policy.Control(network, address, raw); err != nil {
				return fmt.Errorf("key endpoint: %w", err)
			}
			return nil
		}
	}).WithTransportOptions(func(t *http.Transport) { t.Proxy = nil })}
}

// Verify checks a role's credentials by a call to STS in the process' region, which every
// identity may make.
func (c *Config) Verify(ctx context.Context, role Role) error {
	in := c.In(c.base.Region, role)
	_, err := sts.NewFromConfig(in).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	return err
}

// Close closes idle connections.
func (c *Config) Close() { c.http.GetTransport().CloseIdleConnections() }

// assumed returns the credentials of a role; all callers share them.
func (c *Config) assumed(role Role) aws.CredentialsProvider {
	c.mu.Lock()
	known, found := c.roles.Get(role)
	c.mu.Unlock()
	if found {
		return known.(aws.CredentialsProvider)
	}
	by := c.sts
	if source := role.Source(); source != (Role{}) {
		by = sts.NewFromConfig(c.In(c.base.Region, source))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, found := c.roles.Get(role); found {
		return known.(aws.CredentialsProvider)
	}
	made := provider{cached(stscreds.NewAssumeRoleProvider(by, role.ARN, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = cmp.Or(role.SessionName, product)
		if role.ExternalID != "" {
			o.ExternalID = aws.String(role.ExternalID)
		}
	}))}
	c.roles.Add(role, made)
	return made
}

func cached(p aws.CredentialsProvider) *aws.CredentialsCache {
	return aws.NewCredentialsCache(p, func(o *aws.CredentialsCacheOptions) {
		o.ExpiryWindow, o.ExpiryWindowJitterFrac = renewBefore, renewSpread
	})
}

// newRetryer returns the retryer of a client. The adaptive mode also slows the client down
// while AWS throttles it.
func newRetryer(attempts int) aws.Retryer {
	return retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
		o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff = attempts, mostBackoff
		})
	})
}

func newHTTPClient() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTimeout(attemptTimeout).
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout }).
		WithTransportOptions(func(t *http.Transport) {
			t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = dialTimeout, responseTimeout
		})
}

// homeRegion returns the region of a process that has none set: one with its partition's STS.
func homeRegion(roleARN string) string {
	switch partition, _, _ := strings.Cut(strings.TrimPrefix(roleARN, "arn:"), ":"); partition {
	case "aws-cn":
		return "cn-north-1"
	case "aws-us-gov":
		return "us-gov-west-1"
	}
	return "us-east-1"
}
