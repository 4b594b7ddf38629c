package chat_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/chat"
	"github.com/capstan-hub/capstan/hub/eventing/sink/chat/chattest"
	"github.com/capstan-hub/capstan/hub/eventing/sink/slack"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
	"github.com/capstan-hub/capstan/internal/netguard"
)

// TestSecrets: an address that cannot be used is refused, and no error contains it.
func TestSecrets(t *testing.T) {
	config := chattest.Config(t, schema.Slack(), nil)
	for name, secret := range map[string]map[string][]byte{
		"no Secret": nil,
		"no key":    {"address": []byte("https://hooks.example.org/" + chattest.Canary)},
		"empty":     {"url": []byte(" \n")},
		"http":      {"url": []byte("http://hooks.example.org/" + chattest.Canary)},
		"no host":   {"url": []byte("https:///" + chattest.Canary)},
		"user":      {"url": []byte("https://u:" + chattest.Canary + "@hooks.example.org/")},
		"fragment":  {"url": []byte("https://hooks.example.org/#" + chattest.Canary)},
		"malformed": {"url": []byte("https://hooks.example.org/%zz" + chattest.Canary)},
		"two lines": {"url": []byte("https://hooks.example.org/" + chattest.Canary + "\nhttps://b")},
		"long":      {"url": []byte("https://hooks.example.org/" + chattest.Canary + strings.Repeat("a", 5000))},
		"authority": {"url": []byte("https://hooks.example.org/" + chattest.Canary), "ca.crt": []byte(chattest.Canary)},
	} {
		g := NewWithT(t)
		_, err := chat.Open(chat.Options{Service: slack.Service(), Config: config, Secret: secret, Clock: clock.RealClock{}})
		g.Expect(err).To(MatchError(wire.ErrSecret), name)
		g.Expect(err).To(MatchError(And(ContainSubstring("key "), Not(ContainSubstring(chattest.Canary)))), name)
	}
}

// TestConnections: forbidden addresses are not dialled, a certificate of another authority is refused, a
// proxy gets the host only, and no error contains a path.
func TestConnections(t *testing.T) {
	g := NewWithT(t)
	hook := chattest.Serve(t, chattest.Status(http.StatusOK, "ok"))
	e := chattest.Event(t, chattest.Promotion(capstanv1.PhaseSucceeded), event.PromotionSucceeded)
	config := chattest.Config(t, schema.Slack(), nil)
	s := chattest.Open(t, slack.Service(), config, hook.Secret())
	g.Expect(s.Ping(t.Context())).To(Succeed())
	g.Expect(hook.Bodies()).To(BeEmpty(), "a ping posts no message")
	g.Expect(s.Publish(t.Context(), e)).To(Succeed())

	strict, err := chat.Open(chat.Options{Service: slack.Service(), Config: config, Secret: hook.Secret(), Clock: clock.RealClock{}})
	g.Expect(err).NotTo(HaveOccurred())
	for _, err := range []error{strict.Ping(t.Context()), strict.Publish(t.Context(), e)} {
		g.Expect(err).To(MatchError(netguard.ErrForbidden))
		g.Expect(sink.Of(err)).To(And(HaveField("Class", sink.Unavailable), HaveField("Code", sink.CodeForbiddenAddress)))
		g.Expect(err).To(MatchError(Not(ContainSubstring(chattest.Canary))))
	}

	secret := hook.Secret()
	delete(secret, "ca.crt")
	distrusting := chattest.Open(t, slack.Service(), config, secret)
	for _, err := range []error{distrusting.Ping(t.Context()), distrusting.Publish(t.Context(), e)} {
		g.Expect(err).To(MatchError(And(ContainSubstring("certificate"), Not(ContainSubstring(chattest.Canary)))))
	}

	asked := make(chan string, 8)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.RequestURI
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	proxied := chattest.Open(t, slack.Service(), chattest.Config(t, schema.Slack(), map[string]any{"proxyUrl": proxy.URL}), hook.Secret())
	g.Expect(proxied.Ping(t.Context())).To(Succeed())
	err = proxied.Publish(t.Context(), e)
	g.Expect(sink.Of(err).Class).To(Equal(sink.Transient))
	g.Expect(err).To(MatchError(Not(ContainSubstring(chattest.Canary))))
	u, err := url.Parse(hook.URL)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(asked).To(Receive(Equal("CONNECT " + u.Host)))
	g.Expect(asked).To(BeEmpty())

	hook.Close()
	for _, err := range []error{s.Ping(t.Context()), s.Publish(t.Context(), e)} {
		g.Expect(sink.Of(err).Class).To(Equal(sink.Transient))
		g.Expect(err).To(MatchError(Not(ContainSubstring(chattest.Canary))))
	}
}

// TestRedirect: a redirect is not followed, and its target is in no error.
func TestRedirect(t *testing.T) {
	g := NewWithT(t)
	other := chattest.Serve(t, chattest.Status(http.StatusOK, "ok"))
	hook := chattest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/"+chattest.Canary, http.StatusTemporaryRedirect)
	})
	s := chattest.Open(t, slack.Service(), chattest.Config(t, schema.Slack(), nil), hook.Secret())
	err := s.Publish(t.Context(), chattest.Event(t, chattest.Promotion(capstanv1.PhaseSucceeded), event.PromotionSucceeded))
	g.Expect(sink.Of(err)).To(And(HaveField("Class", sink.Unavailable), HaveField("Code", "http-307")))
	g.Expect(err).To(MatchError(Not(ContainSubstring(chattest.Canary))))
	g.Expect(other.Bodies()).To(BeEmpty())
}

// TestUnknown: an event that is not of the catalogue is refused and not posted.
func TestUnknown(t *testing.T) {
	g := NewWithT(t)
	hook := chattest.Serve(t, chattest.Status(http.StatusOK, "ok"))
	s := chattest.Open(t, slack.Service(), chattest.Config(t, schema.Slack(), nil), hook.Secret())
	e := chattest.Event(t, chattest.Promotion(capstanv1.PhaseSucceeded), event.PromotionSucceeded)
	e.SetType("dev.capstan.something.else.v1")
	g.Expect(sink.Of(s.Publish(t.Context(), e))).To(And(HaveField("Class", sink.Refused), HaveField("Code", "malformed")))
	g.Expect(hook.Bodies()).To(BeEmpty())
}

// TestSlowAnswers: the deadline of the context ends a call.
func TestSlowAnswers(t *testing.T) {
	g := NewWithT(t)
	hook := chattest.Serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Second):
		}
	})
	s := chattest.Open(t, slack.Service(), chattest.Config(t, schema.Slack(), nil), hook.Secret())
	g.Expect(s.Ping(t.Context())).To(Succeed())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := s.Publish(ctx, chattest.Event(t, chattest.Promotion(capstanv1.PhaseSucceeded), event.PromotionSucceeded))
	g.Expect(sink.Of(err)).To(And(HaveField("Class", sink.Transient), HaveField("Code", sink.CodeTimeout)))
}

func TestFit(t *testing.T) {
	wide := func(s string) string { return "(" + s + ")" }
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{{"", 5, ""}, {"a", 3, "(a)"}, {"ab", 6, "(a)(b)"}, {"ab", 5, "(a)…"}, {"ab", 3, "…"}, {"abc", 7, "(a)(b)…"}, {"éé", 4, "(é)…"}} {
		if got := chat.Fit(c.text, c.limit, wide); got != c.want || utf8.RuneCountInString(got) > c.limit {
			t.Errorf("Fit(%q, %d) = %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}
