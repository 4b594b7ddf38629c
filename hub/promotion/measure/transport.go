package measure

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/capstan-hub/capstan/internal/netguard"
)

const (
	// maxBody is the length of an answer, after decompression, in bytes.
	maxBody = 64 << 10
	// maxHeader is the length of its header in bytes.
	maxHeader = 64 << 10
	// maxFile is the length of a file with a token or with certificates, in bytes.
	maxFile = 1 << 20
	// dialTimeout of one connection, and idleTimeout of one that is not used. Checks have intervals
	// of 30 s or more.
	dialTimeout = 5 * time.Second
	idleTimeout = 90 * time.Second
)

// userAgent of the requests.
const userAgent = "capstan"

// peer makes the requests to one endpoint.
type peer struct {
	Endpoint
	dial func(context.Context, string, string) (net.Conn, error)

	// mu guards lockedTransport, and lockedCA, the certificates for which it was made.
	mu              sync.Mutex
	lockedTransport *http.Transport
	lockedCA        []byte
}

// newPeer makes a peer. Its connections end with the context.
func newPeer(ctx func() context.Context, e Endpoint, policy netguard.Policy) *peer {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: policy.Control}
	return &peer{Endpoint: e, dial: func(of context.Context, network, address string) (net.Conn, error) {
		// http.Transport goes on with a dial whose request has ended.
		of, cancel := context.WithCancel(of)
		defer cancel()
		defer context.AfterFunc(ctx(), cancel)()
		return dialer.DialContext(of, network, address)
	}}
}

// transport returns the transport for the certificates in the file at present.
func (p *peer) transport() (*http.Transport, error) {
	var ca []byte
	if p.CAFile != "" {
		var err error
		if ca, err = readFile(p.CAFile); err != nil {
			return nil, errCAFile
		}
	}
	made, old, err := p.transportFor(ca)
	if old != nil {
		old.CloseIdleConnections()
	}
	return made, err
}

// transportFor also returns the transport that it replaces, if any.
func (p *peer) transportFor(ca []byte) (made, old *http.Transport, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lockedTransport != nil && bytes.Equal(p.lockedCA, ca) {
		return p.lockedTransport, nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.CAFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, nil, errCAFile
		}
	}
	old = p.lockedTransport
	p.lockedCA = ca
	// No proxy is used, also not that of the environment: a proxy resolves names itself, so the
	// policy could not check the address.
	p.lockedTransport = &http.Transport{
		DialContext: p.dial, TLSClientConfig: config, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: maxAtEndpoint, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxHeader,
	}
	return p.lockedTransport, old, nil
}

// close closes the connections that are not in use.
func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lockedTransport != nil {
		p.lockedTransport.CloseIdleConnections()
	}
}

// token returns the bearer token; empty if there is none.
func (p *peer) token() (string, error) {
	if p.TokenFile == "" {
		return "", nil
	}
	raw, err := readFile(p.TokenFile)
	token := strings.TrimSpace(string(raw))
	if err != nil || token == "" || !httpguts.ValidHeaderFieldValue(token) {
		return "", errTokenFile
	}
	return token, nil
}

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(raw) > maxFile {
		err = errors.New("the file is too large")
	}
	return raw, err
}

// Errors of requests, which users see.
var (
	errTokenFile = errors.New("the hub cannot read a token in the token-file of the endpoint: the administrator must correct it")
	errCAFile    = errors.New("the hub cannot read a certificate in the ca-file of the endpoint: the administrator must correct it")
	errTooLarge  = fmt.Errorf("the answer has more than %d KiB: aggregate the result into one series, such as with sum() or max()", maxBody>>10)
)

// statusError is an answer that is not a success.
type statusError int

// Error says what the status code means, without a text of the server.
func (e statusError) Error() string {
	text := fmt.Sprintf("the endpoint answers with status %d", int(e))
	switch {
	case e >= 300 && e < 400:
		return text + ", a redirect, which is not followed: the administrator must name the final URL"
	case e == http.StatusBadRequest:
		return text + ": the query is not valid"
	case e == http.StatusUnauthorized, e == http.StatusForbidden:
		return text + ": the administrator must check the token-file of the endpoint"
	case e == http.StatusNotFound:
		return text + ": the administrator must check the URL of the endpoint"
	case e == http.StatusUnprocessableEntity:
		return text + ": the query cannot be executed"
	case e == http.StatusServiceUnavailable:
		return text + ": it is overloaded, or the query takes too long"
	}
	return text
}

// call is the http.RoundTripper of one query, which is one request, or two if the server refuses a
// POST. It reads the whole answer, within the limit.
type call struct {
	transport *http.Transport
	token     string
	// err is why the last request failed. Errors of client_golang may quote the answer.
	err error
}

// RoundTrip implements http.RoundTripper.
func (c *call) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.roundTrip(request)
	c.err = err
	if status := statusError(0); errors.As(err, &status) && refusesPost(int(status)) && request.Method == http.MethodPost {
		return response, nil // The client tries again with GET.
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

// refusesPost returns for which status codes client_golang tries again.
func refusesPost(status int) bool {
	return status == http.StatusForbidden || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented
}

// roundTrip returns a response without header, with a body in memory; also with a statusError.
func (c *call) roundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("User-Agent", userAgent)
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	plain := &http.Response{StatusCode: response.StatusCode, Header: http.Header{}, Body: http.NoBody, Request: request}
	if response.StatusCode/100 != http.StatusOK/100 {
		return plain, statusError(response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxBody:
		return nil, errTooLarge
	}
	plain.Body = io.NopCloser(bytes.NewReader(body))
	return plain, nil
}
