package dashboard

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/net/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// hostile is a name of 200 characters and more, with HTML and a change of the direction of text.
var hostile = strings.Repeat("W", 200) + "\u202e</td></svg><script>alert(1)</script><img src=x onerror=alert(2)>\" onmouseover=\"alert(3)"

// crowded is a fleet of so many Pipelines with 20 environments, all with hostile names, revisions and messages. Each waits for gates
// and an approval, and has promotions with all times.
func crowded(pipelines int) *view.Facts {
	const environments, each = 20, 25
	f := large()
	f.Pipelines, f.Promotions = f.Pipelines[:pipelines], nil
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		targets := p.Spec.Environments[0].Targets[:1]
		p.Spec.AppRef.Name += hostile
		p.Spec.Environments, p.Status.Environments = nil, map[string]*pipelinesv1.EnvironmentStatus{}
		for e := range environments {
			name := fmt.Sprintf("%02d-%s", e, hostile)
			p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: name, Targets: targets})
			status := &pipelinesv1.EnvironmentStatus{Targets: []pipelinesv1.TargetStatus{{Ready: e%3 > 0, Revision: "1." + hostile, Reason: "Broken", Message: hostile}}}
			if e%4 == 1 {
				status.Promotion = &pipelinesv1.PromotionSummary{Name: fmt.Sprintf("%s-%d", p.Name, e), Revision: "2." + hostile, Phase: string(capstanv1.PhaseAwaitingGates), Message: hostile, URL: "https://git.example.com/1"}
				status.WaitingApproval.Revision = status.Promotion.Revision
			}
			p.Status.Environments[name] = status
		}
		for n := range each {
			f.Promotions = append(f.Promotions, crowdedPromotion(p, n, f.Now))
		}
	}
	return f
}

// crowdedPromotion is promotion n of a Pipeline: every other one is under way.
func crowdedPromotion(p *pipelinesv1.Pipeline, n int, now time.Time) capstanv1.Promotion {
	at := func(minutes int) *metav1.Time {
		return &metav1.Time{Time: now.Add(time.Duration(minutes-60*(n+1)) * time.Minute)}
	}
	one := capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: fmt.Sprintf("%s-%d", p.Name, n), CreationTimestamp: *at(0)},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: p.Name, UID: p.UID}, App: p.Spec.AppRef, Environment: p.Spec.Environments[n%len(p.Spec.Environments)].Name,
			Number: int64(n + 1), Revision: fmt.Sprintf("%d.%s", n, hostile), Manual: true, Strategy: pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{}},
		},
		Status: capstanv1.PromotionStatus{
			Phase: capstanv1.PhaseSucceeded, StartTime: at(1), GatesCloseTime: at(1), GatesOpenTime: at(10), Approval: &capstanv1.ApprovalRecord{By: hostile, ApprovalTime: *at(15)},
			CarriedOutTime: at(20), VerifyTime: at(30), FinishTime: at(50), URL: "https://git.example.com/1", PullRequest: &capstanv1.PullRequestStatus{HeadSHA: "0123456789abcdef0123456789abcdef01234567"},
		},
	}
	if n%2 == 1 {
		one.Status = capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, StartTime: at(1), GatesCloseTime: at(1), Reason: "Soaking", Message: hostile, Gates: []capstanv1.GateStatus{
			{Name: "soak", Type: capstanv1.SoakGate, State: capstanv1.GateClosed, Reason: "Soaking", Message: hostile, NextChangeTime: at(600)},
			{Name: "windows", Type: capstanv1.WindowGate, State: capstanv1.GateClosed, Reason: "Frozen", Message: hostile},
			{Name: "checks", Type: capstanv1.CheckGate, State: capstanv1.GateInvalid, Reason: "InvalidGate", Message: hostile},
		}}
	}
	return one
}

// shown returns the main part of a page, for a viewer with all rights.
func shown(t *testing.T, f *view.Facts, path string) string {
	t.Helper()
	g := NewWithT(t)
	a, ok := (&Options{}).parseAddress(&url.URL{Path: path})
	g.Expect(ok).To(BeTrue())
	scope := view.Everything()
	scope.Approve = view.Namespaces{All: true}
	topic := newTopic(a, scope, largeRenderer(t))
	g.Expect(topic.refresh(f)).To(Succeed())
	shot, there, err := topic.shot()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(there).To(BeTrue())
	return shot.main
}

// elements returns all elements of a page. Every opened element must be closed, and hostile texts must have added none.
func elements(t *testing.T, page string) []*html.Node {
	t.Helper()
	g := NewWithT(t)
	var open []string
	for z := html.NewTokenizer(strings.NewReader(page)); z.Next() != html.ErrorToken; {
		token := z.Token()
		void := slices.Contains([]string{"input", "br"}, token.Data)
		switch {
		case token.Type == html.StartTagToken && !void:
			open = append(open, token.Data)
		case token.Type == html.EndTagToken:
			g.Expect(open).NotTo(BeEmpty())
			g.Expect(token.Data).To(Equal(open[len(open)-1]), "the elements are nested")
			open = open[:len(open)-1]
		}
	}
	g.Expect(open).To(BeEmpty())
	root, err := html.Parse(strings.NewReader(page))
	g.Expect(err).NotTo(HaveOccurred())
	var all []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			g.Expect(n.Data).NotTo(BeElementOf("script", "img"))
			for _, a := range n.Attr {
				g.Expect(a.Key).NotTo(HavePrefix("on"))
				g.Expect(a.Key).NotTo(Equal("style"), "the content security policy forbids it")
			}
			all = append(all, n)
		}
	}
	return all
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// with returns the elements with a class.
func with(all []*html.Node, class string) []*html.Node {
	var found []*html.Node
	for _, n := range all {
		if slices.Contains(strings.Fields(attribute(n, "class")), class) {
			found = append(found, n)
		}
	}
	return found
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// Hostile names stay text on the list of Pipelines. All of a name is in a title, and each state has a word next to its icon.
func TestRailsAreText(t *testing.T) {
	g := NewWithT(t)
	page := shown(t, crowded(30), "/pipelines")
	size := len(compressed([]byte(page)))
	t.Logf("%d bytes, %d compressed", len(page), size)
	g.Expect(size).To(BeNumerically("<", 150_000))
	all := elements(t, page)
	rails := with(all, "rail")
	g.Expect(len(rails)).To(Equal(12), "a page")
	for _, rail := range rails {
		var inside []*html.Node
		for n := range rail.Descendants() {
			if n.Type == html.ElementNode {
				inside = append(inside, n)
			}
		}
		stops := with(inside, "stop")
		g.Expect(len(stops)).To(Equal(4))
		for _, s := range stops {
			g.Expect(attribute(s, "data-environment")).To(HaveSuffix(hostile))
		}
		g.Expect(textOf(rail)).To(And(ContainSubstring("and 16 more environments"), ContainSubstring("Awaiting gates"), ContainSubstring("soak opens 2026-"),
			ContainSubstring("windows Frozen"), ContainSubstring("and 1 more gate"), ContainSubstring("Pull request"), ContainSubstring("Approve")))
		for _, n := range with(inside, "cut") {
			g.Expect(attribute(n, "title")).NotTo(BeEmpty(), "what is cut is in the title: %s", textOf(n))
		}
		for _, n := range with(inside, "mark") {
			g.Expect(textOf(n)).To(MatchRegexp(`\w`), "an icon has a word")
		}
	}
}

// The page of a Pipeline has a text for its picture, and no hostile name is anything but text.
func TestPicturesHaveTexts(t *testing.T) {
	g := NewWithT(t)
	f := crowded(1)
	page := shown(t, f, "/pipelines/"+f.Pipelines[0].Namespace+"/"+f.Pipelines[0].Name)
	size := len(compressed([]byte(page)))
	t.Logf("%d bytes, %d compressed", len(page), size)
	g.Expect(size).To(BeNumerically("<", 150_000))
	all := elements(t, page)
	pictures := slices.DeleteFunc(slices.Clone(all), func(n *html.Node) bool { return attribute(n, "role") != "img" })
	g.Expect(pictures).To(HaveLen(2), "the times of the promotions, and the deployments of each day")
	timesAt := slices.IndexFunc(pictures, func(n *html.Node) bool { return strings.HasPrefix(attribute(n, "aria-label"), "Times") })
	g.Expect(timesAt).To(BeNumerically(">=", 0))
	g.Expect(attribute(pictures[timesAt], "aria-label")).To(MatchRegexp(`^Times of \d+ promotions, from 2026-.* UTC to 2026-.* UTC\. The table that follows has the same times\.$`))
	segments, kinds := with(all, "segment"), map[string]bool{}
	for _, s := range segments {
		if title := s.FirstChild; title.Data == "title" {
			kinds[strings.Fields(attribute(s, "class"))[1]] = true
			g.Expect(textOf(title)).To(MatchRegexp(`(since|from) 2026-\d\d-\d\d \d\d:\d\d:\d\d UTC`))
		}
	}
	g.Expect(kinds).To(Equal(map[string]bool{"detected": true, "gates": true, "approval": true, "pull": true, "rollout": true, "verification": true}))
	times := textOf(with(all, "timings")[0])
	for _, kind := range []string{"detected", "gates", "approval", "pull request", "roll-out", "verification"} {
		g.Expect(times).To(ContainSubstring(kind + ": "))
	}
	g.Expect(len(with(all, "lane"))).To(Equal(19), "one for each environment of the 20 newest promotions, and the axis")
	g.Expect(textOf(with(all, "commands")[0])).To(ContainSubstring("capstan explain pipeline team-0/app-000"))
	for _, svg := range all {
		if svg.Data == "svg" {
			g.Expect(attribute(svg, "aria-hidden") == "true" || slices.Contains(pictures, svg) || slices.ContainsFunc(pictures, func(p *html.Node) bool { return slices.Contains(slices.Collect(p.Descendants()), svg) })).To(BeTrue(), "a picture has a text, or is not announced")
		}
	}
	for _, link := range all {
		if to, found := strings.CutPrefix(attribute(link, "href"), "#"); found && link.Data == "a" { // The layout has the symbols that "use" names.
			g.Expect(slices.ContainsFunc(all, func(n *html.Node) bool { return attribute(n, "id") == to })).To(BeTrue(), "the target of %s", to)
		}
	}
}
