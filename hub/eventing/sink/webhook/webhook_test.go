package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/approval" //nolint:depguard // A receiver checks with the code that checks calls to the hub.
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire/wiretest"
	"github.com/capstan-hub/capstan/internal/allowedhosts"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const canary = "S3CR3T-CANARY"

var now = clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))

type keys map[string]any

func config(t testing.TB, url string, more keys) schema.Config {
	t.Helper()
	all := keys{"url": url, "insecureHttp": true}
	for name, value := range more {
		all[name] = value
	}
	entries, err := eventingv1.NewConfig(all)
	if err != nil {
		t.Fatal(err)
	}
	c, problems := schema.HTTP().Resolve(entries)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return c
}

// receiver is a real HTTP server that keeps the requests it got.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	bodies   [][]byte
}

func serve(t *testing.T, tls bool, answer http.HandlerFunc) *receiver {
	t.Helper()
	before := goleak.IgnoreCurrent()
	r := &receiver{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		r.requests, r.bodies = append(r.requests, q), append(r.bodies, body)
		r.mu.Unlock()
		if answer != nil {
			answer(w, q)
		}
	})
	if tls {
		r.Server = httptest.NewTLSServer(handler)
	} else {
		r.Server = httptest.NewServer(handler)
	}
	t.Cleanup(func() {
		r.Close()
		if err := leaks.Find(before); err != nil {
			t.Error(err)
		}
	})
	return r
}

func open(t *testing.T, c schema.Config, secret map[string][]byte) *Sink {
	t.Helper()
	s, err := Open(Options{Config: c, Secret: secret, Origin: "fleet", Clock: now, AllowLoopback: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func news() ce.Event {
	e := ce.New()
	e.SetID("id-1")
	e.SetType(event.DefaultPrefix + "." + string(event.PromotionSucceeded))
	e.SetSource("/hubs/test")
	e.SetSubject("pipelines/shop/web")
	e.SetTime(time.Unix(1_700_000_000, 0).UTC())
	e.SetExtension("severity", "info")
	if err := e.SetData(ce.ApplicationJSON, map[string]string{"revision": "1.2.0"}); err != nil {
		panic(err)
	}
	return e
}

// TestModes: the same event arrives in both modes.
func TestModes(t *testing.T) {
	for _, mode := range []string{"structured", "binary"} {
		t.Run(mode, func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			r := serve(t, false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
			s := open(t, config(t, r.URL+"/hook?x=1", keys{"contentMode": mode}), nil)
			g.Expect(s.Ping(ctx)).To(Succeed())
			g.Expect(s.Publish(ctx, news())).To(Succeed())
			request, body := r.requests[0], r.bodies[0]
			g.Expect(request.Method).To(Equal(http.MethodPost))
			g.Expect(request.RequestURI).To(Equal("/hook?x=1"))
			if mode == "structured" {
				g.Expect(request.Header.Get("Content-Type")).To(HavePrefix("application/cloudevents+json"))
				var got ce.Event
				g.Expect(json.Unmarshal(body, &got)).To(Succeed())
				g.Expect(got.Validate()).To(Succeed())
				g.Expect(got.String()).To(Equal(news().String()))
				return
			}
			g.Expect(request.Header.Get("Content-Type")).To(Equal("application/json"))
			g.Expect(request.Header.Get("ce-id")).To(Equal("id-1"))
			g.Expect(request.Header.Get("ce-subject")).To(Equal("pipelines/shop/web"))
			g.Expect(request.Header.Get("ce-severity")).To(Equal("info"))
			g.Expect(body).To(MatchJSON(`{"revision":"1.2.0"}`))
		})
	}
}

// TestSignature: hub/approval accepts the signature, but not for another body or path.
func TestSignature(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	r := serve(t, false, nil)
	for _, path := range []string{"", "/hook/a%2Fb"} {
		s := open(t, config(t, r.URL+path, nil), map[string][]byte{"hmac-key": []byte(canary + "\n")})
		g.Expect(s.Publish(ctx, news())).To(Succeed())
		got := r.requests[len(r.requests)-1]
		body := r.bodies[len(r.bodies)-1]
		want := approval.Sign([]byte(canary), http.MethodPost, got.URL.EscapedPath(), now.Now(), body)
		for _, name := range approval.SignedHeaders {
			g.Expect(got.Header.Values(name)).To(Equal(want.Values(name)), name)
		}
		g.Expect(approval.Sign([]byte(canary), http.MethodPost, "/other", now.Now(), body)).NotTo(Equal(want))
	}
}

// sample is a receiver that checks signatures as docs/eventing.md describes.
type sample struct {
	key  []byte
	now  time.Time
	seen map[string]bool
}

func (s *sample) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	signature, signed := r.Header.Get("X-Signature"), r.Header.Get("X-Signature-Timestamp")
	at, err := strconv.ParseInt(signed, 10, 64)
	code := hmac.New(sha256.New, s.key)
	_, _ = fmt.Fprintf(code, "%s\n%s\n%s\n%x", r.Method, r.URL.EscapedPath(), signed, sha256.Sum256(body))
	late := s.now.Sub(time.Unix(at, 0)).Abs() > 5*time.Minute
	if err != nil || late || s.seen[signature] || !hmac.Equal([]byte(signature), []byte("v2="+hex.EncodeToString(code.Sum(nil)))) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.seen[signature] = true
	w.WriteHeader(http.StatusNoContent)
}

// TestReplay: a receiver that checks rejects a captured call that is sent again, sent elsewhere,
// changed, or sent later.
func TestReplay(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	checks := &sample{key: []byte(canary), now: now.Now(), seen: map[string]bool{}}
	server := httptest.NewServer(checks)
	t.Cleanup(server.Close)
	// heard is a proxy in between that keeps the calls.
	heard := serve(t, false, nil)
	g.Expect(open(t, config(t, heard.URL+"/hook", nil), map[string][]byte{"hmac-key": []byte(canary)}).Publish(ctx, news())).To(Succeed())
	send := func(path, body string) int {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+path, strings.NewReader(body))
		g.Expect(err).NotTo(HaveOccurred())
		request.Header = heard.requests[0].Header.Clone()
		answer, err := http.DefaultClient.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer.Body.Close()).To(Succeed())
		return answer.StatusCode
	}
	body := string(heard.bodies[0])
	g.Expect(send("/hook", strings.Replace(body, "1.2.0", "6.6.6", 1))).To(Equal(http.StatusUnauthorized), "changed")
	g.Expect(send("/other", body)).To(Equal(http.StatusUnauthorized), "elsewhere")
	checks.now = checks.now.Add(5*time.Minute + time.Second)
	g.Expect(send("/hook", body)).To(Equal(http.StatusUnauthorized), "late")
	checks.now = now.Now()
	g.Expect(send("/hook", body)).To(Equal(http.StatusNoContent))
	g.Expect(send("/hook", body)).To(Equal(http.StatusUnauthorized), "again")
}

// TestAuthorization: calls have the token, or user and password.
func TestAuthorization(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	r := serve(t, false, nil)
	g.Expect(open(t, config(t, r.URL, nil), map[string][]byte{"token": []byte("abc\n")}).Publish(ctx, news())).To(Succeed())
	g.Expect(r.requests[0].Header.Get("Authorization")).To(Equal("Bearer abc"))
	g.Expect(open(t, config(t, r.URL, nil), map[string][]byte{"username": []byte("hub"), "password": []byte("p w")}).Publish(ctx, news())).To(Succeed())
	user, password, _ := r.requests[1].BasicAuth()
	g.Expect([]string{user, password}).To(Equal([]string{"hub", "p w"}))
}

// TestAnswers: each status has its class. No error shows what was sent or received.
func TestAnswers(t *testing.T) {
	for status, want := range map[int]sink.Class{
		301: sink.Unavailable, 302: sink.Unavailable, 307: sink.Unavailable, 407: sink.Unavailable, 400: sink.Refused, 401: sink.Unavailable, 403: sink.Unavailable, 404: sink.Transient,
		405: sink.Unavailable, 408: sink.Transient, 409: sink.Transient, 410: sink.Gone, 413: sink.TooLarge, 415: sink.Refused,
		422: sink.Refused, 425: sink.Transient, 429: sink.Transient, 500: sink.Transient, 502: sink.Transient, 503: sink.Transient, 504: sink.Transient,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			other := serve(t, false, nil)
			r := serve(t, false, func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("Location", other.URL)
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, q.Header.Get("Authorization")) // An echo.
			})
			s := open(t, config(t, r.URL+"/"+canary+"?key="+canary, nil), map[string][]byte{"token": []byte(canary)})
			err := s.Publish(ctx, news())
			g.Expect(err).To(HaveOccurred())
			g.Expect(sink.Of(err).Class).To(Equal(want))
			g.Expect(err.Error()).NotTo(ContainSubstring(canary))
			if status == 429 || status == 503 {
				g.Expect(sink.Of(err).RetryAfter).To(Equal(7 * time.Second))
			}
			g.Expect(other.requests).To(BeEmpty(), "no redirect is followed")
		})
	}
}

// TestNoAnswer: a receiver is missing, hangs, has a forbidden address, or a certificate of an
// unknown authority. No error shows the secrets of the URL.
func TestNoAnswer(t *testing.T) {
	g := NewWithT(t)
	hold, strange := make(chan struct{}), serve(t, true, nil)
	hanging := serve(t, false, func(http.ResponseWriter, *http.Request) { <-hold })
	t.Cleanup(func() { close(hold) })
	gone := httptest.NewServer(nil)
	gone.Close()
	for url, code := range map[string]string{
		hanging.URL:                            sink.CodeTimeout,
		gone.URL:                               sink.CodeUnreachable,
		strange.URL:                            sink.CodeUnreachable,
		"http://169.254.169.254/latest":        "forbidden-address",
		"http://[fd00:ec2::254]/latest":        "forbidden-address",
		"http://0.0.0.0:1/":                    "forbidden-address",
		"https://does-not-exist.invalid/token": sink.CodeUnreachable,
	} {
		wait := time.Minute
		if code == sink.CodeTimeout {
			wait = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		s := open(t, config(t, url+"/"+canary, nil), map[string][]byte{"token": []byte(canary)})
		err := s.Publish(ctx, news())
		g.Expect(err).To(HaveOccurred(), url)
		g.Expect(sink.Of(err).Code).To(Equal(code), "%s: %v", url, err)
		g.Expect(err.Error()).NotTo(ContainSubstring(canary))
		if code != sink.CodeTimeout {
			g.Expect(s.Ping(ctx)).NotTo(Succeed(), url)
		}
		cancel()
	}
	s, err := Open(Options{Config: config(t, hanging.URL, nil), Clock: now})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Publish(t.Context(), news())).To(MatchError(netguard.ErrForbidden), "loopback, where it is not allowed")
}

// TestTLS: the authority and the client certificate of the Secret are used.
func TestTLS(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	ca := wiretest.NewCA(t)
	r := serve(t, true, nil)
	s := open(t, config(t, r.URL, nil), map[string][]byte{"ca.crt": ca.PEM})
	g.Expect(s.Ping(ctx)).NotTo(Succeed())
	trusted := wiretest.PEM(r.Certificate())
	cert, key := ca.Issue(t, "hub")
	s = open(t, config(t, r.URL, nil), map[string][]byte{"ca.crt": trusted, "tls.crt": cert, "tls.key": key})
	g.Expect(s.Ping(ctx)).To(Succeed())
	g.Expect(s.Publish(ctx, news())).To(Succeed())
}

// TestAbuseProtection: permission is requested once, and the receiver must give it.
func TestAbuseProtection(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	allow := ""
	r := serve(t, false, func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodOptions && q.Header.Get(requestOrigin) == "fleet" {
			w.Header().Set(allowedOrigin, allow)
		}
	})
	s := open(t, config(t, r.URL, keys{"abuseProtection": true}), nil)
	for _, no := range []string{"", "another"} {
		allow = no
		g.Expect(sink.Of(s.Publish(ctx, news())).Code).To(Equal("not-allowed"))
	}
	allow = "fleet"
	g.Expect(s.Publish(ctx, news())).To(Succeed())
	g.Expect(s.Publish(ctx, news())).To(Succeed())
	var methods []string
	for _, q := range r.requests {
		methods = append(methods, q.Method)
	}
	g.Expect(methods).To(Equal([]string{"OPTIONS", "OPTIONS", "OPTIONS", "POST", "POST"}))

	allow = "" // It withdraws its permission.
	g.Expect(sink.Of(s.Ping(ctx)).Code).To(Equal("not-allowed"))
	g.Expect(sink.Of(s.Publish(ctx, news())).Code).To(Equal("not-allowed"))
}

// TestProxy: all calls go through the proxy.
func TestProxy(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	proxy := serve(t, false, nil)
	s := open(t, config(t, "http://events.invalid/hook", keys{"proxyUrl": proxy.URL}), nil)
	g.Expect(s.Ping(ctx)).To(Succeed())
	g.Expect(s.Publish(ctx, news())).To(Succeed())
	g.Expect(proxy.requests[0].RequestURI).To(Equal("http://events.invalid/hook"))
}

// TestBadSecrets: the error names the key and not the value.
func TestBadSecrets(t *testing.T) {
	for name, secret := range map[string]map[string][]byte{
		"ca":          {"ca.crt": []byte(canary)},
		"token":       {"token": []byte(canary + " \x01 x")},
		"both":        {"token": []byte(canary), "username": []byte(canary)},
		"no password": {"username": []byte(canary)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Open(Options{Config: config(t, "https://events.example.com", nil), Secret: secret, Clock: now})
			g.Expect(err).To(MatchError(wire.ErrSecret))
			g.Expect(err.Error()).To(And(ContainSubstring("key "), Not(ContainSubstring(canary))))
		})
	}
}

// TestHosts: the Secret's annotation decides whether its token may be sent to the receiver and to the proxy.
func TestHosts(t *testing.T) {
	g := NewWithT(t)
	opened := func(hosts string, more keys) error {
		_, err := Open(Options{Config: config(t, "https://events.example.com", more), Secret: map[string][]byte{"token": []byte(canary)}, Clock: now,
			Hosts: allowedhosts.Of(map[string]string{capstanv1.AllowedHostsAnnotation: hosts}, false)})
		return err
	}
	g.Expect(opened("events.example.com", nil)).To(Succeed())
	g.Expect(opened("other.example.com", nil)).To(And(MatchError(wire.ErrSecret), MatchError(ContainSubstring("the host events.example.com:"))))
	behind := keys{"proxyUrl": "https://proxy.example.com:8443"}
	g.Expect(opened("events.example.com", behind)).To(MatchError(ContainSubstring("the host proxy.example.com:8443:")), "it sees the requests to a plain http URL")
	g.Expect(opened("*.example.com,proxy.example.com:8443", behind)).To(Succeed())
}

// TestLargeAnswers: only a part of a large answer is read.
func TestLargeAnswers(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	r := serve(t, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 8<<20)) })
	g.Expect(open(t, config(t, r.URL, nil), nil).Publish(ctx, news())).To(Succeed())
}
