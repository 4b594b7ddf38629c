package dashboard

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// What a promotion shows of a rollback, a request and checks is text, in every state.
func TestEntryShowsOriginAndChecks(t *testing.T) {
	r := largeRenderer(t)
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		entry view.Entry
		want  []string
		not   []string
	}{
		"neither": {view.Entry{}, nil, []string{"Rollback", "Requested", "Checks"}},
		"rollback": {
			view.Entry{Origin: view.Origin{Number: 2, Revision: "1.1.0"}}, []string{"<p><b>Rollback</b> of <code>1.1.0</code>, no. 2</p>"}, []string{"Requested"},
		},
		"rollback of a deleted promotion": {view.Entry{Origin: view.Origin{Number: 2}}, []string{"<p><b>Rollback</b> of no. 2</p>"}, nil},
		"request": {
			view.Entry{Origin: view.Origin{Request: "hotfix", By: "ann", Reason: "incident 4711"}},
			[]string{"<p><b>Requested</b> by <bdi>ann</bdi>: <bdi>incident 4711</bdi></p>"}, []string{"Rollback"},
		},
		"request without a user": {view.Entry{Origin: view.Origin{Request: "hotfix"}}, []string{"<b>Requested</b> by PromotionRequest hotfix</p>"}, nil},
		"both": {
			view.Entry{Origin: view.Origin{Number: 2, Request: "back", By: "ann", Reason: "incident"}},
			[]string{"<b>Rollback</b> of no. 2. <b>Requested</b> by <bdi>ann</bdi>: <bdi>incident</bdi>"}, nil,
		},
		"checks": {
			view.Entry{Checks: []view.Check{
				{Mark: view.Mark{Tone: view.Bad, Word: "Failed"}, Name: "errors", Value: "7", Message: "7 is too much", Since: since},
				{Mark: view.Mark{Tone: view.Idle, Word: "Not measured yet"}, Name: "latency"},
			}},
			[]string{
				`<ul class="conditions" aria-label="Checks"><li>`, `<span class="word">Failed</span>`, `check <b>errors</b>, value <code>7</code>: 7 is too much <span class="quiet">since <time`,
				`<span class="word">Not measured yet</span></span> check <b>latency</b></li>`,
			}, nil,
		},
		"hostile": {
			view.Entry{
				Origin: view.Origin{Number: 2, Revision: `</code><script>1</script>`, Request: "x", By: `<img src=x onerror=alert(1)>`, Reason: "</bdi><script>alert(2)</script>\u202e\" onclick=\"x"},
				Checks: []view.Check{{Name: `<b onmouseover=x>`, Value: `"><script>3</script>`, Message: `<a href="javascript:4">`}},
			},
			[]string{"&lt;img src=x onerror=alert(1)&gt;", "&lt;b onmouseover=x&gt;", "&lt;a href=&#34;javascript:4&#34;&gt;"},
			[]string{"<script", "<img", "<b on", "<a ", `" onclick`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			html, err := r.block(view.Block{ID: name, Template: "entry", Data: tc.entry})
			g.Expect(err).NotTo(HaveOccurred())
			for _, want := range tc.want {
				g.Expect(html).To(ContainSubstring(want))
			}
			for _, not := range tc.not {
				g.Expect(html).NotTo(ContainSubstring(not))
			}
		})
	}
}

// The cell of an environment says that it is held, and why it is not rolled back.
func TestCellShowsHoldAndAdvice(t *testing.T) {
	g := NewWithT(t)
	r := largeRenderer(t)
	var html string
	for _, c := range []view.Cell{
		{Environment: "dev"},
		{Environment: "prod", Newer: "1.1.0<", Held: &view.Held{Mark: view.Mark{Tone: view.Warning, Word: "Held"}, Source: "<dev>"}},
		{
			Environment: "eu", Newer: "1.1.0", Due: true, Next: "is ready to promote", Advice: "it is not rolled back to <i>1.0.0</i>",
			Move: &view.Move{Revision: "1.1.0", Origin: view.Origin{Request: "x", By: "ann", Reason: "<script>"}},
		},
	} {
		one, err := r.block(view.Block{ID: "environment/" + c.Environment, Template: "environment", Data: c})
		g.Expect(err).NotTo(HaveOccurred())
		html += one
	}
	g.Expect(html).To(And(
		ContainSubstring(`<span class="word">Held</span></span> <code>1.1.0&lt;</code> is not promoted: held until &lt;dev&gt; agrees on another revision.`),
		ContainSubstring("<code>1.1.0</code> is ready to promote."), Not(ContainSubstring("1.1.0&lt;</code> is ready")),
		ContainSubstring("After the failure: it is not rolled back to &lt;i&gt;1.0.0&lt;/i&gt;."),
		ContainSubstring("<b>Requested</b> by <bdi>ann</bdi>: <bdi>&lt;script&gt;</bdi>"), Not(ContainSubstring("<script")),
	))
}

// A cell with waves says which revision they run, and shows those with a promotion, with the way to approve it.
func TestCellShowsWaves(t *testing.T) {
	g := NewWithT(t)
	r := largeRenderer(t)
	quiet := view.Cell{
		Environment: "rest-1", Fleet: &view.Members{FleetStatus: pipelinesv1.FleetStatus{Targets: 4, Ready: 4, Revision: "1.0.0"}},
		Targets: []view.Target{{Mark: view.Mark{Tone: view.Good, Word: "Ready"}, Revision: "1.0.0"}},
	}
	waves := view.Waves{{
		Environment: "canary", Fleet: &view.Members{FleetStatus: pipelinesv1.FleetStatus{Targets: 2, Ready: 2, Revision: "1.0.0"}},
		Move: &view.Move{Mark: view.Mark{Tone: view.Asking, Word: "Awaiting approval"}, Revision: "1.1.0", Approve: "/promotions/apps/p/approve"},
	}, quiet, quiet, quiet}
	html, err := r.block(view.Block{ID: "environment/prod", Template: "environment", Data: view.Cell{Environment: "prod", Waves: waves, Fleet: &view.Members{FleetStatus: pipelinesv1.FleetStatus{Targets: 14, Ready: 14, Required: 14, Revision: "1.0.0"}}}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(html).To(And(ContainSubstring("<strong>14 of 14</strong> run <code>1.0.0</code>"), MatchRegexp(`(?s)<strong>canary</strong>.*Awaiting approval`),
		ContainSubstring(`href="/promotions/apps/p/approve"`), ContainSubstring("<p>4 of 4 waves run 1.0.0.</p>"), ContainSubstring("and 3 more waves</p>"), Not(ContainSubstring("rest-1"))))

	// On the page of the Pipeline, the row of a wave has the same; only the targets of a wave are announced, as its promotion is by itself.
	html, err = r.block(view.Block{ID: "wave/prod/canary", Template: "stage", Data: waves[0]})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(html).To(And(ContainSubstring("2 of 2 run <code>1.0.0</code>"), ContainSubstring("Awaiting approval"), ContainSubstring(`href="/promotions/apps/p/approve"`), Not(ContainSubstring("data-say"))))
	html, err = r.block(view.Block{ID: "wave/prod/rest-1", Template: "stage", Data: quiet})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(html).To(And(ContainSubstring(`data-say="rest-1: Ready"`), ContainSubstring("<details><summary>1 target</summary>"), ContainSubstring(`data-column="Promotion"></td>`)))
}
