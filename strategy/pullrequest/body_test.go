package pullrequest

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// hostile are names of environments, which have no pattern.
var hostile = []string{
	`"dev"`, `'dev'`, `<b>dev</b>`, `</code></details>`, `&`, `&#34;`, `a & b # c`, `@team/all`, `#12`, `GH-1 !2 ~label $x$ |x|`,
	"`code`", "```", `[a](http://evil.example)`, `![a](//evil.example/x.png)`, `https://evil.example`, `www.evil.example`, `***bold***`, `a\b\*c`,
	"two\nlines", "tab\tand\x00nul", "\u202eturned", "prod-eu", "продакшн", "",
}

var (
	reference = regexp.MustCompile(`&(#[0-9]+|[a-z]+);`)
	shownCode = regexp.MustCompile(`<code>(.*?)</code>`)
)

func promotionInto(environment string) *capstanv1.Promotion {
	return &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "web-prod-1", UID: "1234"},
		Spec: capstanv1.PromotionSpec{
			Pipeline:    capstanv1.PipelineReference{Name: "web", UID: "5678"},
			App:         pipelinesv1.LocalAppReference{Kind: "HelmRelease", Name: "web"},
			Environment: environment, Number: 1, Revision: "1.1.0", Source: capstanv1.PromotionSource{Environment: environment},
			Strategy: pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{BaseBranch: "main"}},
		},
	}
}

// A pull request shows each name as it is: no part of it takes effect, and none is changed.
func TestHostileNamesAreShownLiterally(t *testing.T) {
	t.Parallel()
	for _, name := range hostile {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			why := fmt.Sprintf("environment %s, the source of 1.1.0, agreed on another revision", name)
			p := promotionInto(name)
			requested := promotionInto("prod")
			requested.Spec.Request = &capstanv1.RequestReference{By: "ann", Reason: name}
			for text, want := range map[string]string{
				body(p, nil):                   name,
				comment(p, why):                why,
				noted(p, "body"):               name,
				body(requested, nil):           name,
				body(p, []place{{from: name}}): name,
			} {
				if want == "" {
					g.Expect(text).To(ContainSubstring("(nothing)"))
					continue
				}
				summary, _, _ := strings.Cut(text, "<details>")
				var shown []string
				for _, match := range shownCode.FindAllStringSubmatch(summary, -1) {
					shown = append(shown, html.UnescapeString(match[1]))
					bare := reference.ReplaceAllString(match[1], "")
					g.Expect(bare).NotTo(ContainSubstring("&"), "every & begins one reference")
					g.Expect(bare).NotTo(MatchRegexp("[<>\"'@#`*_\\[\\\\!~$|]|://|www\\."), match[1])
				}
				g.Expect(shown).To(ContainElement(oneLine(want)))
			}
			g.Expect(comment(p, why)).NotTo(ContainSubstring("&&"))
		})
	}
}

// Whatever the length of names, the text stays within the limits of the service, ends with
// the claim, and has no half of a tag.
func TestLongNamesLeaveTheTextWithinTheLimits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\"#<é`", 2_000)
	p := promotionInto(long)
	p.Spec.Revision, p.Spec.App.Name = long, long
	p.Spec.From = &capstanv1.PromotionBase{}
	var places []place
	for range 50 {
		p.Spec.From.Revisions = append(p.Spec.From.Revisions, long)
		p.Spec.From.Targets = append(p.Spec.From.Targets, long)
		places = append(places, place{path: long, from: long, to: long})
	}
	for _, limits := range []provider.Limits{{Title: 400, Body: 4000}, {Title: 255, Body: 32768}, {}} {
		t.Run(fmt.Sprint(limits.Body), func(t *testing.T) {
			g := NewWithT(t)
			text := fitBody(body(p, places), limits)
			if limits.Body > 0 {
				g.Expect(utf8.RuneCountInString(text)).To(BeNumerically("<=", limits.Body))
				g.Expect(utf8.RuneCountInString(fit(title(p), limits.Title))).To(BeNumerically("<=", limits.Title))
			}
			g.Expect(utf8.RuneCountInString(text)).To(BeNumerically("<", 64<<10), "also where the service documents no limit")
			g.Expect(len(message(p))).To(BeNumerically("<", 4<<10))
			g.Expect(readClaim(text).relationTo(p)).To(Equal(mine))
			g.Expect(text).To(HaveSuffix("</details>\n"))
			g.Expect(strings.Count(text, "<code>")).To(Equal(strings.Count(text, "</code>")))
			g.Expect(strings.Count(text, "```")).To(Equal(2))
			if limits.Body == 4000 {
				g.Expect(text).To(ContainSubstring(shortened))
			}
		})
	}
}

// The note is written once, and leaves the claim in place.
func TestTheNoteIsWrittenOnce(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	p := promotionInto("prod")
	once := noted(p, body(p, nil))
	g.Expect(once).To(HavePrefix("**Environment <code>prod</code> runs this revision already"))
	g.Expect(noted(p, once)).To(Equal(once))
	g.Expect(noted(p, strings.ReplaceAll(once, "\n", "\r\n"))).To(HavePrefix("**"), "services change line ends")
	g.Expect(strings.Count(noted(p, strings.ReplaceAll(once, "\n", "\r\n")), "runs this revision already")).To(Equal(1))
	g.Expect(readClaim(once).relationTo(p)).To(Equal(mine))
}

// A pull request says whether it is a rollback, and who or what caused it.
func TestWhyAPullRequestIsOpened(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), promotionInto("prod")
	p.Spec.Source.Environment = "staging"
	g.Expect(title(p)).To(Equal("Promote apps/web in prod to 1.1.0"))
	g.Expect(body(p, nil)).To(And(HavePrefix("Promotes "), ContainSubstring("- **Why**: every target of environment <code>staging</code> runs it, ready\n")))
	p.Spec.RollbackOf = &capstanv1.RollbackReference{Name: "web-prod-0", Number: 1}
	g.Expect(title(p)).To(Equal("Roll back apps/web in prod to 1.1.0"))
	g.Expect(body(p, nil)).To(And(HavePrefix("Rolls back "), ContainSubstring("- **Why**: the promotion <code>apps/web-prod-0</code> failed in the environment")))
	p.Spec.Request = &capstanv1.RequestReference{By: "ann", Reason: "incident 4711"}
	g.Expect(body(p, nil)).To(ContainSubstring("- **Why**: <code>ann</code> requested it: <code>incident 4711</code>\n"))
}
