package approval

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

const pull = "https://git.example.org/fleet/pulls/7"

var waiting = capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval}

// C23: the answer is the result of the approval.
func TestAnswerOfApproval(t *testing.T) {
	w := newWorld(t)
	url := w.serve()
	for name, tc := range map[string]struct {
		status         capstanv1.PromotionStatus
		code           int
		says, location string
	}{
		"pull-request": {capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingMerge, URL: pull}, 201, "", pull},
		"merged":       {capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout, URL: pull}, 201, "", pull},
		"carried-out":  {capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout}, 204, "", ""},
		"already":      {capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded}, 204, "", ""},
		"failed": {capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "MarkerNotFound", Message: "no file has it"}, 500,
			weaveFailed + ": Promotion " + w.ns + "/failed-prod-1: MarkerNotFound: no file has it", ""},
		"superseded": {capstanv1.PromotionStatus{Phase: capstanv1.PhaseSuperseded, Message: "dev moved on"}, 422,
			weaveNotApproved + ": Promotion " + w.ns + "/superseded-prod-1 was superseded: dev moved on", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := w.pipeline(name)
			promotion := w.promotion(p, 1, "1.1.0", waiting)
			w.becomes(promotion, tc.status)
			g.Expect(w.approve(url, name, "1.1.0")).To(Equal(answer{tc.code, tc.says, tc.location}))
			g.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
			g.Expect(promotion.Spec.Approval).To(Equal(&capstanv1.Approval{By: "secret:" + w.ns + "/hmac", Method: capstanv1.ApprovalByHTTP}))
		})
	}
}

// An approval is recorded, also if the promotion takes longer than the call.
func TestWaitForApprovalIsBounded(t *testing.T) {
	w := newWorld(t)
	promotion := w.promotion(w.pipeline("slow"), 1, "1.1.0", waiting)
	begun := time.Now()
	w.Expect(w.approve(w.serve(), "slow", "1.1.0").Code).To(Equal(204))
	w.Expect(time.Since(begun)).To(And(BeNumerically(">=", patience), BeNumerically("<", callTimeout)))
	w.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
	w.Expect(promotion.Spec.Approval).NotTo(BeNil())
}

// On a suspended Pipeline the approved promotion does not start: the call does not wait.
func TestApprovalOfSuspended(t *testing.T) {
	w := newWorld(t)
	p := w.pipeline("held")
	p.Spec.Suspend = true
	w.Expect(w.c.Update(t.Context(), p)).To(Succeed())
	w.promotion(p, 1, "1.1.0", waiting)
	begun := time.Now()
	w.Expect(w.approve(w.serve(), "held", "1.1.0").Code).To(Equal(204))
	w.Expect(time.Since(begun)).To(BeNumerically("<", patience))
}

// A promotion that does not wait is not approved; the answer says why.
func TestNotWaiting(t *testing.T) {
	w := newWorld(t)
	url := w.serve()
	refused := func(why string) OmegaMatcher {
		return And(HaveField("Code", 422), HaveField("Body", And(HavePrefix(weaveNotApproved), ContainSubstring(why))))
	}
	p := w.pipeline("none")
	w.Expect(w.approve(url, "none", "1.1.0")).To(refused("no promotion"))
	w.promotion(p, 1, "1.1.0", waiting)
	w.promotion(p, 2, "1.2.0", waiting)
	w.Expect(w.approve(url, "none", "1.1.0")).To(refused("the newest promotion into environment \"prod\" has revision 1.2.0, not 1.1.0"))
	// The newest was deleted by a user; the status still has its number.
	p.Status.Environments = map[string]*pipelinesv1.EnvironmentStatus{"prod": {LastPromotion: 3}}
	w.Expect(w.c.Status().Update(t.Context(), p)).To(Succeed())
	w.Expect(w.approve(url, "none", "1.2.0")).To(refused("no promotion"))

	w.promotion(w.pipeline("over"), 1, "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseRejected, Message: "closed"})
	w.Expect(w.approve(url, "over", "1.1.0")).To(refused("is Rejected: closed"))
}

// If no promotion waits, the answer is weave's 422, whatever else is wrong. An approval without
// a strategy is not recorded.
func TestApprovalWithoutStrategy(t *testing.T) {
	w := newWorld(t)
	url := w.serve()
	p := w.pipeline("bare")
	p.Spec.Promotion.Strategy.Notification = nil
	w.Expect(w.c.Update(t.Context(), p)).To(Succeed())
	w.Expect(w.approve(url, "bare", "1.1.0")).To(And(HaveField("Code", 422), HaveField("Body", HavePrefix(weaveNotApproved))))
	promotion := w.promotion(p, 1, "1.1.0", waiting)
	w.Expect(w.approve(url, "bare", "1.0.0").Code).To(Equal(422))
	w.Expect(w.approve(url, "bare", "1.1.0")).To(And(HaveField("Code", 500), HaveField("Body", HavePrefix(weaveFailed))))
	w.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
	w.Expect(promotion.Spec.Approval).To(BeNil())
}

// N6: one signature approves one promotion, also if the Pipeline is a new one with the same
// name, and on every replica.
func TestSignatureIsUsedOnce(t *testing.T) {
	w := newWorld(t)
	path := ApprovalPath(w.ns, "again", "prod", "1.1.0")
	captured := Sign(key, http.MethodPost, path, time.Now(), nil)
	p := w.pipeline("again")
	w.becomes(w.promotion(p, 1, "1.1.0", waiting), capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded})
	w.Expect(w.post(w.serve(), path, captured, "").Code).To(Equal(204))
	w.Expect(w.c.Delete(t.Context(), p)).To(Succeed())
	w.promotion(w.pipeline("again"), 2, "1.1.0", waiting)
	w.Expect(w.post(w.serve(), path, captured, "")).To(And(HaveField("Code", 422), HaveField("Body", ContainSubstring("this signature has already approved Promotion "+w.ns+"/again-prod-1"))))
}

// A caller that lost the answer calls again. While the promotion is approved by it, the answer
// is that of the first call, and nothing is written.
func TestRepeatedApproval(t *testing.T) {
	w := newWorld(t)
	url := w.serve()
	path := ApprovalPath(w.ns, "repeated", "prod", "1.1.0")
	p := w.pipeline("repeated")
	promotion := w.promotion(p, 1, "1.1.0", waiting)
	w.becomes(promotion, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingMerge, URL: pull})
	first := Sign(key, http.MethodPost, path, time.Now(), nil)
	w.Expect(w.post(url, path, first, "")).To(Equal(answer{201, "", pull}))
	w.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
	for _, headers := range []http.Header{first, Sign(key, http.MethodPost, path, time.Now().Add(time.Second), nil)} {
		w.Expect(w.post(url, path, headers, "")).To(Equal(answer{201, "", pull}))
		now := &capstanv1.Promotion{}
		w.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), now)).To(Succeed())
		w.Expect(now.ResourceVersion).To(Equal(promotion.ResourceVersion))
	}
	// Another caller has not approved it.
	w.secret("prod", map[string][]byte{SecretKey: []byte("of prod")})
	own(p, "prod")
	w.Expect(w.c.Update(t.Context(), p)).To(Succeed())
	w.Expect(w.post(url, path, Sign([]byte("of prod"), http.MethodPost, path, time.Now(), nil), "")).To(And(
		HaveField("Code", 422), HaveField("Body", ContainSubstring("was already approved by secret:"+w.ns+"/hmac"))))
	// One that ended is not approved any more.
	w.promotion(w.pipeline("ended"), 1, "1.1.0", waiting)
	ended := &capstanv1.Promotion{}
	w.Expect(w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "ended-prod-1"}, ended)).To(Succeed())
	w.becomes(ended, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSuperseded, Message: "dev moved on"})
	w.Expect(w.approve(url, "ended", "1.1.0").Code).To(Equal(422))
	w.Expect(w.approve(url, "ended", "1.1.0")).To(And(HaveField("Code", 422), HaveField("Body", ContainSubstring("dev moved on"))))
}

// A retry needs its own approval. Signatures of earlier runs do not approve it.
func TestApprovalOfARetry(t *testing.T) {
	w := newWorld(t)
	url := w.serve()
	path := ApprovalPath(w.ns, "retried", "prod", "1.1.0")
	promotion := w.promotion(w.pipeline("retried"), 1, "1.1.0", waiting)
	refused := And(HaveField("Code", 422), HaveField("Body", ContainSubstring("this signature has already approved Promotion "+w.ns+"/retried-prod-1")))
	var used []http.Header
	for run := range int64(3) {
		if run > 0 {
			w.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
			promotion.Spec.Retry = run
			w.Expect(w.c.Update(t.Context(), promotion)).To(Succeed())
			promotion.Status = capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval, Retry: run}
			w.Expect(w.c.Status().Update(t.Context(), promotion)).To(Succeed())
		}
		for _, headers := range used {
			w.Expect(w.post(url, path, headers, "")).To(refused, "run %d", run)
		}
		signed := Sign(key, http.MethodPost, path, time.Now().Add(time.Duration(run)*time.Second), nil)
		used = append(used, signed)
		done := make(chan answer, 1)
		go func() { done <- w.post(url, path, signed, "") }()
		w.Eventually(func(g Gomega) {
			g.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
			g.Expect(promotion.Spec.Approval).To(Equal(&capstanv1.Approval{By: "secret:" + w.ns + "/hmac", Method: capstanv1.ApprovalByHTTP, Retry: run}))
		}).Should(Succeed())
		promotion.Status = capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, Retry: run}
		w.Expect(w.c.Status().Update(t.Context(), promotion)).To(Succeed())
		w.Eventually(done).Should(Receive(HaveField("Code", 204)))
	}
}

// The key of the environment has precedence over the Pipeline's. With a key that cannot be read
// no call is accepted.
func TestWhichKeySigns(t *testing.T) {
	w := newWorld(t)
	url := w.serve()
	w.secret("prod", map[string][]byte{SecretKey: []byte("of prod")})
	w.secret("empty", map[string][]byte{SecretKey: {}})
	for name, tc := range map[string]struct {
		edit   func(*pipelinesv1.Pipeline)
		signer []byte
		code   int
	}{
		"pipelines":            {func(*pipelinesv1.Pipeline) {}, key, 422},
		"own":                  {func(p *pipelinesv1.Pipeline) { own(p, "prod") }, []byte("of prod"), 422},
		"own-not-pipelines":    {func(p *pipelinesv1.Pipeline) { own(p, "prod") }, key, 401},
		"own-without-ref":      {func(p *pipelinesv1.Pipeline) { own(p, "") }, key, 422},
		"own-alone":            {func(p *pipelinesv1.Pipeline) { own(p, "prod"); p.Spec.Promotion = nil }, []byte("of prod"), 422},
		"empty-key":            {func(p *pipelinesv1.Pipeline) { own(p, "empty") }, nil, 401},
		"missing-secret":       {func(p *pipelinesv1.Pipeline) { own(p, "missing") }, key, 401},
		"unknown-env-has-none": {func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Name = "other"; own(p, "prod") }, key, 422},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.pipeline(name)
			tc.edit(p)
			NewWithT(t).Expect(w.c.Update(t.Context(), p)).To(Succeed())
			path := ApprovalPath(w.ns, name, "prod", "1.1.0")
			NewWithT(t).Expect(w.post(url, path, Sign(tc.signer, http.MethodPost, path, time.Now(), nil), "").Code).To(Equal(tc.code))
		})
	}
}

// own gives prod its own promotion.
func own(p *pipelinesv1.Pipeline, secret string) {
	promotion := p.Spec.Promotion.DeepCopy()
	promotion.Strategy.SecretRef = nil
	if secret != "" {
		promotion.Strategy.SecretRef = &pipelinesv1.LocalObjectReference{Name: secret}
	}
	p.Spec.Environments[1].Promotion = promotion
}

// A changed key is used at once.
func TestRotatedKey(t *testing.T) {
	w := newWorld(t)
	url := w.serve()
	w.pipeline("rotated")
	path := ApprovalPath(w.ns, "rotated", "prod", "1.1.0")
	code := func(key string) int {
		return w.post(url, path, Sign([]byte(key), http.MethodPost, path, time.Now(), nil), "").Code
	}
	w.Expect(code(string(key))).To(Equal(422))
	w.Expect(w.c.Patch(t.Context(), secretOfWorld(w), client.RawPatch("application/merge-patch+json", []byte(`{"data":{"hmac-key":"bmV3"}}`)))).To(Succeed())
	w.Expect(code(string(key))).To(Equal(401))
	w.Expect(code("new")).To(Equal(422))
}

// During a rotation the previous key is accepted, too, until it is removed. Without a present
// key it is not.
func TestRotationWithOverlap(t *testing.T) {
	w := newWorld(t)
	server := New(w.options)
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	w.pipeline("overlap")
	path := ApprovalPath(w.ns, "overlap", "prod", "1.1.0")
	code := func(key string) int {
		return w.post(listener.URL, path, Sign([]byte(key), http.MethodPost, path, time.Now(), nil), "").Code
	}
	set := func(data string) {
		w.Expect(w.c.Patch(t.Context(), secretOfWorld(w), client.RawPatch("application/merge-patch+json", []byte(`{"data":`+data+`}`)))).To(Succeed())
	}
	encoded := base64.StdEncoding.EncodeToString
	set(`{"hmac-key":"` + encoded([]byte("new")) + `","hmac-key-previous":"` + encoded(key) + `"}`)
	w.Expect(code("new")).To(Equal(422))
	w.Expect(testutil.ToFloat64(server.metrics.previousKey)).To(BeZero())
	w.Expect(code(string(key))).To(Equal(422))
	w.Expect(testutil.ToFloat64(server.metrics.previousKey)).To(BeEquivalentTo(1))
	w.Expect(code("another")).To(Equal(401))
	w.Expect(code("")).To(Equal(401))
	set(`{"hmac-key":""}`)
	w.Expect(code(string(key))).To(Equal(401), "the previous key alone accepts no call")
	set(`{"hmac-key":"` + encoded([]byte("new")) + `","hmac-key-previous":""}`)
	w.Expect(code("")).To(Equal(401), "an empty key is no key")
	set(`{"hmac-key-previous":null}`)
	w.Expect(code(string(key))).To(Equal(401))
	w.Expect(code("new")).To(Equal(422))
}

// A 401 says what the hook needs. It is the same for every cause, so that it does not disclose
// whether there is a key, or what differs.
func TestUnauthorizedSaysWhatIsNeeded(t *testing.T) {
	w := newWorld(t)
	url := w.serve()
	keyless := w.pipeline("keyless")
	keyless.Spec.Promotion.Strategy.SecretRef = nil
	w.Expect(w.c.Update(t.Context(), keyless)).To(Succeed())
	missing := w.pipeline("missing-secret-of-all")
	missing.Spec.Promotion.Strategy.SecretRef.Name = "none"
	w.Expect(w.c.Update(t.Context(), missing)).To(Succeed())
	w.pipeline("keyed")
	for _, pipeline := range []string{"keyless", "missing-secret-of-all", "keyed"} {
		path := ApprovalPath(w.ns, pipeline, "prod", "1.1.0")
		for _, headers := range []http.Header{nil, Sign([]byte("another"), http.MethodPost, path, time.Now(), nil), Sign(nil, http.MethodPost, path, time.Now().Add(-time.Hour), nil)} {
			w.Expect(w.post(url, path, headers, "")).To(Equal(answer{401, unauthorizedBody, ""}), pipeline)
		}
	}
	w.Expect(unauthorizedBody).To(And(ContainSubstring("promotion.strategy.secretRef"), ContainSubstring(SecretKey), ContainSubstring("without a secretRef every call is refused")))
}

// A hub with one namespace does not serve Pipelines of other namespaces.
func TestAnotherNamespace(t *testing.T) {
	w := newWorld(t)
	w.pipeline("elsewhere")
	w.Expect(w.approve(w.serve(), "elsewhere", "1.1.0").Code).To(Equal(422))
	w.options.Namespaces = []string{"team"}
	w.Expect(w.approve(w.serve(), "elsewhere", "1.1.0").Code).To(Equal(404))
}

// The API server is unreachable: the answer only says to try again.
func TestWithoutAPIServer(t *testing.T) {
	w := newWorld(t)
	w.pipeline("away")
	w.options.Client = away{w.c}
	w.Expect(w.approve(w.serve(), "away", "1.1.0")).To(Equal(answer{500, "the hub could not call its API server; see the hub's log. Try again", ""}))
}

// away makes each call fail like an ended context.
type away struct{ client.Client }

func (away) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx.Err()
}

// An approval for an environment with waves is for its first wave, which has the approval for all; the wave can be named, too.
func TestApproveTheFirstWave(t *testing.T) {
	w := newWorld(t)
	url := w.serve()
	for name, environment := range map[string]string{"by-environment": "prod", "by-wave": "prod/canary"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := w.pipeline(name)
			p.Spec.Environments[1].Waves = []pipelinesv1.Wave{{Name: "canary", Selector: &metav1.LabelSelector{}}, {Name: "rest"}}
			g.Expect(w.c.Update(t.Context(), p)).To(Succeed())
			p.Status.ObservedGeneration = p.Generation
			p.Status.Environments = map[string]*pipelinesv1.EnvironmentStatus{
				"prod/canary": {Fleet: &pipelinesv1.FleetStatus{Targets: 1}}, "prod/rest": {Fleet: &pipelinesv1.FleetStatus{Targets: 1}},
			}
			g.Expect(w.c.Status().Update(t.Context(), p)).To(Succeed())
			promotion := w.promotion(p, 1, "1.1.0", waiting, func(s *capstanv1.PromotionSpec) {
				s.Environment, s.Wave = "prod/canary", &capstanv1.PromotionWave{Environment: "prod", Name: "canary", Clusters: []string{"fleet/eu-0"}}
			})
			w.becomes(promotion, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
			path := ApprovalPath(w.ns, name, environment, "1.1.0")
			g.Expect(w.post(url, path, Sign(key, http.MethodPost, path, time.Now(), nil), "").Code).To(Equal(http.StatusNoContent))
			g.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
			g.Expect(promotion.Spec.Approval).NotTo(BeNil())
		})
	}
}
