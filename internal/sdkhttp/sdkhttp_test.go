package sdkhttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/internal/sdkhttp"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// patience is the limit of a call, for a busy machine.
const patience = time.Minute

// A response is read to its end although the transport reads the end of the request's body
// after the SDK has closed the body.
func TestResponseBeforeTheEndOfTheRequest(t *testing.T) {
	leaks.AtEnd(t)
	g := NewWithT(t)
	events := newOrder()
	body := strings.Repeat("x", 1<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-events.ended:
		case <-r.Context().Done(): // The client's limit of time.
		}
		_, _ = io.WriteString(w, `{"Messages":[{"MessageId":"a","Body":"`+body+`"}]}`)
	}))
	t.Cleanup(server.Close)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return conn{c, events}, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	client := sqs.New(sqs.Options{
		Region: "eu-west-1", BaseEndpoint: aws.String(server.URL), Credentials: aws.AnonymousCredentials{}, Retryer: aws.NopRetryer{},
		HTTPClient: observing{sdkhttp.Client{Next: &http.Client{Transport: transport, Timeout: patience}}, events},
	})
	out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(server.URL + "/q")}, func(o *sqs.Options) {
		o.DisableMessageChecksumValidation = true
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out.Messages).To(HaveLen(1))
	g.Expect(len(*out.Messages[0].Body)).To(Equal(len(body)))
}

// order has the order of events: the SDK closes the body of a request, then the
// transport reads the end of the body.
type order struct {
	closed, ended chan struct{}
	close, end    func()
}

func newOrder() *order {
	o := &order{closed: make(chan struct{}), ended: make(chan struct{})}
	o.close, o.end = sync.OnceFunc(func() { close(o.closed) }), sync.OnceFunc(func() { close(o.ended) })
	return o
}

// conn is a connection whose write of a body returns after the SDK has closed the body.
type conn struct {
	net.Conn
	order *order
}

func (c conn) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(c.Conn, r)
	<-c.order.closed
	return n, err
}

// observing is an HTTP client that observes the bodies that the SDK sends.
type observing struct {
	next  aws.HTTPClient
	order *order
}

func (o observing) Do(r *http.Request) (*http.Response, error) {
	r.Body = &observed{r.Body, o.order}
	return o.next.Do(r)
}

// observed is a body of the SDK, with its WriteTo.
type observed struct {
	io.ReadCloser
	order *order
}

func (b *observed) Close() error {
	defer b.order.close()
	return b.ReadCloser.Close()
}

func (b *observed) Read(p []byte) (int, error) {
	defer b.noteEnd()
	return b.ReadCloser.Read(p)
}

func (b *observed) WriteTo(w io.Writer) (int64, error) {
	defer b.noteEnd()
	return b.ReadCloser.(io.WriterTo).WriteTo(w)
}

// noteEnd reports a read after Close.
func (b *observed) noteEnd() {
	select {
	case <-b.order.closed:
		b.order.end()
	default:
	}
}
