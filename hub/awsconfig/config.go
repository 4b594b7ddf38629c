package awsconfig

import (
	"cmp"
	"context"
	"fmt"
	"io"
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
)

const (
	// product in the user agent, and the default name of a session.
	product = "capstan"

	// Time limits of one attempt: to connect, to the first byte of an answer, and to
	// its last. A long poll of SQS takes 20 s to its first byte.
	dialTimeout     = 5 * time.Second
	responseTimeout = 30 * time.Second
	attemptTimeout  = 60 * time.Second

	// attempts of a call, with waits that double up to mostBackoff.
	attempts    = 4
	mostBackoff = 10 * time.Second

	// A session is renewed this long before it ends, spread so that all roles of a
	// hub are not renewed at once.
	renewBefore, renewSpread = 5 * time.Minute, 0.5

	// mostRoles whose credentials are kept.
	mostRoles = 256
)

// Options of Load.
type Options struct {
	// Auth is where credentials come from; AuthDefault when empty.
	Auth Auth
	// Version of this program, for the user agent.
	Version string
	// Attempts of a call; 4 when 0.
	Attempts int
}

// Config is the process' configuration of AWS.
type Config struct {
	base aws.Config
	http *awshttp.BuildableClient
	sts  *sts.Client

	// mu guards roles.
	mu sync.Mutex
	// roles are the credentials of roles that were assumed, by Role.
	roles *lru.Cache
}

// Load the configuration. The error is of class ErrNoIRSA, or tells which setting of
// AWS in the environment or its files cannot be read.
func Load(ctx context.Context, o Options) (*Config, error) {
	if o.Auth == AuthIRSA {
		if err := CheckIRSA(os.Getenv); err != nil {
			return nil, err
		}
	}
	// Set below, when endpoints are known; nothing is called before.
	own := &lateSTS{}
	base, err := config.LoadDefaultConfig(ctx,
		config.WithDefaultRegion(homeRegion(os.Getenv(envRoleARN))),
		config.WithHTTPClient(newHTTPClient()),
		config.WithRetryer(func() aws.Retryer { return newRetryer(cmp.Or(o.Attempts, attempts)) }),
		config.WithAPIOptions([]func(*middleware.Stack) error{awsmiddleware.AddUserAgentKeyValue(product, o.Version)}),
		config.WithWebIdentityRoleCredentialOptions(func(w *stscreds.WebIdentityRoleOptions) { w.Client = own }),
	)
	if err != nil {
		return nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	c := &Config{roles: lru.New(mostRoles)}
	// The SDK has put AWS_CA_BUNDLE into it.
	c.http = base.HTTPClient.(*awshttp.BuildableClient)
	base.HTTPClient = client{c.http}
	own.Client = sts.NewFromConfig(base)
	if o.Auth == AuthIRSA {
		base.Credentials = cached(stscreds.NewWebIdentityRoleProvider(own,
			os.Getenv(envRoleARN), stscreds.IdentityTokenFile(os.Getenv(envTokenFile)),
			func(w *stscreds.WebIdentityRoleOptions) {
				w.RoleSessionName = cmp.Or(os.Getenv(envSessionName), product)
			}))
	}
	c.base = base
	c.sts = sts.NewFromConfig(base)
	return c, nil
}

// lateSTS is an STS client that is made after what uses it.
type lateSTS struct{ *sts.Client }

// Region of the process itself.
func (c *Config) Region() string { return c.base.Region }

// In is the configuration for calls in a region with the credentials of a role.
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
// the environment (AWS_ENDPOINT_URL) are the administrator's and are not checked.
func (c *Config) Guarded(policy netguard.Policy) aws.HTTPClient {
	return client{c.http.WithDialerOptions(func(d *net.Dialer) {
		d.Control = func(network, address string, raw syscall.RawConn) error {
			if err := policy.Control(network, address, raw); err != nil {
				return fmt.Errorf("key endpoint: %w", err)
			}
			return nil
		}
	})}
}

// Verify asks STS, in the process' region, whether a role's credentials are good. Every
// identity may ask that.
func (c *Config) Verify(ctx context.Context, role Role) error {
	in := c.In(c.base.Region, role)
	_, err := sts.NewFromConfig(in).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	return err
}

// Close the connections that no call uses.
func (c *Config) Close() { c.http.GetTransport().CloseIdleConnections() }

// assumed role's credentials; the same for all who ask.
func (c *Config) assumed(role Role) aws.CredentialsProvider {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, found := c.roles.Get(role); found {
		return known.(aws.CredentialsProvider)
	}
	made := cached(stscreds.NewAssumeRoleProvider(c.sts, role.ARN, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = cmp.Or(role.SessionName, product)
		if role.ExternalID != "" {
			o.ExternalID = aws.String(role.ExternalID)
		}
	}))
	c.roles.Add(role, made)
	return made
}

func cached(p aws.CredentialsProvider) *aws.CredentialsCache {
	return aws.NewCredentialsCache(p, func(o *aws.CredentialsCacheOptions) {
		o.ExpiryWindow, o.ExpiryWindowJitterFrac = renewBefore, renewSpread
	})
}

// newRetryer for a client. The adaptive one also slows the client down for as long as
// AWS throttles it.
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

// client is an HTTP client whose request bodies can be read and closed, and nothing
// else. The SDK closes a body as soon as there is an answer. If the transport is only
// then about to look for the body's end, the WriteTo of the SDK's body fails with
// io.EOF, where its Read ends well, and the transport breaks the connection under the
// answer (smithy-go 1.28). That is seen where the server is near or the machine busy.
type client struct{ *awshttp.BuildableClient }

// Do implements aws.HTTPClient.
func (c client) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.BuildableClient.Do(r)
}

// homeRegion of a process that was not told one: where its partition's STS is.
func homeRegion(roleARN string) string {
	switch partition, _, _ := strings.Cut(strings.TrimPrefix(roleARN, "arn:"), ":"); partition {
	case "aws-cn":
		return "cn-north-1"
	case "aws-us-gov":
		return "us-gov-west-1"
	}
	return "us-east-1"
}
