package dashboard

import (
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// The picture of deployments has a text, and what is absent says so; a hostile name is text.
func TestDeliveryIsRendered(t *testing.T) {
	g := NewWithT(t)
	r := largeRenderer(t)
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	block := func(data any, template string) string {
		html, err := r.block(view.Block{ID: "delivery", Template: template, Data: data})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(html).NotTo(MatchRegexp(`(?i)<script|style="|\son[a-z]+=`))
		return html
	}
	html := block(view.DeliveryBlock{
		DeliveryFigures: view.DeliveryFigures{
			Deployments: 3, Changes: 4, Failed: 1, Rollbacks: 1, Failures: "25 %", Since: begin, Complete: begin.Add(time.Hour), Lead: view.Spread{Count: 3, Median: "30m", P90: "2h"},
		},
		Begin: "2026-01-31", End: "2026-03-01", PerDay: "0.1", Most: 3, Link: "/delivery",
		Bars: []view.DeliveryBar{{Date: "2026-02-28"}, {Date: "2026-03-01", N: 3, X: 290, Height: 60}},
	}, "delivery")
	g.Expect(html).To(And(
		ContainSubstring(`<svg role="img" aria-label="Bars of deployments per day, 2026-01-31 to 2026-03-01; the numbers follow as text"`),
		ContainSubstring(`<rect x="290" y="0" width="8" height="60"><title>2026-03-01: 3</title></rect>`),
		ContainSubstring(`<ul class="hidden" aria-label="Deployments per day"><li>2026-03-01: 3</li></ul>`),
		ContainSubstring(`30m <span class="quiet">90 % within 2h</span>`), ContainSubstring("25 % <span class=\"quiet\">1 of 4, 1 rolled back</span>"),
		ContainSubstring("Older promotions were deleted: before <time datetime=\"2026-03-01T13:00:00Z\">"), ContainSubstring(`<a href="/delivery">All delivery figures</a>`),
	))
	empty := block(view.DeliveryBlock{Bars: make([]view.DeliveryBar, 30)}, "delivery")
	g.Expect(empty).To(And(ContainSubstring("none ended"), ContainSubstring("No promotion of these days has ended."), Not(ContainSubstring("<rect")), Not(ContainSubstring("deleted"))))
	g.Expect(block(view.DeliveryBlock{Need: view.NeedPromotions}, "delivery")).To(And(ContainSubstring("list promotions.capstan.dev"), Not(ContainSubstring("<svg"))))

	hostile := strings.Repeat("x", 250) + `<script>"onload=`
	row := block(view.DeliveryRow{Name: hostile, Environment: hostile}, "delivery-row")
	g.Expect(row).To(And(ContainSubstring("&lt;script&gt;"), ContainSubstring(`class="name" title="xxx`), Not(ContainSubstring("<a "))))
}

// The page has a nested list for each tab and order, and headings that say by which column it is sorted.
func TestDeliveryPageIsRendered(t *testing.T) {
	g := NewWithT(t)
	f := large()
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		f.Promotions = append(f.Promotions, capstanv1.Promotion{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name + "-prod-1", CreationTimestamp: metav1.NewTime(f.Now.Add(-time.Hour))},
			Spec:       capstanv1.PromotionSpec{Pipeline: capstanv1.PipelineReference{Name: p.Name, UID: p.UID}, Environment: "prod", Number: 1, Revision: "1.0.0"},
			Status:     capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, FinishTime: &metav1.Time{Time: f.Now.Add(-time.Minute)}, Attempt: &capstanv1.Attempt{Number: 1}},
		})
	}
	page := func(query string) string {
		a, ok := (&Options{}).parseAddress(&url.URL{Path: "/delivery", RawQuery: query})
		g.Expect(ok).To(BeTrue())
		topic := newTopic(a, view.Everything(), largeRenderer(t))
		g.Expect(topic.refresh(f)).To(Succeed())
		shot, there, err := topic.shot()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(there).To(BeTrue())
		g.Expect(len(compressed([]byte(shot.main)))).To(BeNumerically("<", pageBudget))
		return shot.main
	}
	html := page("")
	g.Expect(html).To(And(ContainSubstring("<b>200</b> in total"), ContainSubstring("1 to 40 of 200 Pipelines"), ContainSubstring(`<th role="columnheader" scope="col" aria-sort="ascending"><a href="/delivery">Name</a>`)))
	g.Expect(regexp.MustCompile(`<tr id="delivery/`).FindAllString(html, -1)).To(HaveLen(40))
	g.Expect(page("sort=lead&page=2")).To(And(ContainSubstring(`aria-sort="descending"><a href="/delivery?sort=lead">Lead time</a>`), ContainSubstring("41 to 80 of 200 Pipelines")))
	g.Expect(page("tab=namespaces&q=team-1")).To(And(ContainSubstring(`<a href="/delivery?q=team-1">Pipelines</a>`), ContainSubstring(`<a href="/delivery?namespace=team-1">team-1</a>`), Not(ContainSubstring(`id="delivery/team-2`))))
	g.Expect(page("q=absent")).To(ContainSubstring(`No Pipelines match. <a href="/delivery">Clear filters</a>`))
}
