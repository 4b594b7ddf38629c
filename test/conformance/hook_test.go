package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/approval"
)

// C11 to C20: what is wrong with a call is found in weave's order, and answered with
// weave's codes and bodies.
func TestPromotionEndpoint(t *testing.T) {
	forEachScheme(t, "c11", func(t *testing.T, name string, s scheme, from *caller) {
		p := hooked(t, name, nil)
		hooked(t, name+"-empty", func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Targets = []pipelinesv1.Target{} })
		path, good := approval.PromotionPath(namespace, p.Name, "env-0"), fluxEvent(p.Spec.AppRef.Name, "1.0.0")
		other := func(field, value string) []byte {
			return fluxEvent(p.Spec.AppRef.Name, "1.0.0", func(o map[string]any) { o[field] = value })
		}
		for _, tc := range []struct {
			row, method, path string
			body              []byte
			code              int
			says              string
		}{
			{"C11 not POST", http.MethodGet, path, nil, 405, ""},
			{"C12 wrong path", http.MethodPost, "/promotion/" + namespace + "/" + p.Name, good, 404, "*"},
			{"C12 elsewhere", http.MethodPost, "/", good, 404, "*"},
			{"C13 no body", http.MethodPost, path, nil, 400, "*"},
			{"C14 not JSON", http.MethodPost, path, []byte("{"), 400, "*"},
			{"C14 no event", http.MethodPost, path, []byte(`["revision"]`), 400, "*"},
			{"C15 unknown Pipeline", http.MethodPost, approval.PromotionPath(namespace, "nowhere", "env-0"), good, 404, "*"},
			{"C16 signed", http.MethodPost, path, good, 204, ""},
			{"a revision that the environment does not run", http.MethodPost, path, fluxEvent(p.Spec.AppRef.Name, "9.9.9"), 204, ""},
			{"C17 other apiVersion", http.MethodPost, path, other("apiVersion", "example.org/v1"), 422, "involved object does not match Pipeline definition"},
			{"C17 other kind", http.MethodPost, path, other("kind", "Kustomization"), 422, "involved object does not match Pipeline definition"},
			{"C17 other name", http.MethodPost, path, other("name", "x"), 422, "involved object does not match Pipeline definition"},
			{"C17 other namespace", http.MethodPost, path, other("namespace", "elsewhere"), 422, "involved object does not match Pipeline definition"},
			{"C18 beyond the last", http.MethodPost, approval.PromotionPath(namespace, p.Name, "env-1"), good, 422, "cannot promote beyond last environment env-1"},
			{"C19 no targets", http.MethodPost, approval.PromotionPath(namespace, p.Name+"-empty", "env-0"), fluxEvent(p.Name+"-empty", "1.0.0"), 422, "environment env-1 has no targets"},
			{"C20 unknown environment", http.MethodPost, approval.PromotionPath(namespace, p.Name, "env-9"), good, 422, "app " + namespace + "/" + p.Name + " has no environment env-9 defined"},
			{"C20 no metadata", http.MethodPost, path, fluxEvent(p.Name, ""), 422, "event has no 'revision' in the metadata field."},
		} {
			t.Run(tc.row, func(t *testing.T) {
				g := NewWithT(t)
				got := from.call(t, tc.method, tc.path, s.sign(key, tc.method, tc.path, tc.body), tc.body)
				g.Expect(got.Code).To(Equal(tc.code), got.Body)
				if tc.says != "*" {
					g.Expect(got.Body).To(Equal(tc.says))
				}
				g.Expect(got.Location).To(BeEmpty())
			})
		}
	})
}

// C16: a caller without the key gets no other information.
func TestSignatureIsChecked(t *testing.T) {
	forEachScheme(t, "c16", func(t *testing.T, name string, s scheme, from *caller) {
		p := hooked(t, name, nil)
		body := fluxEvent(p.Name, "1.0.0")
		answers := map[string]bool{}
		defer func() { NewWithT(t).Expect(answers).To(HaveLen(1), "the answer does not depend on what is wrong") }()
		for _, path := range []string{approval.PromotionPath(namespace, p.Name, "env-0"), approval.ApprovalPath(namespace, p.Name, "env-1", "1.0.0")} {
			for what, headers := range map[string]http.Header{
				"unsigned":           {},
				"another key":        s.sign([]byte("another"), http.MethodPost, path, body),
				"empty":              {"X-Signature": {""}},
				"no hex":             {"X-Signature": {"v2=zz"}, "X-Signature-Timestamp": {fmt.Sprint(time.Now().Unix())}},
				"unknown algorithm":  {"X-Signature": {"md5=00"}},
				"no time":            {"X-Signature": s.sign(key, http.MethodPost, path, body)["X-Signature"], "X-Signature-Timestamp": {"now"}},
				"signed twice over":  {"X-Signature": append(s.sign(key, http.MethodPost, path, body)["X-Signature"], "v2=00")},
				"another, then ours": {"X-Signature": append([]string{"sha256=00"}, s.sign(key, http.MethodPost, path, body)["X-Signature"]...)},
			} {
				if what == "no time" && s.name == "legacy" {
					continue // Weave's signatures have none.
				}
				got := from.call(t, http.MethodPost, path, headers, body)
				NewWithT(t).Expect(got.Code).To(Equal(401), "%s %s", path, what)
				NewWithT(t).Expect(got.Body).To(HavePrefix("unauthorized: the hook accepts only calls that are signed with a key of the Pipeline."), "%s %s", path, what)
				answers[got.Body] = true
			}
		}
	})
}

// Without a secret no call can have a valid signature: every call gets 401.
func TestWithoutSecret(t *testing.T) {
	g := NewWithT(t)
	for name, edit := range map[string]func(*pipelinesv1.Pipeline){
		"no-secret-ref":  func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Strategy.SecretRef = nil },
		"no-promotion":   func(p *pipelinesv1.Pipeline) { p.Spec.Promotion = nil }, // C21 "no spec": there is no key to sign with.
		"no-such-secret": func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Strategy.SecretRef.Name = "none" },
		"no-key-in-it":   func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Strategy.SecretRef.Name = p.Name + "-kubeconfig" },
		"of-environments": func(p *pipelinesv1.Pipeline) {
			p.Spec.Environments[1].Promotion = p.Spec.Promotion
			p.Spec.Promotion = nil
		},
	} {
		p := hooked(t, "hook-"+name, edit)
		from := newCaller(hookStandby)
		for _, sign := range []func([]byte, string, string, []byte) http.Header{version2, weaves, func([]byte, string, string, []byte) http.Header { return nil }} {
			env := "env-0" // Of the last environment, nobody holds a key where only env-1 has one.
			if name == "of-environments" {
				env = "env-1"
			}
			path, body := approval.PromotionPath(namespace, p.Name, env), fluxEvent(p.Name, "1.0.0")
			g.Expect(from.call(t, http.MethodPost, path, sign(key, http.MethodPost, path, body), body).Code).To(Equal(401), name)
			path = approval.ApprovalPath(namespace, p.Name, "env-1", "1.0.0")
			if name != "of-environments" {
				g.Expect(from.call(t, http.MethodPost, path, sign(key, http.MethodPost, path, nil), nil).Code).To(Equal(401), name)
			}
		}
	}
}

// C16: weave's signatures are refused unless the administrator lets them pass.
func TestLegacySignaturesAreOffByDefault(t *testing.T) {
	g := NewWithT(t)
	p := hooked(t, "c16-off", nil)
	from, body := newCaller(hookLeader), fluxEvent("c16-off", "1.0.0")
	path := approval.PromotionPath(namespace, p.Name, "env-0")
	g.Expect(from.call(t, http.MethodPost, path, weaves(key, http.MethodPost, path, body), body).Code).To(Equal(401))
	path = approval.ApprovalPath(namespace, p.Name, "env-1", "1.0.0")
	g.Expect(from.call(t, http.MethodPost, path, weaves(key, http.MethodPost, path, nil), nil).Code).To(Equal(401))
}

// The environment's secret signs for it, and the Pipeline's does not any more.
func TestSecretOfTheEnvironment(t *testing.T) {
	g := NewWithT(t)
	p := hooked(t, "env-secret", func(p *pipelinesv1.Pipeline) {
		own := p.Spec.Promotion.DeepCopy()
		own.Strategy.SecretRef.Name = "env-secret-own"
		p.Spec.Environments[1].Promotion = own
	})
	own := []byte("another-c4n4ry")
	secret(t, "env-secret-own", approval.SecretKey, own)
	from, body, path := newCaller(hookLeader), fluxEvent("env-secret", "1.0.0"), approval.PromotionPath(namespace, p.Name, "env-0")
	g.Expect(from.call(t, http.MethodPost, path, version2(key, http.MethodPost, path, body), body).Code).To(Equal(401))
	g.Expect(from.call(t, http.MethodPost, path, version2(own, http.MethodPost, path, body), body).Code).To(Equal(204))
}

// C21: the response to the hint is the result of the promotion.
func TestPromotionStarted(t *testing.T) {
	forEachScheme(t, "c21", func(t *testing.T, name string, s scheme, from *caller) {
		g := NewWithT(t)
		p := hooked(t, name, nil)
		runsEverywhere(t, p)
		release(t, c, name, "1.1.0+0cc9a8446c95", "sha256:0cc9a8446c95009ef382f5eade883a67c257f77d50f84e78ecef2aac9428d1e5", true)
		path, body := approval.PromotionPath(namespace, p.Name, "env-0"), fluxEvent(name, "1.1.0+0cc9a8446c95")
		hint := func() answer {
			return from.call(t, http.MethodPost, path, s.sign(key, http.MethodPost, path, body), body)
		}

		got := hint()
		g.Expect(got.Code).To(Equal(204), got.Body)
		// The answer waits for the promotion, for 5 s: on a crowded machine it may be slower.
		all := awaitPhase(t, p, capstanv1.PhaseAwaitingRollout)
		g.Expect(all[0].Spec.Revision).To(Equal("1.1.0"))

		// If the promotion has a pull request, the response contains its URL.
		before := all[0].DeepCopy()
		all[0].Status.URL = "https://git.example.org/fleet/pulls/7"
		g.Expect(c.Status().Patch(t.Context(), &all[0], client.MergeFrom(before))).To(Succeed())
		g.Eventually(hint).WithTimeout(patience).Should(And(HaveField("Code", 201), HaveField("Location", "https://git.example.org/fleet/pulls/7")))
		g.Expect(promotionsOf(t, p)).To(HaveLen(1), "however often it is told")
	})
}

// C21: a promotion that cannot be executed.
func TestPromotionFails(t *testing.T) {
	forEachScheme(t, "c21f", func(t *testing.T, name string, s scheme, from *caller) {
		g := NewWithT(t)
		broken := hooked(t, name, func(p *pipelinesv1.Pipeline) {
			p.Spec.Promotion.Strategy.Notification = nil
			p.Spec.Promotion.Strategy.PullRequest = &pipelinesv1.PullRequestPromotion{
				Type: "gitea", URL: "https://git.example.org/a/b", BaseBranch: "main", SecretRef: pipelinesv1.LocalObjectReference{Name: "none"}}
		})
		unknown := hooked(t, name+"-none", func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Strategy.Notification = nil })
		runsEverywhere(t, broken)
		release(t, c, broken.Name, "1.1.0", "", true)
		for _, p := range []*pipelinesv1.Pipeline{broken, unknown} {
			path, body := approval.PromotionPath(namespace, p.Name, "env-0"), fluxEvent(p.Name, "1.1.0")
			g.Eventually(func() answer {
				return from.call(t, http.MethodPost, path, s.sign(key, http.MethodPost, path, body), body)
			}).
				WithTimeout(patience).Should(And(HaveField("Code", 500), HaveField("Body", HavePrefix(failedPromoting))))
		}
	})
}

// C22: the next environment waits; nothing is carried out.
func TestPromotionWithManualGate(t *testing.T) {
	forEachScheme(t, "c22", func(t *testing.T, name string, s scheme, from *caller) {
		g := NewWithT(t)
		p := hooked(t, name, func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
		runsEverywhere(t, p)
		release(t, c, name, "1.1.0", "", true)
		path, body := approval.PromotionPath(namespace, p.Name, "env-0"), fluxEvent(name, "1.1.0")
		got := from.call(t, http.MethodPost, path, s.sign(key, http.MethodPost, path, body), body)
		g.Expect(got.Code).To(Equal(204), got.Body)
		all := awaitPhase(t, p, capstanv1.PhaseAwaitingApproval)
		g.Eventually(func() string { return waitingApproval(t, p, "env-1") }).WithTimeout(patience).Should(Equal("1.1.0"))
		g.Expect(waitingApproval(t, p, "env-0")).To(BeEmpty())
		g.Expect(all[0].Status.Attempt).To(BeNil())
	})
}

// C24: one client's calls are limited, another's are not, and the budget comes back.
func TestRateLimit(t *testing.T) {
	g := NewWithT(t)
	first, second := newCaller(hookLeader), newCaller(hookLeader)
	code := func(from *caller) int { return from.call(t, http.MethodPost, "/", nil, nil).Code }
	for range approval.DefaultRateLimit {
		g.Expect(code(first)).To(Equal(404))
	}
	var refused answer
	n := 0
	g.Eventually(func() int { // Some of the budget may have come back already.
		n++
		address := fmt.Sprintf("2001:db8::%x", n)
		refused = first.call(t, http.MethodPost, "/", http.Header{"X-Real-Ip": {address}, "X-Forwarded-For": {address}}, nil)
		return refused.Code
	}).WithTimeout(patience).WithPolling(time.Millisecond).Should(Equal(429), "who writes other addresses into a header is the same client")
	at, err := http.ParseTime(refused.Headers.Get("Retry-After"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(at).To(BeTemporally("~", time.Now(), 5*time.Second))
	g.Expect(code(second)).To(Equal(404))
	g.Eventually(func() int { return code(first) }).WithTimeout(10 * time.Second).WithPolling(100 * time.Millisecond).Should(Equal(404))
}

// Late, tampered and oversized calls.
func TestOversizedCall(t *testing.T) {
	g := NewWithT(t)
	p := hooked(t, "large", nil)
	path, body := approval.PromotionPath(namespace, p.Name, "env-0"), []byte(strings.Repeat("x", 1<<20))
	got := newCaller(hookLeader).call(t, http.MethodPost, path, version2(key, http.MethodPost, path, body), body)
	g.Expect(got.Code).To(Equal(413), got.Body)
}

// A hint on a standby wakes the leader by an annotation; on the leader it writes nothing.
func TestHintOnStandbyAnnotatesThePipeline(t *testing.T) {
	g := NewWithT(t)
	p := hooked(t, "standby", nil)
	runsEverywhere(t, p)
	path, body := approval.PromotionPath(namespace, p.Name, "env-0"), fluxEvent("standby", "1.0.0")
	asked := func(hook string) string {
		g.Expect(newCaller(hook).call(t, http.MethodPost, path, version2(key, http.MethodPost, path, body), body).Code).To(Equal(204))
		g.Expect(c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "standby"}, p)).To(Succeed())
		return p.Annotations[pipelinesv1.RequestedAtAnnotation]
	}
	g.Expect(asked(hookLeader)).To(BeEmpty())
	g.Expect(asked(hookStandby)).NotTo(BeEmpty())
	g.Expect(p.Spec.Suspend).To(BeFalse())
}

// No byte of a key is logged, whatever was made of it.
func TestKeysAreNotLogged(t *testing.T) {
	g := NewWithT(t)
	p := hooked(t, "hmac-canary", nil)
	path := approval.PromotionPath(namespace, p.Name, "env-0")
	from := newCaller(hookLeader)
	for _, headers := range []http.Header{version2(key, http.MethodPost, path, nil), version2(key, http.MethodPost, "/", nil), {"X-Signature": {"v2=" + string(key)}}} {
		from.call(t, http.MethodPost, path, headers, nil)
	}
	g.Expect(logs.String()).To(ContainSubstring("call refused"))
	g.Expect(strings.Contains(logs.String(), string(key))).To(BeFalse())
	right := version2(key, http.MethodPost, path, nil).Get("X-Signature")
	g.Expect(strings.Contains(logs.String(), strings.TrimPrefix(right, "v2="))).To(BeFalse(), "nor is what would have been right")
}
