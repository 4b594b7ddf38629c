package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/capstan-hub/capstan/internal/netguard"
)

// maxAnswer is the largest answer of a proxy to CONNECT, in bytes. Its body is not read.
const maxAnswer = 64 << 10

// Dialer connects to targets. It is a value that may be used at the same time.
type Dialer struct {
	// Proxy to use; nil for none.
	Proxy *Proxy
	// Policy for the targets.
	Policy netguard.Policy
	// Timeout of a connection: of the dial, and of the handshakes with the proxy. Required.
	Timeout time.Duration
	// KeepAlive of TCP; net's default if 0.
	KeepAlive time.Duration
}

// DialContext connects to a target, host:port, over TCP. A refusal of the policy is a
// *netguard.Error, and every other failure on the way through the proxy an *Error.
func (d Dialer) DialContext(ctx context.Context, network, target string) (net.Conn, error) {
	if !d.Proxy.Serves(target) {
		direct := net.Dialer{Timeout: d.Timeout, KeepAlive: d.KeepAlive, Control: d.Policy.Control}
		return direct.DialContext(ctx, network, target)
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	if err := d.Policy.CheckProxied(host); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	conn, err := d.Proxy.dial(ctx, d.KeepAlive)
	if err != nil {
		return nil, err
	}
	if err := d.Proxy.tunnel(ctx, conn, target); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// dial connects to the proxy itself.
func (p *Proxy) dial(ctx context.Context, keepAlive time.Duration) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: keepAlive}).DialContext(ctx, "tcp", p.hostPort())
	if err != nil {
		return nil, p.failure(err, "cannot be reached: %s; check --%s, and that the proxy runs", reason(ctx, err), p.flag)
	}
	if p.address.Scheme != "https" {
		return conn, nil
	}
	secure := tls.Client(conn, &tls.Config{ServerName: p.address.Hostname(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, p.failure(err, "does not make a TLS connection: %s; its certificate must be of an authority that the hub's system trusts", reason(ctx, err))
	}
	return secure, nil
}

// tunnel requests a connection to the target. Afterwards, conn has the bytes of the target.
func (p *Proxy) tunnel(ctx context.Context, conn net.Conn, target string) error {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{"User-Agent": {"capstan"}}}
	name, password, err := p.user()
	if err != nil {
		return p.failure(err, "cannot be used: reading its credentials: %v", err)
	}
	if name != "" {
		request.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(name+":"+password)))
	}
	// The end of the context ends reads and writes that wait.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	code, buffered, err := exchange(conn, request)
	if !stop() {
		return p.failure(context.Cause(ctx), "does not answer: %s; check --%s, and that the proxy runs", reason(ctx, ctx.Err()), p.flag)
	}
	if err != nil {
		return p.failure(err, "does not answer as an HTTP proxy: %s; check --%s", reason(ctx, err), p.flag)
	}
	switch {
	case code == http.StatusOK && buffered > 0:
		return p.failure(nil, "sent bytes before the TLS connection to %s began: it does not forward bytes unchanged", target)
	case code == http.StatusOK:
		return nil
	case code == http.StatusProxyAuthRequired:
		return p.failure(nil, "answers 407 Proxy Authentication Required: give valid credentials in the file of --%s-credentials-file", p.flag)
	case code >= http.StatusInternalServerError:
		return p.failure(nil, "cannot connect to %s: it answers %d %s", target, code, http.StatusText(code))
	default:
		return p.failure(nil, "refuses to connect to %s: it answers %d %s; allow the host there", target, code, http.StatusText(code))
	}
}

// exchange sends a request and returns the status code of its answer. buffered is the number of bytes
// that followed the head of the answer.
func exchange(conn net.Conn, request *http.Request) (code, buffered int, err error) {
	if err := request.Write(conn); err != nil {
		return 0, 0, err
	}
	reader := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	response, err := http.ReadResponse(reader, request) //nolint:bodyclose // The caller closes the connection, which is the body of an answer to CONNECT.
	if err != nil {
		return 0, 0, err
	}
	return response.StatusCode, reader.Buffered(), nil
}

// Error is a failure of the proxy, or of the connection to it.
type Error struct {
	// Proxy is its URL, without credentials.
	Proxy string
	// Problem says what is wrong and what to do. It contains nothing of the answer but the status code.
	Problem string
	// Err is the cause; nil if the proxy refused.
	Err error
}

// Error names the proxy and the problem.
func (e *Error) Error() string { return fmt.Sprintf("the proxy %s %s", e.Proxy, e.Problem) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func (p *Proxy) failure(cause error, format string, args ...any) *Error {
	return &Error{Proxy: p.String(), Problem: fmt.Sprintf(format, args...), Err: cause}
}

// reason returns the text of an error without local ports, which differ for each attempt, and without
// the answer.
func reason(ctx context.Context, err error) string {
	var operation *net.OpError
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, context.Canceled), errors.Is(ctx.Err(), context.Canceled):
		return "the attempt was ended"
	case errors.As(err, &name):
		return "its name cannot be resolved"
	case errors.As(err, &certificate):
		return certificate.Err.Error()
	case errors.As(err, &operation):
		return operation.Op + ": " + operation.Err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closes the connection"
	}
	return "its answer is not HTTP"
}
