package gitrepo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
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
	// maxMessage is how much of a server's text is shown.
	maxMessage = 300

	// limitedFor is how long to wait where a server limits the rate and does not say
	// for how long.
	limitedFor = time.Minute

	// maxRefs bounds a list of branches, in bytes: it is held in memory, four times
	// its size. It has room for 400,000 branches and tags.
	maxRefs = 32 << 20
	// refsPath is the end of the path that answers such a list.
	refsPath = "/info/refs"
)

// door is the http.RoundTripper of one clone. It lets requests only to the remote's
// own origin, bounds what comes back, and makes an *Error of every answer that is
// not a success.
type door struct {
	next   http.RoundTripper
	origin *url.URL
	// left is how many bytes may still come.
	left int64
	max  int64
	// secrets are struck out of whatever a server says: hooks and proxies echo headers.
	secrets []string
}

const (
	// struckOut stands for a credential in a text.
	struckOut = "[redacted]"

	// minSecret is the shortest text that is struck out, in bytes. Shorter ones are no
	// credentials of any service, and would strike out half of every message.
	minSecret = 6
)

// secretsOf are a remote's password, as it is and as it travels.
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
func (d *door) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != d.origin.Scheme || request.URL.Host != d.origin.Host {
		return nil, failed(NotFound, "the server leads to %q, where its credentials do not belong; check the repository's URL", request.URL.Host)
	}
	response, err := d.next.RoundTrip(request)
	if err != nil {
		return nil, d.unanswered(request.Context(), err)
	}
	if err := judge(response); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	most := d.max
	if strings.HasSuffix(request.URL.Path, refsPath) {
		most = min(most, maxRefs)
	}
	response.Body = &bounded{door: d, ctx: request.Context(), from: response.Body, left: most, max: most}
	return response, nil
}

// judge returns nil for successes and redirects.
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
		failure.Message = "no such repository, or none that the credentials may see: check its URL and the credentials' rights"
	case status == http.StatusTooManyRequests:
		failure.Class, failure.RetryAfter = RateLimited, limitedFor
	}
	// A date counts from the answer's own Date; the hub's time is for answers without one.
	if after, _ := backoff.RetryAfter(response.Header, time.Now()); after > 0 && !failure.Class.Terminal() {
		failure.RetryAfter = after
	}
	return failure
}

// bounded is the body of an answer, as long as its own bound and the clone's allow.
type bounded struct {
	door *door
	ctx  context.Context
	from io.ReadCloser
	left int64
	max  int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.door.left -= int64(n); b.door.left < 0 {
		return 0, failed(TooLarge, "the repository takes more than %d MiB to clone", b.door.max>>20)
	}
	if b.left -= int64(n); b.left < 0 {
		return 0, failed(TooLarge, "the server answers with more than %d MiB at once", b.max>>20)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.door.unanswered(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *bounded) Close() error { return b.from.Close() }

// unanswered makes an *Error of a request that got no answer, or only a part of one.
// That time has passed is the server's doing here, and nowhere else.
func (d *door) unanswered(ctx context.Context, err error) *Error {
	failure := *d.network(ctx, err)
	var connection net.Error
	failure.TimedOut = errors.Is(ctx.Err(), context.DeadlineExceeded) ||
		ctx.Err() == nil && errors.As(err, &connection) && connection.Timeout()
	return &failure
}

// network makes an *Error of whatever went wrong between here and the server.
func (d *door) network(ctx context.Context, err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	if ctx.Err() != nil {
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

// explain makes an *Error of whatever an operation of go-git ended with.
func (c *Clone) explain(ctx context.Context, op string, err error) error {
	var unexpected *plumbing.UnexpectedError // which does not unwrap
	if errors.As(err, &unexpected) {
		err = unexpected.Err
	}
	explained := *c.door.network(ctx, err)
	explained.Op = op
	return &explained
}

// clean makes a text fit to be shown: bounded, printable, free of credentials.
func (d *door) clean(text string) string {
	for _, secret := range d.secrets {
		text = strings.ReplaceAll(text, secret, struckOut)
	}
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, ""), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	return truncate.Runes(text, maxMessage)
}
