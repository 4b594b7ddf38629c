package gitrepo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/capstan-hub/capstan/internal/backoff"
	"github.com/capstan-hub/capstan/internal/truncate"
)

const (
	// maxMessage bounds the part of a server's text that is shown.
	maxMessage = 300

	// limitedFor is the wait after a rate limit whose response has no duration.
	limitedFor = time.Minute

	// maxRefs bounds a list of branches, in bytes. In memory it needs four times its
	// size. It has room for 400,000 branches and tags.
	maxRefs = 32 << 20
	// refsPath is the end of the path of such a list.
	refsPath = "/info/refs"
)

// guard is the http.RoundTripper of one clone. It allows requests only to the remote's
// origin, bounds the responses, and makes an *Error of every response that is not a
// success.
type guard struct {
	next   http.RoundTripper
	origin *url.URL
	// silence is the longest time in which the server may send nothing.
	silence time.Duration
	// left is the number of bytes that may still be received.
	left int64
	max  int64
	// failure of the last request; nil if it has none. go-git does not wrap every error that
	// it gets from a response.
	failure *Error
	// secrets are removed from every text of a server: hooks and proxies echo headers.
	secrets []string
}

const (
	// struckOut replaces a credential in a text.
	struckOut = "[redacted]"

	// minSecret is the length of the shortest text that is removed, in bytes. No service
	// has shorter credentials, and their removal would delete half of every message.
	minSecret = 6
)

// secretsOf returns a remote's password, plain and encoded as in requests.
func secretsOf(remote Remote) []string {
	if len(remote.Password) < minSecret {
		return nil
	}
	return []string{
		remote.Password, url.QueryEscape(remote.Password),
		base64.StdEncoding.EncodeToString([]byte(remote.Username + ":" + remote.Password)),
	}
}

// RoundTrip implements http.RoundTripper.
func (d *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	d.failure = nil
	response, err := d.send(request)
	_ = errors.As(err, &d.failure)
	return response, err
}

func (d *guard) send(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != d.origin.Scheme || request.URL.Host != d.origin.Host {
		return nil, failed(NotFound, "the server redirects to %q, which must not get the credentials; check the repository's URL", request.URL.Host)
	}
	watch, request := watched(request, d.silence)
	response, err := d.next.RoundTrip(request)
	watch.rest()
	if err != nil {
		watch.end()
		return nil, d.unanswered(request.Context(), watch.caller, err)
	}
	if err := judge(response); err != nil {
		_ = response.Body.Close()
		watch.end()
		return nil, err
	}
	most := d.max
	if strings.HasSuffix(request.URL.Path, refsPath) {
		most = min(most, maxRefs)
	}
	response.Body = &bounded{guard: d, watch: watch, ctx: request.Context(), from: response.Body, left: most, max: most}
	return response, nil
}

// judge returns an error for a response, nil for successes and redirects.
func judge(response *http.Response) error {
	status := response.StatusCode
	failure := &Error{Status: status, Class: Transient, Message: http.StatusText(status)}
	switch {
	case status >= 200 && status < 400:
		return nil
	case status == http.StatusUnauthorized, status == http.StatusProxyAuthRequired:
		failure.Class = Unauthorized
		failure.Message = "the credentials are wrong or have expired: put valid ones under the keys username and password, or token, of the Secret"
	case status == http.StatusForbidden:
		failure.Class = Forbidden
		failure.Message = "the credentials lack a right: they need to read and write the repository's contents"
	case status == http.StatusNotFound, status == http.StatusGone:
		failure.Class = NotFound
		failure.Message = "the repository does not exist, or the credentials may not read it: check its URL and the credentials' rights"
	case status == http.StatusTooManyRequests:
		failure.Class, failure.RetryAfter = RateLimited, limitedFor
	}
	// A date is relative to the Date of the response, or to the hub's clock without one.
	if after, _ := backoff.RetryAfter(response.Header, time.Now()); after > 0 && !failure.Class.Terminal() {
		failure.RetryAfter = after
	}
	return failure
}

// bounded is the body of a response, within its own bound and that of the clone.
type bounded struct {
	guard *guard
	watch *watch
	ctx   context.Context
	from  io.ReadCloser
	left  int64
	max   int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.read(p)
	_ = errors.As(err, &b.guard.failure)
	return n, err
}

func (b *bounded) read(p []byte) (int, error) {
	b.watch.wait()
	n, err := b.from.Read(p)
	b.watch.rest()
	if b.guard.left -= int64(n); b.guard.left < 0 {
		return 0, failed(TooLarge, "a clone of the repository needs more than %d MiB", b.guard.max>>20)
	}
	if b.left -= int64(n); b.left < 0 {
		return 0, failed(TooLarge, "a response of the server has more than %d MiB", b.max>>20)
	}
	// The server may complete an empty response when it notices the end of the connection.
	if err != nil && (!errors.Is(err, io.EOF) || b.ctx.Err() != nil) {
		err = b.guard.unanswered(b.ctx, b.watch.caller, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *bounded) Close() error {
	defer b.watch.end()
	return b.from.Close()
}

// unanswered makes an *Error of a request without a complete response. Only here is a
// timeout the server's. caller is the context in which the request was made, and ctx that of
// the request, which also ends when the server is silent.
func (d *guard) unanswered(ctx, caller context.Context, err error) *Error {
	if caller.Err() == nil && errors.Is(context.Cause(ctx), errSilent) {
		silent := failed(Transient, "the server sent nothing for %s", d.silence)
		silent.TimedOut = true
		return silent
	}
	failure := *d.network(caller, err)
	var connection net.Error
	failure.TimedOut = caller.Err() == nil && errors.As(err, &connection) && connection.Timeout()
	return &failure
}

// network makes an *Error of a failure between the hub and the server.
func (d *guard) network(ctx context.Context, err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &Error{
			Class: Transient, OutOfTime: true, Err: ctx.Err(),
			Message: fmt.Sprintf("the time of the attempt ended, after %d KiB were received", (d.max-d.left)>>10),
		}
	case ctx.Err() != nil:
		return &Error{Class: Transient, Message: ctx.Err().Error(), Err: ctx.Err()}
	}
	var unknown x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var certificate x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	if errors.As(err, &unknown) || errors.As(err, &hostname) || errors.As(err, &certificate) || errors.As(err, &verification) {
		return failed(Untrusted, "%s; put the CA that signed its certificate under caFile of the Secret", d.clean(err.Error()))
	}
	return failed(Transient, "%s", d.clean(err.Error()))
}

// explain makes an *Error of the error of a go-git operation.
func (c *Clone) explain(ctx context.Context, op string, err error) error {
	var unexpected *plumbing.UnexpectedError // It has no Unwrap method.
	if errors.As(err, &unexpected) {
		err = unexpected.Err
	}
	if known := (*Error)(nil); !errors.As(err, &known) && c.guard.failure != nil {
		err = c.guard.failure
	}
	explained := *c.guard.network(ctx, err)
	explained.Op = op
	return &explained
}

// clean returns a text for people: bounded, printable, without credentials.
func (d *guard) clean(text string) string {
	for _, secret := range d.secrets {
		text = strings.ReplaceAll(text, secret, struckOut)
	}
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, ""), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	return truncate.Runes(text, maxMessage)
}
