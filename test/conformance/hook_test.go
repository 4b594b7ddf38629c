package conformance

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/approval"
)

// scheme is a way to sign, and a replica that takes it.
type scheme struct {
	name string
	hook func() string
	sign func(key []byte, method, path string, body []byte) http.Header
}

func version2(key []byte, method, path string, body []byte) http.Header {
	return approval.Sign(key, method, path, time.Now(), body)
}

// weaves signs as weave does: the body of a promotion, nothing of an approval.
func weaves(key []byte, _, path string, body []byte) http.Header {
	mac := hmac.New(sha256.New, key)
	if strings.HasPrefix(path, "/promotion/") {
		mac.Write(body)
	}
	return http.Header{"X-Signature": {"sha256=" + hex.EncodeToString(mac.Sum(nil))}}
}

var schemes = []scheme{
	{"v2", func() string { return hookLeader }, version2},
	{"v2-standby", func() string { return hookStandby }, version2},
	{"legacy", func() string { return hookStandby }, weaves},
}

// forEachScheme runs a row under each way to sign, with a name that the objects of
// the run may have.
func forEachScheme(t *testing.T, row string, run func(t *testing.T, name string, s scheme, from *caller)) {
	for _, s := range schemes {
		t.Run(s.name, func(t *testing.T) { run(t, row+"-"+s.name, s, newCaller(s.hook())) })
	}
}

// caller calls the hook from a loopback address of its own, so that the rate limit of
// one test is not another's.
type caller struct {
	http *http.Client
	url  string
}

var callers byte

func newCaller(hook string) *caller {
	callers++
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 9, callers)}}
	return &caller{
		http: &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}},
		url:  "http://" + hook,
	}
}

// answer is what the hook said.
type answer struct {
	Code           int
	Body, Location string
	Headers        http.Header
}

func (c *caller) call(t *testing.T, method, path string, headers http.Header, body []byte) answer {
	t.Helper()
	a, err := c.try(t.Context(), method, path, headers, body)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return a
}

func (c *caller) try(ctx context.Context, method, path string, headers http.Header, body []byte) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(string(body)))
	if err != nil {
		return answer{}, err
	}
	for key, values := range headers {
		request.Header[key] = values
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(said), response.Header.Get("Location"), response.Header}, err
}

// key of every Pipeline's Secret in these tests.
var key = []byte("c4n4ry-hm4c-key-0f-the-h00k")

const (
	failedPromoting = "error promoting application, please consult the promotion server's logs"
	failedApproving = "failed approving promotion"
)

// fluxEvent is what notification-controller posts of a release.
func fluxEvent(app, revision string, edit ...func(map[string]any)) []byte {
	involved := map[string]any{"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "namespace": "shop", "name": app}
	e := map[string]any{
		"involvedObject": involved, "severity": "info", "timestamp": "2026-01-01T00:00:00Z", "message": "Helm upgrade succeeded",
		"reason": "UpgradeSucceeded", "reportingController": "helm-controller",
	}
	if revision != "" {
		e["metadata"] = map[string]any{"revision": revision}
	}
	for _, f := range edit {
		f(involved)
	}
	raw, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return raw
}

// hooked is a Pipeline with a key: env-0 in the management cluster runs 1.0.0, and so
// does env-1 in the other.
func hooked(t *testing.T, name string, edit func(*pipelinesv1.Pipeline)) *pipelinesv1.Pipeline {
	t.Helper()
	release(t, c, name, "1.0.0", "", true)
	release(t, remote, name, "1.0.0", "", true)
	capiCluster(t, name, kubeconfig(t))
	secret(t, name+"-hmac", approval.SecretKey, key)
	p := newPipeline(name, name, target("", ""), target("Cluster", name))
	p.Spec.Promotion = &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{
		Notification: &pipelinesv1.NotificationPromotion{}, SecretRef: &pipelinesv1.LocalObjectReference{Name: name + "-hmac"},
	}}
	if edit != nil {
		edit(p)
	}
	create(t, c, p)
	return p
}

// runsEverywhere waits until both environments were seen at 1.0.0.
func runsEverywhere(t *testing.T, p *pipelinesv1.Pipeline) {
	t.Helper()
	for _, env := range []string{"env-0", "env-1"} {
		expectTarget(t, p, env, func(g Gomega, s pipelinesv1.TargetStatus) { g.Expect(s.Revision).To(Equal("1.0.0")) })
	}
}

func promotionsOf(t *testing.T, p *pipelinesv1.Pipeline) []capstanv1.Promotion {
	t.Helper()
	var list capstanv1.PromotionList
	NewWithT(t).Expect(c.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{capstanv1.PipelineUIDLabel: string(p.UID)})).To(Succeed())
	return list.Items
}

func waitingApproval(t *testing.T, p *pipelinesv1.Pipeline, env string) string {
	t.Helper()
	NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
	return p.Status.Environments[env].WaitingApproval.Revision
}

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

// C16: who has not the key is told nothing but that.
func TestSignatureIsChecked(t *testing.T) {
	forEachScheme(t, "c16", func(t *testing.T, name string, s scheme, from *caller) {
		p := hooked(t, name, nil)
		body := fluxEvent(p.Name, "1.0.0")
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
				NewWithT(t).Expect(got.Body).To(BeEmpty(), "%s %s", path, what)
			}
		}
	})
}

// Without a secret nobody can have signed: 401, whatever the call.
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

// C21: the hint is answered with what comes of the promotion.
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
		all := promotionsOf(t, p)
		g.Expect(all).To(HaveLen(1), "the answer waits for the promotion")
		g.Expect(all[0].Spec.Revision).To(Equal("1.1.0"))
		g.Expect(all[0].Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))

		// Where the promotion has a pull request, the answer tells where.
		before := all[0].DeepCopy()
		all[0].Status.URL = "https://git.example.org/fleet/pulls/7"
		g.Expect(c.Status().Patch(t.Context(), &all[0], client.MergeFrom(before))).To(Succeed())
		g.Eventually(hint).WithTimeout(patience).Should(And(HaveField("Code", 201), HaveField("Location", "https://git.example.org/fleet/pulls/7")))
		g.Expect(promotionsOf(t, p)).To(HaveLen(1), "however often it is told")
	})
}

// C21: a promotion that cannot be carried out.
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
			got := from.call(t, http.MethodPost, path, s.sign(key, http.MethodPost, path, body), body)
			g.Expect(got.Code).To(Equal(500), got.Body)
			g.Expect(got.Body).To(HavePrefix(failedPromoting))
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
		g.Expect(waitingApproval(t, p, "env-1")).To(Equal("1.1.0"))
		g.Expect(waitingApproval(t, p, "env-0")).To(BeEmpty())
		all := promotionsOf(t, p)
		g.Expect(all).To(HaveLen(1))
		g.Expect(all[0].Status.Attempt).To(BeNil())
	})
}

// C23, N6: an approval is recorded once, and who captured it can do nothing with it.
func TestApproval(t *testing.T) {
	forEachScheme(t, "c23", func(t *testing.T, name string, s scheme, from *caller) {
		g := NewWithT(t)
		p := hooked(t, name, func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
		runsEverywhere(t, p)
		path := approval.ApprovalPath(namespace, p.Name, "env-1", "1.1.0")
		post := func(path string, headers http.Header) answer {
			return from.call(t, http.MethodPost, path, headers, nil)
		}
		signed := func(path string) http.Header { return s.sign(key, http.MethodPost, path, nil) }

		g.Expect(post(path, signed(path))).To(And(HaveField("Code", 422), HaveField("Body", HavePrefix(failedApproving))), "nothing waits yet")
		release(t, c, name, "1.1.0", "", true)
		g.Eventually(func() string { return waitingApproval(t, p, "env-1") }).WithTimeout(patience).Should(Equal("1.1.0"))

		g.Expect(from.call(t, http.MethodGet, path, signed(path), nil).Code).To(Equal(405))
		g.Expect(post(strings.TrimSuffix(path, "/1.1.0"), signed(path)).Code).To(Equal(404))
		elsewhere := approval.ApprovalPath(namespace, "nowhere", "env-1", "1.1.0")
		g.Expect(post(elsewhere, signed(elsewhere)).Code).To(Equal(404))
		g.Expect(post(path, s.sign([]byte("another"), http.MethodPost, path, nil)).Code).To(Equal(401))
		for _, wrong := range []string{approval.ApprovalPath(namespace, p.Name, "env-1", "1.0.0"), approval.ApprovalPath(namespace, p.Name, "env-0", "1.1.0")} {
			g.Expect(post(wrong, signed(wrong))).To(And(HaveField("Code", 422), HaveField("Body", HavePrefix(failedApproving))))
		}
		unknown := approval.ApprovalPath(namespace, p.Name, "env-9", "1.1.0")
		g.Expect(post(unknown, signed(unknown)).Code).To(Equal(422))
		g.Expect(promotionsOf(t, p)[0].Spec.Approval).To(BeNil())

		// N6: signed for another path, or too long ago, or too far ahead.
		if s.name != "legacy" {
			g.Expect(post(path, signed(unknown)).Code).To(Equal(401))
			for _, at := range []time.Duration{-6 * time.Minute, 6 * time.Minute} {
				g.Expect(post(path, approval.Sign(key, http.MethodPost, path, time.Now().Add(at), nil)).Code).To(Equal(401), at.String())
			}
			g.Expect(post(path, approval.Sign(key, http.MethodPut, path, time.Now(), nil)).Code).To(Equal(401), "another method")
			g.Expect(post(path, approval.Sign(key, http.MethodPost, path, time.Now(), []byte("x"))).Code).To(Equal(401), "another body")
			g.Expect(promotionsOf(t, p)[0].Spec.Approval).To(BeNil())
		}

		headers := signed(path)
		got := post(path, headers)
		g.Expect(got.Code).To(Equal(204), got.Body)
		all := promotionsOf(t, p)
		g.Expect(all).To(HaveLen(1))
		g.Expect(all[0].Spec.Approval).To(Equal(&capstanv1.Approval{By: "secret:" + namespace + "/" + name + "-hmac", Method: capstanv1.ApprovalByHTTP}))
		g.Expect(all[0].Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout), "the answer waits for what comes of it")
		g.Eventually(func() string { return waitingApproval(t, p, "env-1") }).WithTimeout(patience).Should(BeEmpty())

		// N6: the very same call again.
		g.Expect(post(path, headers)).To(And(HaveField("Code", 422), HaveField("Body", HavePrefix(failedApproving))))
		g.Expect(promotionsOf(t, p)).To(HaveLen(1))
		g.Expect(promotionsOf(t, p)[0].Status.Attempt.Number).To(BeEquivalentTo(1), "carried out once")
	})
}

// N6: within its five minutes, a captured approval does not let the same revision
// through again when it comes back after another.
func TestReplayedApprovalOfTheSameRevision(t *testing.T) {
	g := NewWithT(t)
	p := hooked(t, "n6", func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
	runsEverywhere(t, p)
	from, path := newCaller(hookLeader), approval.ApprovalPath(namespace, p.Name, "env-1", "1.1.0")
	captured := version2(key, http.MethodPost, path, nil)
	arrives := func(revision string) {
		release(t, c, "n6", revision, "", true)
		g.Eventually(func() string { return waitingApproval(t, p, "env-1") }).WithTimeout(patience).Should(Equal(revision))
	}
	arrives("1.1.0")
	g.Expect(from.call(t, http.MethodPost, path, captured, nil).Code).To(Equal(204))
	arrives("1.2.0")
	arrives("1.1.0")
	for _, hook := range []string{hookLeader, hookStandby} {
		got := newCaller(hook).call(t, http.MethodPost, path, captured, nil)
		g.Expect(got).To(And(HaveField("Code", 422), HaveField("Body", ContainSubstring("sign each approval anew"))))
	}
	g.Expect(waitingApproval(t, p, "env-1")).To(Equal("1.1.0"), "it still waits")
	// Another second, another signature.
	fresh := approval.Sign(key, http.MethodPost, path, time.Now().Add(2*time.Second), nil)
	g.Expect(from.call(t, http.MethodPost, path, fresh, nil).Code).To(Equal(204))
}

// N10: both replicas are called at once; one approval is recorded, one act follows.
func TestApprovalOnTwoReplicas(t *testing.T) {
	g := NewWithT(t)
	p := hooked(t, "n10", func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
	runsEverywhere(t, p)
	release(t, c, "n10", "1.1.0", "", true)
	g.Eventually(func() string { return waitingApproval(t, p, "env-1") }).WithTimeout(patience).Should(Equal("1.1.0"))
	path := approval.ApprovalPath(namespace, p.Name, "env-1", "1.1.0")
	var mu sync.Mutex
	codes := map[int]int{}
	var group sync.WaitGroup
	for i := range 8 {
		from := newCaller([]string{hookLeader, hookStandby}[i%2])
		headers := approval.Sign(key, http.MethodPost, path, time.Now().Add(time.Duration(i)*time.Second), nil)
		group.Go(func() {
			got, err := from.try(t.Context(), http.MethodPost, path, headers, nil)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			codes[got.Code]++
		})
	}
	group.Wait()
	g.Expect(codes).To(Equal(map[int]int{204: 1, 422: 7}))
	all := promotionsOf(t, p)
	g.Expect(all).To(HaveLen(1))
	g.Expect(all[0].Status.Attempt.Number).To(BeEquivalentTo(1))
}

// Environments and revisions of any characters can be approved.
func TestOddNamesAreApproved(t *testing.T) {
	g := NewWithT(t)
	const env, revision = "Prod EU/überall", "1.1.0-rc.1+build.7"
	p := hooked(t, "odd-approval", func(p *pipelinesv1.Pipeline) {
		p.Spec.Promotion.Manual = true
		p.Spec.Environments[1].Name = env
	})
	expectTarget(t, p, env, func(g Gomega, s pipelinesv1.TargetStatus) { g.Expect(s.Revision).To(Equal("1.0.0")) })
	release(t, c, "odd-approval", revision, "", true)
	g.Eventually(func() string { return waitingApproval(t, p, env) }).WithTimeout(patience).Should(Equal(revision))
	path := approval.ApprovalPath(namespace, p.Name, env, revision)
	got := newCaller(hookLeader).call(t, http.MethodPost, path, version2(key, http.MethodPost, path, nil), nil)
	g.Expect(got.Code).To(Equal(204), got.Body)
}

// C24: one client's calls are limited, another's are not, and the budget comes back.
func TestRateLimit(t *testing.T) {
	g := NewWithT(t)
	first, second := newCaller(hookLeader), newCaller(hookLeader)
	code := func(from *caller) int { return from.call(t, http.MethodPost, "/", nil, nil).Code }
	for range approval.DefaultRateLimit {
		g.Expect(code(first)).To(Equal(404))
	}
	refused := first.call(t, http.MethodPost, "/", http.Header{"X-Real-Ip": {"192.0.2.1"}, "X-Forwarded-For": {"192.0.2.1"}}, nil)
	g.Expect(refused.Code).To(Equal(429), "who writes another address into a header is the same client")
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
