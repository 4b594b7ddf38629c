package webhook

import (
	"encoding/base64"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
)

// whsec returns a key of Standard Webhooks of a number of bytes.
func whsec(fill string, size int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, size)))
}

// TestStandardVector: the example of the specification (the test of its libraries, webhook_test.go).
func TestStandardVector(t *testing.T) {
	g := NewWithT(t)
	sign, err := signature("standard", map[string][]byte{"hmac-key": []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")})
	g.Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://example.org/hook", nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(sign(request, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))).To(Succeed())
	g.Expect(request.Header).To(Equal(http.Header{
		"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	}))
}

// TestStandard: the library of Standard Webhooks verifies each call with the key and with the previous
// key, and no changed call. An attempt that is repeated later has the same id and another time.
func TestStandard(t *testing.T) {
	for _, mode := range []string{"structured", "binary"} {
		g, ctx := NewWithT(t), t.Context()
		var code atomic.Int64
		code.Store(http.StatusServiceUnavailable)
		r := serve(t, false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(code.Load())) })
		current, previous := whsec("a", 24), whsec("b", 64)
		times := clocktesting.NewFakePassiveClock(time.Now())
		s, err := Open(Options{
			Config: config(t, r.URL, keys{"signature": "standard", "secretRef": "s", "contentMode": mode}), Clock: times, AllowLoopback: true,
			Secret: map[string][]byte{"hmac-key": []byte(current), "hmac-key-previous": []byte(previous)},
		})
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = s.Close(ctx) })
		g.Expect(s.Publish(ctx, news())).NotTo(Succeed())
		times.SetTime(times.Now().Add(2 * time.Second))
		code.Store(http.StatusNoContent)
		g.Expect(s.Publish(ctx, news())).To(Succeed())
		g.Expect(r.requests).To(HaveLen(2))
		for i, request := range r.requests {
			header := request.Header
			g.Expect(header.Get("Webhook-Id")).To(Equal("id-1"))
			g.Expect(strings.Fields(header.Get("Webhook-Signature"))).To(HaveLen(2))
			g.Expect(header.Values("X-Signature")).To(BeEmpty())
			for _, key := range []string{current, previous} {
				verifier, err := standardwebhooks.NewWebhook(key)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(verifier.Verify(r.bodies[i], header)).To(Succeed())
				g.Expect(verifier.Verify(append([]byte(" "), r.bodies[i]...), header)).NotTo(Succeed(), "another body")
				for name, value := range map[string]string{"Webhook-Id": "id-2", "Webhook-Timestamp": "1614265330"} {
					changed := header.Clone()
					changed.Set(name, value)
					g.Expect(verifier.VerifyIgnoringTimestamp(r.bodies[i], changed)).NotTo(Succeed(), name)
				}
			}
			other, err := standardwebhooks.NewWebhook(whsec("c", 24))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(other.Verify(r.bodies[i], header)).NotTo(Succeed(), "another key")
		}
		g.Expect(r.requests[0].Header.Get("Webhook-Timestamp")).NotTo(Equal(r.requests[1].Header.Get("Webhook-Timestamp")))
		g.Expect(r.requests[0].Header.Get("Webhook-Signature")).NotTo(Equal(r.requests[1].Header.Get("Webhook-Signature")))
	}
}

// TestStandardKeys: a key that cannot be used is named, and its value is in no error.
func TestStandardKeys(t *testing.T) {
	good := whsec("a", 32)
	for name, c := range map[string]struct{ key, previous, named string }{
		"missing":        {"", "", "key hmac-key is missing"},
		"only previous":  {"", good, "key hmac-key is missing"},
		"no prefix":      {strings.TrimPrefix(good, "whsec_"), "", "key hmac-key must be whsec_"},
		"no base64":      {"whsec_" + canary + "!", "", "key hmac-key must be whsec_"},
		"short":          {whsec("a", 23), "", "key hmac-key must be whsec_"},
		"long":           {whsec("a", 65), "", "key hmac-key must be whsec_"},
		"wrong previous": {good, canary, "key hmac-key-previous must be whsec_"},
	} {
		g := NewWithT(t)
		_, err := Open(Options{
			Config: config(t, "https://events.example.com", keys{"signature": "standard", "secretRef": "s"}), Clock: now,
			Secret: map[string][]byte{"hmac-key": []byte(c.key), "hmac-key-previous": []byte(c.previous)},
		})
		g.Expect(err).To(MatchError(wire.ErrSecret), name)
		g.Expect(err).To(MatchError(And(ContainSubstring(c.named), Not(ContainSubstring(canary)))), name)
	}
	_, err := signature("v2", nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), "version 2 is optional")
}
