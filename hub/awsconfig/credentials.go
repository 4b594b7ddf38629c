package awsconfig

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// ErrCredentials is in the error of a call for which no credentials could be fetched: from STS,
// the metadata service or a file. The call was not made, so such an error says nothing about
// its parameters, even if STS calls it the fault of the client.
var ErrCredentials = errors.New("no AWS credentials")

// provider adds ErrCredentials to errors. The SDK has no type for them.
type provider struct{ aws.CredentialsProvider }

// Retrieve implements aws.CredentialsProvider.
func (p provider) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := p.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	return c, err
}
