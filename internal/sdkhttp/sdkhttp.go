// Package sdkhttp has the HTTP client that the AWS SDK needs.
//
// Purpose: smithy-go closes the body of a request as soon as the headers of the response
// arrive. If the transport reads the end of the body after that, WriteTo of smithy-go's body
// returns io.EOF, where its Read ends without an error (smithy-go 1.28,
// transport/http/internal/io). The transport takes that for a failed request and closes the
// connection while the response is read, and the call fails with "use of closed network
// connection". It occurs with a server that is near, on a busy machine, and with responses
// that do not fit into the transport's buffer of 4 KiB.
//
// Contract: every client of the SDK, in the hub and in tests, sends its requests through
// a Client.
//
// Locking: none.
//
// Trade-offs: the transport copies the body through a buffer of its own, in place of one write.
// Bodies of requests to AWS are small.
package sdkhttp

import (
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Client sends requests through Next and hides all methods of their bodies except Read and Close.
type Client struct{ Next aws.HTTPClient }

// Do implements aws.HTTPClient.
func (c Client) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.Next.Do(r)
}
