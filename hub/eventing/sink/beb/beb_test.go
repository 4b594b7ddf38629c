package beb

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire/wiretest"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const canary = "S3CR3T-CANARY"

// mesh is a fake Event Mesh with a token endpoint, the REST API, and faults that a test sets.
type mesh struct {
	*httptest.Server
	mu sync.Mutex
	// fetched counts tokens; the newest is valid until it is revoked.
	fetched   int
	withdrawn bool
	// life is the lifetime of tokens, in seconds.
	life int
	// refuse rejects the client; status is the answer to every call with a valid token.
	refuse bool
	status int
	after  string
	posted []*http.Request
	bodies []string
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	before := goleak.IgnoreCurrent()
	m := &mesh{life: 3600, status: http.StatusNoContent}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth/token", m.token)
	mux.HandleFunc("POST "+eventsPath, m.events)
	mux.HandleFunc("GET "+subscriptionsPath, m.events)
	m.Server = httptest.NewTLSServer(mux)
	t.Cleanup(func() {
		m.Close()
		if err := leaks.Find(before); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *mesh) token(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	user, password, _ := r.BasicAuth()
	if user != "client" || password != canary || r.FormValue("grant_type") != "client_credentials" || m.refuse {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":"invalid_client","error_description":"`+password+`"}`) // An echo.
		return
	}
	m.fetched++
	m.withdrawn = false
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"access_token":"%s-%d","token_type":"bearer","expires_in":%d}`, canary, m.fetched, m.life)
}

func (m *mesh) events(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Header.Get("Authorization") != fmt.Sprintf("Bearer %s-%d", canary, m.fetched) || m.withdrawn {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodPost {
		m.posted, m.bodies = append(m.posted, r), append(m.bodies, string(body))
	}
	w.Header().Set("Retry-After", m.after)
	w.WriteHeader(m.status)
}

func (m *mesh) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

func (m *mesh) tokens() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fetched
}

// secret returns a service key for the mesh.
func (m *mesh) secret() map[string][]byte {
	key := fmt.Sprintf(`[
		{"broker":{"type":"sapmgw"},"oa2":{"clientid":"x"},"uri":"wss://example.com"},
		{"broker":{"type":"saprestmgw"},"protocol":["httprest"],"uri":"%[1]s",
		 "oa2":{"clientid":"client","clientsecret":"%[2]s","granttype":"client_credentials","tokenendpoint":"%[1]s/oauth/token"}}]`, m.URL, canary)
	return map[string][]byte{"messaging": []byte(key), "namespace": []byte("default/sap.capstan/1\n"), "ca.crt": wiretest.PEM(m.Certificate())}
}

func config(t *testing.T, pairs ...string) schema.Config {
	t.Helper()
	values := map[string]any{}
	for _, pair := range append(pairs, "secretRef=key") {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	entries, err := eventingv1.NewConfig(values)
	if err != nil {
		t.Fatal(err)
	}
	c, problems := schema.BEB().Resolve(entries)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return c
}

func open(t *testing.T, m *mesh, c schema.Config, clock *clocktesting.FakePassiveClock) *Sink {
	t.Helper()
	s, err := Open(Options{Config: c, Secret: m.secret(), Clock: clock, AllowLoopback: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func clockNow() *clocktesting.FakePassiveClock {
	return clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
}

func news() ce.Event {
	e := ce.New()
	e.SetID("id-1")
	e.SetType("dev.capstan.promotion.succeeded.v1")
	e.SetSource("/hubs/test")
	e.SetSubject("pipelines/shop/web")
	if err := e.SetData(ce.ApplicationJSON, map[string]string{"revision": "1.2.0"}); err != nil {
		panic(err)
	}
	return e
}

// TestPublish in both modes, with qos and the namespace as source.
func TestPublish(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	m := newMesh(t)
	s := open(t, m, config(t), clockNow())
	g.Expect(s.Ping(ctx)).To(Succeed())
	e := news()
	g.Expect(s.Publish(ctx, e)).To(Succeed())
	g.Expect(e.Source()).To(Equal("/hubs/test"), "the caller's event is left alone")
	header := m.posted[0].Header
	g.Expect(header.Get("qos")).To(Equal("AT_LEAST_ONCE"))
	g.Expect(header.Get("ce-source")).To(Equal("/default/sap.capstan/1"))
	g.Expect(header.Get("ce-id")).To(Equal("id-1"))
	g.Expect(m.bodies[0]).To(MatchJSON(`{"revision":"1.2.0"}`))
	s = open(t, m, config(t, "contentMode=STRUCTURED", "qos=AT-MOST-ONCE", "namespace=other/one/2"), clockNow())
	g.Expect(s.Publish(ctx, news())).To(Succeed())
	g.Expect(m.posted[1].Header.Get("qos")).To(Equal("AT_MOST_ONCE"))
	g.Expect(m.bodies[1]).To(And(ContainSubstring(`"source":"/other/one/2"`), ContainSubstring(`"id":"id-1"`)))
}

// TestTokens: a token is fetched once for all calls, before it expires, and once after it was
// revoked.
func TestTokens(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	m, now := newMesh(t), clockNow()
	s := open(t, m, config(t), now)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := s.Publish(ctx, news()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	g.Expect(m.tokens()).To(Equal(1))

	for range 3 {
		now.SetTime(now.Now().Add(10 * time.Minute))
		g.Expect(s.Publish(ctx, news())).To(Succeed())
	}
	g.Expect(m.tokens()).To(Equal(1), "it lives for an hour")
	now.SetTime(now.Now().Add(30*time.Minute - early)) // It expires during the calls.
	g.Expect(s.Publish(ctx, news())).To(Succeed())
	g.Expect(m.tokens()).To(Equal(2))

	m.change(func() { m.withdrawn = true })
	g.Expect(s.Publish(ctx, news())).To(Succeed())
	g.Expect(m.tokens()).To(Equal(3))

	m.change(func() { m.status = http.StatusUnauthorized }) // For every token.
	err := s.Publish(ctx, news())
	g.Expect(sink.Of(err).Class).To(Equal(sink.Unavailable))
	g.Expect(sink.Of(err).Code).To(Equal(sink.CodeUnauthorized))
	g.Expect(m.tokens()).To(Equal(4), "refreshed once, not for ever")
}

// TestTokensWithoutExpiry: such a token is used for a short time.
func TestTokensWithoutExpiry(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	m, now := newMesh(t), clockNow()
	m.life = 0
	s := open(t, m, config(t), now)
	for range 3 {
		g.Expect(s.Publish(ctx, news())).To(Succeed())
	}
	g.Expect(m.tokens()).To(Equal(1))
	now.SetTime(now.Now().Add(shortest))
	g.Expect(s.Publish(ctx, news())).To(Succeed())
	g.Expect(m.tokens()).To(Equal(2))
}

// TestTokenEndpoint: if the token endpoint rejects the client, the error has no part of its
// answer.
func TestTokenEndpoint(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	m := newMesh(t)
	s := open(t, m, config(t), clockNow())
	m.change(func() { m.refuse = true })
	for _, err := range []error{s.Ping(ctx), s.Publish(ctx, news())} {
		g.Expect(sink.Of(err).Class).To(Equal(sink.Unavailable))
		g.Expect(sink.Of(err).Code).To(Equal(sink.CodeUnauthorized))
		g.Expect(err.Error()).NotTo(ContainSubstring(canary))
	}
	m.change(func() { m.refuse = false })
	g.Expect(s.Publish(ctx, news())).To(Succeed())
}

// TestAnswers: each status has its class.
func TestAnswers(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	m := newMesh(t)
	s := open(t, m, config(t), clockNow())
	for status, want := range map[int]sink.Class{
		400: sink.Refused, 403: sink.Unavailable, 413: sink.TooLarge, 429: sink.Transient, 503: sink.Transient, 500: sink.Transient,
	} {
		m.change(func() { m.status, m.after = status, "9" })
		err := s.Publish(ctx, news())
		g.Expect(sink.Of(err).Class).To(Equal(want), fmt.Sprint(status))
		g.Expect(err.Error()).NotTo(ContainSubstring(canary))
		if status == 429 || status == 503 {
			g.Expect(sink.Of(err).RetryAfter).To(Equal(9 * time.Second))
		}
	}
	posted := len(m.posted)
	e := news()
	e.DataEncoded = []byte(`"` + strings.Repeat("x", maxBody) + `"`)
	g.Expect(sink.Of(s.Publish(ctx, e)).Class).To(Equal(sink.TooLarge))
	g.Expect(m.posted).To(HaveLen(posted), "it is not sent")
}

// TestBadServiceKeys: the error says what is wrong and does not show the value.
func TestBadServiceKeys(t *testing.T) {
	element := func(change ...string) string {
		text := `{"broker":{"type":"saprestmgw"},"uri":"https://mesh.example","oa2":{"clientid":"c","clientsecret":"` + canary +
			`","granttype":"client_credentials","tokenendpoint":"https://token.example"}}`
		for i := 0; i < len(change); i += 2 {
			text = strings.ReplaceAll(text, change[i], change[i+1])
		}
		return "[" + text + "]"
	}
	for name, test := range map[string]struct{ messaging, namespace, says string }{
		"missing":         {"", "ns", "key messaging is missing"},
		"no JSON":         {canary, "ns", "is not a JSON list"},
		"no rest gateway": {element("saprestmgw", "sapmgw"), "ns", "no element with broker.type saprestmgw"},
		"no client":       {element(`"c"`, `""`), "ns", "no oa2.clientid"},
		"plain uri":       {element("https://mesh", "http://mesh"), "ns", "no https uri"},
		"plain token":     {element("https://token", "http://token"), "ns", "no https oa2.tokenendpoint"},
		"user in uri":     {element("https://mesh", "https://u:"+canary+"@mesh"), "ns", "no https uri"},
		"other grant":     {element("client_credentials", "password"), "ns", "granttype"},
		"no namespace":    {element(), "", "key namespace is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Open(Options{Config: config(t), Clock: clockNow(), Secret: map[string][]byte{"messaging": []byte(test.messaging), "namespace": []byte(test.namespace)}})
			g.Expect(err).To(MatchError(wire.ErrSecret))
			g.Expect(err.Error()).To(And(ContainSubstring(test.says), Not(ContainSubstring(canary))))
		})
	}
}
