package promotions_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/hub/promotion"
	"github.com/capstan-hub/capstan/hub/promotion/measure"
	"github.com/capstan-hub/capstan/index"
)

// metricServer answers queries as the HTTP API of Prometheus does.
type metricServer struct {
	*httptest.Server
	mu    sync.Mutex
	value string
	// answer replaces the whole answer.
	answer  http.HandlerFunc
	queries int
}

func (m *metricServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.queries++
	value, answer := m.value, m.answer
	m.mu.Unlock()
	switch {
	case answer != nil:
		answer(w, r)
	case value == "":
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	default:
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"canary-secret"},"value":[1700000000,%q]}]}}`, value)
	}
}

func (m *metricServer) set(value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.value, m.answer = value, nil
}

func (m *metricServer) respond(answer http.HandlerFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = answer
}

func (m *metricServer) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queries
}

// inTurn is a Measurer that returns with the result, so that the clock of a test stands still meanwhile.
type inTurn struct{ *measure.Measurer }

func (m inTurn) Measure(q measure.Query, notBefore time.Time, done func(measure.Measurement)) {
	result := make(chan measure.Measurement, 1)
	m.Measurer.Measure(q, notBefore, func(r measure.Measurement) { result <- r })
	done(<-result)
}

// measuring gives a hub a measurer with an endpoint "main".
func (w *world) measuring(t *testing.T, h *hubUnder) *metricServer {
	t.Helper()
	m := &metricServer{value: "0"}
	m.Server = httptest.NewServer(m)
	address, err := url.Parse(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	w.measure(t, h, address)
	t.Cleanup(m.Close)
	return m
}

func (w *world) measure(t *testing.T, h *hubUnder, address *url.URL) {
	t.Helper()
	measurer, err := measure.New(measure.Options{Endpoints: []measure.Endpoint{{Name: "main", URL: address}}, AllowLoopback: true, Clock: w.clock})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := measurer.Start(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	h.promotions.Measurer = inTurn{measurer}
	h.pipelines.CheckEndpoint = measurer.Knows
}

// measuresAs gives a hub the measurer of another.
func (h *hubUnder) measuresAs(other *hubUnder) {
	h.promotions.Measurer, h.pipelines.CheckEndpoint = other.promotions.Measurer, other.pipelines.CheckEndpoint
}

// errorRate is a check that fails at an error rate of one in a hundred.
func errorRate(change ...func(*pipelinesv1.Check)) pipelinesv1.Check {
	c := pipelinesv1.Check{Name: "errors", Prometheus: &pipelinesv1.PrometheusCheck{Endpoint: "main", Query: "errors", Expression: "value < 0.01"}}
	for _, f := range change {
		f(&c)
	}
	return c
}

func passes(n int32) func(*pipelinesv1.Check) { return func(c *pipelinesv1.Check) { c.Passes = n } }

// checked is a world whose prod has a check in its gates, and whose dev runs 1.1.
func checked(t *testing.T, gates *pipelinesv1.Gates) (*WithT, context.Context, *world, *hubUnder, *metricServer) {
	t.Helper()
	g, ctx, w, h := gated(t, gates, notify(false), "dev", "prod")
	m := w.measuring(t, h)
	w.runs("dev", "1.1")
	h.settle(ctx)
	return g, ctx, w, h, m
}

// noResults are answers without a value, by name.
var noResults = map[string]http.HandlerFunc{
	"empty": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	},
	"NaN": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"scalar","result":[1700000000,"NaN"]}}`)
	},
	"500": func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "canary-secret", http.StatusInternalServerError)
	},
	"redirect": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/canary-secret", http.StatusFound)
	},
	"400": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"status":"error","errorType":"bad_data","error":"canary-secret"}`)
	},
	"two series": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"canary"},"value":[1700000000,"0"]},{"metric":{},"value":[1700000000,"0"]}]}}`)
	},
	"no JSON": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "canary-secret") },
}

// G22, G23, G24: a query without a result neither passes nor fails. The gate stays closed, and the verification ends
// without a verdict at its deadline. Nothing is rolled back, and no byte of an answer is in the status.
func TestG22G23G24WithoutAResult(t *testing.T) {
	t.Parallel()
	for name, answer := range noResults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w, h, m := checked(t, &pipelinesv1.Gates{Checks: []pipelinesv1.Check{errorRate()}})
			w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout, "it passed at once")
			m.respond(answer)
			w.edit(ctx, func(p *pipelinesv1.Pipeline) {
				p.Spec.Gates.Checks[0].Prometheus.Query = "other"
				p.Spec.Verification = &pipelinesv1.Verification{For: "1m", Deadline: "20m", Checks: []pipelinesv1.Check{errorRate()}}
				p.Spec.Rollback = &pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote, Within: pipelinesv1.RollbackAny}
			})
			w.runs("dev", "1.2")
			h.settle(ctx)
			h.live(ctx, 2*time.Hour, 10*time.Minute)
			p := w.newest(ctx, "prod")
			g.Expect(p.Spec.Revision).To(Equal("1.2"))
			g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingGates))
			g.Expect(p.Status.Reason).To(BeElementOf(gate.ReasonCheckNoData, gate.ReasonCheckError))
			g.Expect(p.Status.Message).To(ContainSubstring(`check "errors"`))
			g.Expect(fmt.Sprint(p.Status, h.published())).NotTo(ContainSubstring("canary"))

			w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })
			h.settle(ctx)
			w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
			w.runs("prod", "1.2")
			h.settle(ctx)
			h.live(ctx, 19*time.Minute, time.Minute)
			w.expectPhase(ctx, g, "prod", capstanv1.PhaseVerifying)
			h.live(ctx, 2*time.Minute, time.Minute)
			w.expectReason(ctx, g, "prod", capstanv1.PhaseFailed, decision.Inconclusive)
			g.Expect(w.newest(ctx, "prod").Status.Message).To(ContainSubstring(`check "errors" has no result`))
			h.live(ctx, time.Hour, 10*time.Minute)
			g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.2"), "nothing is rolled back")
		})
	}
}

// A gate opens when its check has passed as often in sequence as required, an interval apart, and not before. While it
// waits, nothing is written although values change.
func TestACheckMustPassInSequence(t *testing.T) {
	t.Parallel()
	g, ctx, w, h, m := checked(t, &pipelinesv1.Gates{Checks: []pipelinesv1.Check{errorRate(passes(3))}})
	waits := func() { w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates) }
	waits()
	h.live(ctx, time.Minute, time.Minute)
	waits()
	m.set("0.5")
	h.live(ctx, time.Minute, time.Minute)
	g.Expect(w.newest(ctx, "prod").Status.Reason).To(Equal(gate.ReasonCheckFailed))
	written := w.newest(ctx, "prod").ResourceVersion
	for _, value := range []string{"0.6", "0.7", "0.8"} {
		m.set(value)
		h.live(ctx, time.Minute, time.Minute)
	}
	g.Expect(w.newest(ctx, "prod").ResourceVersion).To(Equal(written))
	m.set("0.001")
	h.live(ctx, 2*time.Minute, time.Minute)
	waits()
	restarted := w.hub("restarted", w.c, nil) // What an earlier process has measured does not count.
	restarted.measuresAs(h)
	restarted.settle(ctx)
	restarted.live(ctx, 119*time.Second, 119*time.Second)
	waits()
	restarted.live(ctx, time.Minute, time.Second*30)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
}

// What a check has passed before a freeze has expired when the freeze ends: it passes in sequence again.
func TestPassesBeforeAFreezeExpire(t *testing.T) {
	t.Parallel()
	g, ctx, w, h, m := checked(t, &pipelinesv1.Gates{Checks: []pipelinesv1.Check{errorRate(passes(3))}})
	h.live(ctx, time.Minute+time.Second, time.Minute)
	g.Expect(m.asked()).To(Equal(2))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates.Windows = frozen().Windows })
	h.settle(ctx)
	h.live(ctx, time.Hour, 10*time.Minute)
	g.Expect(m.asked()).To(BeNumerically("<=", 3), "nothing is measured in a freeze")
	asked := m.asked()
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates.Windows = nil })
	h.settle(ctx)
	h.live(ctx, 119*time.Second, 30*time.Second)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates, "the passes before the freeze do not count")
	h.live(ctx, 2*time.Second, time.Second)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	g.Expect(m.asked()).To(Equal(asked + 3))
}

// A verification whose check has no result ends at its deadline, and no event is needed for that.
func TestAVerificationEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "prod"))
	m := w.measuring(t, h)
	m.set("")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) {
		p.Spec.Verification = &pipelinesv1.Verification{For: "1m", Deadline: "20m", Checks: []pipelinesv1.Check{errorRate()}}
	})
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.runs("prod", "1.1")
	h.settle(ctx)
	end := w.clock.Now().Add(20 * time.Minute)
	for p := w.newest(ctx, "prod"); p.Status.Phase == capstanv1.PhaseVerifying; p = w.newest(ctx, "prod") {
		g.Expect(w.clock.Now()).To(BeTemporally("<", end.Add(time.Minute)))
		result, err := h.promotions.Reconcile(ctx, requestFor(&p))
		g.Expect(err).NotTo(HaveOccurred())
		w.clock.Step(result.RequeueAfter)
	}
	w.expectReason(ctx, g, "prod", capstanv1.PhaseFailed, decision.Inconclusive)
	g.Expect(w.newest(ctx, "prod").Status.Message).To(ContainSubstring(`check "errors" has no result`))
	g.Expect(w.clock.Now()).To(BeTemporally("~", end, 2*time.Second))
}

// Queries are sent when the other gates are open, or will be within the time that they need.
func TestQueriesWaitForTheOtherGates(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", notify(false), "dev", "prod")
	p.Spec.Gates = soaking("2h")
	p.Spec.Gates.Checks = []pipelinesv1.Check{errorRate(passes(3))}
	h := w.began(ctx, p)
	m := w.measuring(t, h)
	w.runs("dev", "1.1")
	h.settle(ctx)
	h.live(ctx, 116*time.Minute, 4*time.Minute)
	g.Expect(m.asked()).To(BeZero())
	g.Expect(w.newest(ctx, "prod").Status.Reason).To(Equal(gate.ReasonSoaking))
	h.live(ctx, 4*time.Minute+time.Second, 30*time.Second)
	g.Expect(m.asked()).To(BeNumerically(">=", 3))
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout, "it does not wait for checks after the soak")
}

// An override opens the gate, and an edit of the query counts anew.
func TestOverrideAndEditOfAChecks(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, &pipelinesv1.Gates{Checks: []pipelinesv1.Check{errorRate(passes(2))}}, notify(false), "dev", "prod")
	m := w.measuring(t, h)
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates.Checks[0].Prometheus.Query = "edited" })
	h.live(ctx, 30*time.Second, 30*time.Second)
	h.live(ctx, 35*time.Second, 35*time.Second)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates, "one of the edited query has passed")
	m.set("1")
	h.live(ctx, 2*time.Minute, time.Minute)
	p := w.newest(ctx, "prod")
	g.Expect(p.Status.Checks).To(ConsistOf(And(HaveField("Name", "errors"), HaveField("Verdict", capstanv1.CheckFail), HaveField("Value", "1"))))
	before := p.DeepCopy()
	p.Spec.Overrides = []capstanv1.Override{{Gate: capstanv1.GateChecks, By: "ann", Reason: "incident 4711"}}
	g.Expect(w.c.Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
}

// A revision whose check fails several times in sequence fails, goes no further, and the one before is put back.
func TestAFailedCheckFailsTheVerification(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", notify(false), "dev", "staging", "prod")
	p.Spec.Verification = &pipelinesv1.Verification{For: "10m", Checks: []pipelinesv1.Check{errorRate()}}
	p.Spec.Rollback = &pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote}
	if err := w.c.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	h := w.hub("hub", w.c, nil)
	m := w.measuring(t, h)
	h.settle(ctx)
	for _, env := range p.Spec.Environments {
		w.runs(env.Name, "1.0")
	}
	h.settle(ctx)
	h.live(ctx, 30*time.Minute, time.Minute)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseSucceeded, decision.Verified)
	w.runs("dev", "1.1")
	h.settle(ctx)
	h.delivers(ctx, "staging")
	m.set("0.5")
	h.live(ctx, 2*time.Minute, time.Minute) // Two failures, and a pass.
	g.Expect(w.newest(ctx, "staging").Status.Message).To(ContainSubstring(`check "errors" fails`))
	m.set("0")
	h.live(ctx, time.Minute, time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	m.set("0.5")
	h.live(ctx, 4*time.Minute, time.Minute)
	bad := w.into(ctx, "staging")[1]
	g.Expect(bad.Status).To(And(HaveField("Phase", capstanv1.PhaseFailed), HaveField("Reason", string(decision.VerificationFailed)),
		HaveField("Message", ContainSubstring(`check "errors" of environment "staging" failed with 1.1: "value < 0.01" is false, with the value 0.5`))))
	g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.0"}))
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.0"))
}

// A cel check of a target that cannot be observed has no result: a partition fails nothing.
func TestG47ACheckDuringAPartition(t *testing.T) {
	t.Parallel()
	ready := pipelinesv1.Check{Name: "ready", Interval: "30s", Failures: 2, CEL: &pipelinesv1.CELCheck{Expression: "targets.all(t, t.ready && t.revision == revision)"}}
	g, ctx, w, h := verified(t, pipelinesv1.Verification{For: "30m", Tolerate: "8h", Deadline: "24h", Checks: []pipelinesv1.Check{ready}})
	w.runs("staging", "1.1")
	h.settle(ctx)
	w.stale("staging")
	h.settle(ctx)
	h.live(ctx, 3*time.Hour, 10*time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	w.unready("staging", "1.1", false)
	w.x.SetFreshness(w.cluster("staging"), helm, index.Freshness{Fresh: true})
	h.settle(ctx)
	h.live(ctx, 2*time.Minute, 15*time.Second)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.VerificationFailed)
}

// G26: an expression that costs too much, and checks that are invalid, stop only their environment.
func TestG26BadChecksStopTheirEnvironment(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]pipelinesv1.Check{
		`gates.checks[0].cel.expression (check "bad")`:               {Name: "bad", CEL: &pipelinesv1.CELCheck{Expression: "targets.all(t, t.redy)"}},
		`gates.checks[0].prometheus.endpoint (check "bad")`:          {Name: "bad", Prometheus: &pipelinesv1.PrometheusCheck{Endpoint: "other", Query: "x", Expression: "value < 1"}},
		`gates.checks[0].interval (check "bad"): 1s is not from 30s`: errorRate(func(c *pipelinesv1.Check) { c.Name, c.Interval = "bad", "1s" }),
		`gates.checks[0] (check "bad"): set exactly one of cel and`:  {Name: "bad"},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
			p := w.newPipeline("web", notify(false), "dev", "staging", "prod")
			p.Spec.Environments[2].Gates = &pipelinesv1.Gates{Checks: []pipelinesv1.Check{c}}
			if err := w.c.Create(ctx, p); err != nil {
				t.Fatal(err)
			}
			h := w.hub("hub", w.c, nil)
			w.measuring(t, h)
			h.settle(ctx)
			for _, env := range p.Spec.Environments {
				w.runs(env.Name, "1.0")
			}
			w.runs("dev", "1.1")
			h.settle(ctx)
			h.delivers(ctx, "staging")
			w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)
			h.live(ctx, time.Hour, 10*time.Minute)
			g.Expect(w.into(ctx, "prod")).To(Or(BeEmpty(), HaveEach(HaveField("Status.Phase", capstanv1.PhaseAwaitingGates))))
			g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(And(HaveField("Type", pipelinesv1.StalledCondition),
				HaveField("Reason", pipelinesv1.InvalidSpecReason), HaveField("Message", ContainSubstring(text)))))
		})
	}
}

// G26: an expression that costs too much at its evaluation closes the gate, and says what to do.
func TestG26AnExpressionThatCostsTooMuch(t *testing.T) {
	t.Parallel()
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 60), ",") + "]"
	endless := list + ".all(a, " + list + ".all(b, " + list + ".all(c, a + b + c > 0)))"
	g, ctx, w, h := gated(t, &pipelinesv1.Gates{Checks: []pipelinesv1.Check{{Name: "endless", CEL: &pipelinesv1.CELCheck{Expression: endless}}}}, notify(false), "dev", "prod")
	began := time.Now()
	w.runs("dev", "1.1")
	h.settle(ctx)
	g.Expect(time.Since(began)).To(BeNumerically("<", 20*time.Second))
	if all := w.into(ctx, "prod"); len(all) > 0 {
		g.Expect(all[0].Status).To(And(HaveField("Reason", gate.ReasonCheckError), HaveField("Message", ContainSubstring("costs more than"))))
		return
	}
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring("costs more than"))))
}

var _ promotion.Measurer = inTurn{}
