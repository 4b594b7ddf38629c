package measure

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/playground/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m.Run)) }

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// canary is in all that servers and files contain. It must be in no message.
const canary = "c4nary"

// vector is an answer with samples of these values, in the JSON of the HTTP API.
func vector(values ...string) string {
	samples := ""
	for i, v := range values {
		if i > 0 {
			samples += ","
		}
		samples += fmt.Sprintf(`{"metric":{"pod":"%s-%d"},"value":[1700000000.123,"%s"]}`, canary, i, v)
	}
	return `{"status":"success","data":{"resultType":"vector","result":[` + samples + `]}}`
}

// result is an answer of another type.
func result(of, value string) string {
	return fmt.Sprintf(`{"status":"success","data":{"resultType":"%s","result":%s}}`, of, value)
}

// server serves as an endpoint and counts the requests.
type server struct {
	*httptest.Server
	requests atomic.Int32
}

func serve(t *testing.T, handler http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// body answers every request.
func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Canary", canary)
		_, _ = w.Write([]byte(text))
	}
}

// hang answers no request until the client leaves.
func hang(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // The server sees that the client leaves when the body is read.
	<-r.Context().Done()
}

func at(t *testing.T, name, address string) Endpoint {
	t.Helper()
	u, err := url.Parse(address)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return Endpoint{Name: name, URL: u}
}

// start runs a Measurer until the end of the test.
func start(t *testing.T, o Options) *Measurer {
	t.Helper()
	g := NewWithT(t)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.AllowLoopback = true
	o.Registerer = prometheus.NewRegistry()
	m, err := New(o)
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Eventually(ended, patience).Should(Receive(BeNil()))
	})
	return m
}

// measure waits for a result.
func measure(t *testing.T, m *Measurer, endpoint, query string) Measurement {
	t.Helper()
	got := make(chan Measurement, 2)
	m.Measure(Query{Endpoint: endpoint, Query: query}, m.options.Clock.Now(), func(one Measurement) { got <- one })
	var one Measurement
	NewWithT(t).Eventually(got, patience).Should(Receive(&one))
	checkMeasurement(t, one)
	return one
}

// checkMeasurement checks what holds for all.
func checkMeasurement(t *testing.T, one Measurement) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(one.Message).NotTo(ContainSubstring(canary))
	g.Expect(one.Message == "").To(Equal(one.Verdict == HasValue), one.Message)
	g.Expect(len(one.Message)).To(BeNumerically("<=", 300))
	g.Expect(one.Started.IsZero()).To(BeFalse())
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(t.TempDir(), name)
	}
	NewWithT(t).Expect(os.WriteFile(name, []byte(text), 0o600)).To(Succeed())
	return name
}
