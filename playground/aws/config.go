package aws

import (
	"io"
	"net/http"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// Root returns the keys of the root of Account, which Env has.
func Root() Session {
	return Session{AccessKeyID: AccessKeyID, SecretAccessKey: SecretAccessKey, ARN: RootARN}
}

// Config returns a configuration for clients of the AWS SDK for Go that call this server in a
// region with some credentials, and without retries. The returned function closes the
// connections.
func (s *Server) Config(key Session, region string) (config sdk.Config, closeConnections func()) {
	transport := &http.Transport{}
	return sdk.Config{
		Region: region, BaseEndpoint: sdk.String(s.url), HTTPClient: patientClient{&http.Client{Transport: transport}},
		Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, key.Token),
		Retryer:     func() sdk.Retryer { return sdk.NopRetryer{} },
	}, transport.CloseIdleConnections
}

// patientClient hides the type of a request's body. Otherwise smithy-go closes the body when
// the response arrives before the writer of the request has read the end of the body, and
// the call fails.
type patientClient struct{ *http.Client }

// Do implements the SDK's HTTPClient.
func (c patientClient) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.Client.Do(r)
}
