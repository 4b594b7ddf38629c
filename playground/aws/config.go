package aws

import (
	"net/http"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/capstan-hub/capstan/internal/sdkhttp"
)

// Root returns the keys of the root of Account, which Env has.
func Root() Session {
	return Session{AccessKeyID: AccessKeyID, SecretAccessKey: SecretAccessKey, ARN: RootARN}
}

// connections is the number of idle connections that a client of Config keeps, for the pollers of a
// queue.
const connections = 100

// Config returns a configuration for clients of the AWS SDK for Go that call this server in a
// region with some credentials, and without retries. The returned function closes the
// connections.
func (s *Server) Config(key Session, region string) (config sdk.Config, closeConnections func()) {
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	return sdk.Config{
		Region: region, BaseEndpoint: sdk.String(s.url), HTTPClient: sdkhttp.Client{Next: &http.Client{Transport: transport}},
		Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, key.Token),
		Retryer:     func() sdk.Retryer { return sdk.NopRetryer{} },
	}, transport.CloseIdleConnections
}
