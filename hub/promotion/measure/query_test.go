package measure

import (
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestValues(t *testing.T) {
	for name, tc := range map[string]struct {
		answer string
		want   float64
	}{
		"vector":   {vector("0.25"), 0.25},
		"zero":     {vector("0"), 0},
		"scalar":   {result("scalar", `[1700000000,"42"]`), 42},
		"exponent": {vector("-1.5e-3"), -0.0015},
		"warnings": {strings.Replace(vector("1"), `"status"`, `"warnings":["`+canary+`"],"status"`, 1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/prefix/api/v1/query" || r.FormValue("query") != "sum(x)" || r.Header.Get("Authorization") != "" {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				body(tc.answer)(w, r)
			})
			m := start(t, Options{Endpoints: []Endpoint{at(t, "main", s.URL+"/prefix/")}})
			got := measure(t, m, "main", "sum(x)")
			g.Expect(got).To(And(HaveField("Verdict", HasValue), HaveField("Value", tc.want)))
			g.Expect(testutil.ToFloat64(m.metrics.queries.WithLabelValues("value"))).To(Equal(1.0))
		})
	}
}

// G22: what is no value is never HasValue.
func TestG22NoValue(t *testing.T) {
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, text)
		}
	}
	failed := `{"status":"error","errorType":"` + canary + `","error":"` + canary + `"}`
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		want    Verdict
		says    string
	}{
		"empty":             {body(vector()), NoData, "the query returns no series"},
		"NaN":               {body(vector("NaN")), NoData, "the query returns NaN"},
		"Inf":               {body(vector("+Inf")), NoData, "the query returns an infinite number"},
		"-Inf":              {body(result("scalar", `[1,"-Inf"]`)), NoData, "the query returns an infinite number"},
		"two series":        {body(vector("1", "2")), Error, "the query returns 2 series: aggregate them into one, such as with sum() or max()"},
		"range":             {body(result("matrix", `[{"metric":{},"values":[[1,"1"]]}]`)), Error, "make one value of it"},
		"text":              {body(result("string", `[1,"`+canary+`"]`)), Error, "is not a result of Prometheus"},
		"histogram":         {body(result("vector", `[{"metric":{},"histogram":[1,{"count":"1","sum":"1","buckets":[]}]}]`)), Error, "histogram_quantile()"},
		"500":               {status(500, failed), Error, "the endpoint answers with status 500"},
		"503":               {status(503, failed), Error, "status 503: it is overloaded"},
		"400":               {status(400, failed), Error, "status 400: the query is not valid"},
		"422":               {status(422, failed), Error, "status 422: the query cannot be executed"},
		"401":               {status(401, canary), Error, "status 401: the administrator must check the token-file"},
		"403":               {status(403, canary), Error, "status 403: the administrator must check the token-file"},
		"404":               {status(404, canary), Error, "status 404: the administrator must check the URL"},
		"405":               {status(405, canary), Error, "the endpoint answers with status 405"},
		"204":               {status(204, ""), Error, "is not a result of Prometheus"},
		"timeout":           {hang, Error, "the endpoint does not answer within"},
		"an error with 200": {body(failed), Error, "is not a result of Prometheus"},
		"HTML":              {body("<html>" + canary), Error, "is not a result of Prometheus"},
		"nothing":           {body(""), Error, "is not a result of Prometheus"},
		"null":              {body("null"), Error, "is not a result of Prometheus"},
		"no data":           {body(`{"status":"success"}`), Error, "is not a result of Prometheus"},
		"another type":      {body(result(canary, `[]`)), Error, "is not a result of Prometheus"},
		"a wrong value":     {body(vector(canary)), Error, "is not a result of Prometheus"},
		"null in a vector":  {body(result("vector", `[null]`)), Error, ""},
		"a closed connection": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}, Error, "the connection to the endpoint fails"},
		"a slow body": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, vector("1")[:20])
			w.(http.Flusher).Flush()
			hang(w, r)
		}, Error, "the endpoint does not answer within"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := Options{}
			if strings.HasPrefix(tc.says, "the endpoint does not answer") {
				o.deadline = 200 * time.Millisecond
			}
			o.Endpoints = []Endpoint{at(t, "main", serve(t, tc.handler).URL)}
			got := measure(t, start(t, o), "main", "x")
			g.Expect(got.Verdict).To(Equal(tc.want))
			g.Expect(got.Message).To(ContainSubstring(tc.says))
		})
	}
}

func TestG22NoConnection(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	address := listener.Addr().String()
	g.Expect(listener.Close()).To(Succeed())
	m := start(t, Options{Endpoints: []Endpoint{at(t, "closed", "http://"+address), at(t, "unknown", "http://capstan-test.invalid")}})
	g.Expect(measure(t, m, "closed", "x")).To(And(HaveField("Verdict", Error), HaveField("Message", "the endpoint refuses the connection")))
	g.Expect(measure(t, m, "unknown", "x").Verdict).To(Equal(Error))
	g.Expect(measure(t, m, "absent", "x")).To(And(HaveField("Verdict", Error), HaveField("Message", `endpoint "absent" does not exist`)))
}

// G24: addresses inside are refused, redirects are not followed, and nothing of a large answer is
// kept.
func TestG24Addresses(t *testing.T) {
	g := NewWithT(t)
	loop := serve(t, body(vector("1")))
	m := start(t, Options{Endpoints: []Endpoint{at(t, "metadata", "http://169.254.169.254"), at(t, "mapped", "http://[::ffff:169.254.169.254]:80"), at(t, "loop", loop.URL)}})
	for _, name := range []string{"metadata", "mapped"} {
		began := time.Now()
		got := measure(t, m, name, "x")
		g.Expect(got.Verdict).To(Equal(Error))
		g.Expect(got.Message).To(ContainSubstring("the hub must not call 169.254.169.254: it is a link-local address"))
		g.Expect(time.Since(began)).To(BeNumerically("<", dialTimeout), "a packet would wait for its answer")
	}
	g.Expect(measure(t, m, "loop", "x").Verdict).To(Equal(HasValue))
}

func TestG24Loopback(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, body(vector("1")))
	m := start(t, Options{Endpoints: []Endpoint{at(t, "main", s.URL)}})
	m.peers["main"] = newPeer(m.context, at(t, "main", s.URL), policyWithoutLoopback)
	got := measure(t, m, "main", "x")
	g.Expect(got.Message).To(ContainSubstring("it is a loopback address"))
	g.Expect(s.requests.Load()).To(BeZero())
}

func TestG24Redirects(t *testing.T) {
	inside := serve(t, body(vector("1")))
	for _, code := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			g := NewWithT(t)
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, inside.URL+"/"+canary, code)
			})
			e := at(t, "main", s.URL)
			e.TokenFile = write(t, "token", canary)
			got := measure(t, start(t, Options{Endpoints: []Endpoint{e}}), "main", "x")
			g.Expect(got.Verdict).To(Equal(Error))
			g.Expect(got.Message).To(Equal(fmt.Sprintf("the endpoint answers with status %d, a redirect, which is not followed: the administrator must name the final URL", code)))
			g.Expect(s.requests.Load()).To(BeEquivalentTo(1))
			g.Expect(inside.requests.Load()).To(BeZero())
		})
	}
}

func TestG24LargeAnswers(t *testing.T) {
	chunk := []byte(strings.Repeat(canary+" ", 10_000))
	// pour writes a GiB, or what the client takes, and returns how much.
	pour := func(w io.Writer) (sum int64) {
		for sum < 1<<30 {
			n, err := w.Write(chunk)
			sum += int64(n)
			if err != nil {
				break
			}
		}
		return sum
	}
	var sent atomic.Int64
	for name, handler := range map[string]http.HandlerFunc{
		"plain": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, vector("1"))
			sent.Store(pour(w))
		},
		"gzip": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			sent.Store(pour(z) / 100) // It is compressed.
			_ = z.Close()
		},
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			sent.Store(pour(w))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := serve(t, handler)
			began := time.Now()
			got := measure(t, start(t, Options{Endpoints: []Endpoint{at(t, "main", s.URL)}}), "main", "x")
			g.Expect(got.Verdict).To(Equal(Error))
			if name != "an error" {
				g.Expect(got.Message).To(Equal("the answer has more than 64 KiB: aggregate the result into one series, such as with sum() or max()"))
			}
			g.Expect(time.Since(began)).To(BeNumerically("<", deadline))
			s.Close() // It waits for the handler.
			g.Expect(sent.Load()).To(BeNumerically("<", 64<<20))
		})
	}
	t.Run("header", func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Large", strings.Repeat(canary, maxHeader))
		})
		got := measure(t, start(t, Options{Endpoints: []Endpoint{at(t, "main", s.URL)}}), "main", "x")
		NewWithT(t).Expect(got.Verdict).To(Equal(Error))
	})
}

// The answer at the limit is read.
func TestAnswerAtTheLimit(t *testing.T) {
	g := NewWithT(t)
	answer := vector("1")
	for length, want := range map[int]Verdict{maxBody: HasValue, maxBody + 1: Error} {
		s := serve(t, body(answer+strings.Repeat(" ", length-len(answer))))
		g.Expect(measure(t, start(t, Options{Endpoints: []Endpoint{at(t, "main", s.URL)}}), "main", "x").Verdict).To(Equal(want))
	}
}

// The token goes to the endpoint, is read again, and is in no message.
func TestToken(t *testing.T) {
	g := NewWithT(t)
	var want atomic.Value
	want.Store(canary + "-1")
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+want.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, r.Header.Get("Authorization"))
			return
		}
		body(vector("1"))(w, r)
	})
	e := at(t, "main", s.URL)
	e.TokenFile = write(t, "token", canary+"-1\n")
	m := start(t, Options{Endpoints: []Endpoint{e}})
	g.Expect(measure(t, m, "main", "x").Verdict).To(Equal(HasValue))
	want.Store(canary + "-2")
	g.Expect(measure(t, m, "main", "x").Message).To(ContainSubstring("status 401"))
	write(t, e.TokenFile, canary+"-2")
	g.Expect(measure(t, m, "main", "x").Verdict).To(Equal(HasValue))
	for _, wrong := range []string{"", " \n", canary + "\r\nX-Other: 1", strings.Repeat(canary, maxFile)} {
		write(t, e.TokenFile, wrong)
		g.Expect(measure(t, m, "main", "x").Message).To(ContainSubstring("cannot read a token in the token-file"))
	}
}

func TestTokenFileIsAbsent(t *testing.T) {
	e := at(t, "main", "http://127.0.0.1:1")
	e.TokenFile = "/" + canary
	NewWithT(t).Expect(measure(t, start(t, Options{Endpoints: []Endpoint{e}}), "main", "x").Message).To(ContainSubstring("cannot read a token"))
}

func TestCertificates(t *testing.T) {
	g := NewWithT(t)
	s := httptest.NewUnstartedServer(body(vector("1")))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))

	e := at(t, "main", s.URL)
	e.CAFile = write(t, "ca", ca)
	other := at(t, "system", s.URL)
	m := start(t, Options{Endpoints: []Endpoint{e, other}})
	g.Expect(measure(t, m, "main", "x").Verdict).To(Equal(HasValue))
	first := m.peers["main"].lockedTransport
	g.Expect(measure(t, m, "main", "y").Verdict).To(Equal(HasValue))
	g.Expect(m.peers["main"].lockedTransport).To(BeIdenticalTo(first), "connections are used again")

	g.Expect(measure(t, m, "system", "x").Message).To(ContainSubstring("certificate of the endpoint is not valid or not trusted"))
	write(t, e.CAFile, canary)
	g.Expect(measure(t, m, "main", "x").Message).To(ContainSubstring("cannot read a certificate in the ca-file"))
	write(t, e.CAFile, ca+ca)
	g.Expect(measure(t, m, "main", "x").Verdict).To(Equal(HasValue))
	g.Expect(m.peers["main"].lockedTransport).NotTo(BeIdenticalTo(first), "the file is read again")

	named := e
	named.URL = &url.URL{Scheme: "https", Host: strings.Replace(s.Listener.Addr().String(), "127.0.0.1", "localhost", 1)}
	again := start(t, Options{Endpoints: []Endpoint{named}})
	g.Expect(measure(t, again, "main", "x").Message).To(ContainSubstring("certificate of the endpoint is not valid or not trusted"))
}

// No proxy of the environment is used.
func TestNoProxy(t *testing.T) {
	p := newPeer(nil, at(t, "main", "http://example.com"), policyWithoutLoopback)
	transport, err := p.transport()
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(transport.Proxy).To(BeNil())
}

// Servers that refuse a POST get the query in the URL.
func TestGet(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body(vector("1"))(w, r)
	})
	g.Expect(measure(t, start(t, Options{Endpoints: []Endpoint{at(t, "main", s.URL)}}), "main", "x").Verdict).To(Equal(HasValue))
	g.Expect(s.requests.Load()).To(BeEquivalentTo(2))
}
