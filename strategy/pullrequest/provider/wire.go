package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"k8s.io/utils/clock"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/internal/truncate"
)

const (
	defaultUserAgent = "capstan"

	// maxAnswer bounds the decompressed body of one response, in bytes. The largest real
	// ones are a page of 100 pull requests with long bodies and Azure DevOps' table of
	// resources; both are below 4 MiB.
	maxAnswer = 8 << 20

	// maxMessage bounds the part of a service's message that is shown.
	maxMessage = 300

	// maxRedirects of one request. A renamed repository needs one.
	maxRedirects = 3
)

// errSlow is the cause of this package's deadline, to distinguish it from the caller's.
var errSlow = errors.New("deadline of the provider package")

// wire is the http.RoundTripper of all vendors' clients. It adds the credentials to
// requests for the service's API, and refuses requests for other origins. It returns
// responses completely read and bounded, and only successes: all others become an *Error.
type wire struct {
	kind       pipelinesv1.GitProviderType
	base       *http.Transport
	scheme     string
	host       string
	authorizer *authorizer
	timeout    time.Duration
	userAgent  string
	clock      clock.PassiveClock
}

func newWire(o Options, r Repository, a *authorizer, base *http.Transport) (*wire, error) {
	api, err := url.Parse(r.APIURL)
	if err != nil {
		return nil, invalid(o.Type, "apiURL is not a valid URL")
	}
	return &wire{
		kind: o.Type, base: base, scheme: api.Scheme, host: api.Host, authorizer: a,
		timeout: o.Timeout, userAgent: o.UserAgent, clock: o.Clock,
	}, nil
}

// client returns an HTTP client that uses the wire, which sets deadlines and checks
// redirects.
func (w *wire) client() *http.Client {
	return &http.Client{
		Transport: w,
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return refused(Transient, "the service redirects more than %d times", maxRedirects)
			}
			return nil
		},
	}
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		defer request.Body.Close()
	}
	if request.URL.Scheme != w.scheme || request.URL.Host != w.host {
		return nil, refused(Invalid, "the service redirects to %q, which must not get the credentials", request.URL.Host)
	}
	parent := request.Context()
	ctx, cancel := context.WithTimeoutCause(parent, w.timeout, errSlow)
	defer cancel()
	request = request.Clone(ctx)
	request.Header.Set("User-Agent", w.userAgent)
	if err := w.authorizer.authorize(request, w.clock.Now()); err != nil {
		return nil, err
	}
	response, err := w.base.RoundTrip(request)
	if err != nil {
		return nil, w.network(parent, ctx, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, w.network(parent, ctx, err)
	}
	if len(body) > maxAnswer {
		return nil, refused(Transient, "the response is larger than %d MiB", maxAnswer>>20)
	}
	if err := w.judge(request, response, body); err != nil {
		return nil, err
	}
	response.Body = newBody(body)
	response.ContentLength = int64(len(body))
	return response, nil
}

// judge returns nil for successes and for redirects that may be followed.
func (w *wire) judge(request *http.Request, response *http.Response, body []byte) error {
	status := response.StatusCode
	switch {
	case status == http.StatusNonAuthoritativeInfo && w.kind == pipelinesv1.AzureDevOps:
		// Azure DevOps responds to an invalid token with its sign-in page, as 203.
		return w.refusal(response, Unauthorized, "the service responds with its sign-in page")
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return w.redirect(request, response)
	}
	class, message := classify(w.kind, status, body)
	if after, limited := rateLimit(w.kind, response, message, w.clock.Now()); limited {
		refusal := w.refusal(response, RateLimited, message)
		refusal.RetryAfter = after
		return refusal
	}
	refusal := w.refusal(response, class, message)
	switch class { //nolint:exhaustive // The others need nothing more.
	case Unauthorized, Forbidden, NotFound:
		w.authorizer.forget()
	case Transient:
		refusal.RetryAfter = retryAfter(response, w.clock.Now())
	}
	return refusal
}

func (w *wire) refusal(response *http.Response, class Class, message string) *Error {
	return &Error{
		Class: class, Provider: w.kind, Status: response.StatusCode,
		Message: w.clean(message), Remedy: remedy(w.kind, class, response.Header),
	}
}

// redirect allows redirects within the origin that do not turn a write into a read, such as
// those of a renamed repository on GitHub.
func (w *wire) redirect(request *http.Request, response *http.Response) error {
	to, err := response.Location()
	switch {
	case err != nil:
		return w.refusal(response, Transient, "the response is a redirect without a target")
	case to.Scheme != w.scheme || to.Host != w.host:
		if w.kind == pipelinesv1.AzureDevOps {
			return w.refusal(response, Unauthorized, "the service responds with its sign-in page")
		}
		return w.refusal(response, NotFound, fmt.Sprintf("the service redirects to %s://%s, which must not get the credentials", to.Scheme, to.Host))
	case request.Method == http.MethodGet, response.StatusCode == http.StatusTemporaryRedirect, response.StatusCode == http.StatusPermanentRedirect:
		return nil
	default:
		return w.refusal(response, NotFound, "the repository has moved within the service; correct its URL")
	}
}

// network makes an *Error of a request without a response.
func (w *wire) network(parent, ctx context.Context, err error) error {
	failure := &Error{Class: Transient, Provider: w.kind, TimedOut: timedOut(parent, err)}
	var unknown x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var certificate x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	var between *egress.Error
	switch {
	case parent.Err() != nil:
		failure.Err, failure.Message = parent.Err(), parent.Err().Error()
		return failure
	case errors.Is(context.Cause(ctx), errSlow):
		failure.Message, failure.TimedOut = fmt.Sprintf("%s did not respond within %s", w.host, w.timeout), true
		return failure
	case errors.As(err, &between): // Also its certificate is not the service's.
	case errors.As(err, &unknown), errors.As(err, &hostname), errors.As(err, &certificate), errors.As(err, &verification):
		failure.Class = Untrusted
		failure.Remedy = "put the CA that signed its certificate under caFile of the Secret"
	case errors.Is(err, netguard.ErrForbidden):
		failure.Class = Invalid
	}
	failure.Message = w.clean(err.Error())
	if failure.Class == Transient {
		failure.Message = fmt.Sprintf("%s is unreachable: %s", w.host, failure.Message)
	}
	return failure
}

// timedOut reports whether an error is a timeout of the connection. The end of the caller's
// context says nothing about the service.
func timedOut(caller context.Context, err error) bool {
	var connection net.Error
	return errors.Is(caller.Err(), context.DeadlineExceeded) ||
		caller.Err() == nil && errors.As(err, &connection) && connection.Timeout()
}

// clean returns a text for people: bounded, printable, without credentials.
func (w *wire) clean(text string) string {
	text = w.authorizer.redact(strings.ToValidUTF8(text, ""))
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	return truncate.Runes(text, maxMessage)
}
