package msteams_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/chat/chattest"
	"github.com/capstan-hub/capstan/hub/eventing/sink/msteams"
)

// The body of a workflow's webhook, with the keys that Microsoft documents.
type document struct {
	Type        string `json:"type"`
	Attachments []struct {
		ContentType string `json:"contentType"`
		Content     card   `json:"content"`
	} `json:"attachments"`
}

type card struct {
	Schema  string `json:"$schema"`
	Type    string `json:"type"`
	Version string `json:"version"`
	Body    []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Wrap    bool   `json:"wrap"`
		Spacing string `json:"spacing"`
		Inlines []struct {
			Type, Text, Weight, Size, Color string
		} `json:"inlines"`
	} `json:"body"`
	Actions []struct {
		Type, Title, URL string
	} `json:"actions"`
	Teams struct {
		Width string `json:"width"`
	} `json:"msteams"`
}

// maxBytes is what Teams accepts.
const maxBytes = 28 << 10

// parse a message strictly. entities, and thereby mentions, are unknown fields.
func parse(body string) (card, error) {
	var d document
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return card{}, err
	}
	if len(body) > maxBytes || d.Type != "message" || len(d.Attachments) != 1 || d.Attachments[0].ContentType != "application/vnd.microsoft.card.adaptive" {
		return card{}, fmt.Errorf("%d bytes, type %s, %d attachments", len(body), d.Type, len(d.Attachments))
	}
	c := d.Attachments[0].Content
	if c.Type != "AdaptiveCard" || c.Version != "1.4" || c.Schema != "http://adaptivecards.io/schemas/adaptive-card.json" || len(c.Body) == 0 || c.Teams.Width != "Full" {
		return c, errors.New("not an Adaptive Card")
	}
	for _, e := range c.Body {
		switch {
		case e.Type == "TextBlock" && e.Text != "" && e.Wrap && e.Inlines == nil:
		case e.Type == "RichTextBlock" && e.Text == "" && len(e.Inlines) > 0:
			for _, r := range e.Inlines {
				if r.Type != "TextRun" || r.Text == "" {
					return c, fmt.Errorf("run %v", r)
				}
			}
		default:
			return c, fmt.Errorf("element %v", e)
		}
	}
	for _, a := range c.Actions {
		if u, err := url.Parse(a.URL); err != nil || a.Type != "Action.OpenUrl" || a.Title == "" || (u.Scheme != "https" && u.Scheme != "http") {
			return c, fmt.Errorf("action %v", a)
		}
	}
	return c, nil
}

// lines of the literal text of a card, and its links.
func lines(c card) (text, links []string) {
	for _, e := range c.Body {
		one := e.Text
		for _, r := range e.Inlines {
			one += r.Text
		}
		text = append(text, one)
	}
	for _, a := range c.Actions {
		links = append(links, a.Title+" "+a.URL)
	}
	return text, links
}

func publish(t *testing.T, keys map[string]any, p *capstanv1.Promotion, kind event.Kind) card {
	t.Helper()
	hook := chattest.Serve(t, chattest.Status(http.StatusAccepted, ""))
	s := chattest.Open(t, msteams.Service(), chattest.Config(t, schema.MSTeams(), keys), hook.Secret())
	if err := s.Publish(t.Context(), chattest.Event(t, p, kind)); err != nil {
		t.Fatal(err)
	}
	c, err := parse(hook.Last(t))
	if err != nil {
		t.Fatalf("%v: %s", err, hook.Last(t))
	}
	return c
}

func TestMessage(t *testing.T) {
	g := NewWithT(t)
	c := publish(t, nil, chattest.Promotion(capstanv1.PhaseAwaitingApproval), event.PromotionWaiting)
	text, links := lines(c)
	g.Expect(text).To(Equal([]string{"Approval required: 1.2.0 of pipeline shop/web into prod", "Pipeline: shop/web", "Environment: prod", "Revision: 1.2.0"}))
	g.Expect(links).To(Equal([]string{"Approve https://capstan.example.org/promotions/shop/web-prod-1/approve", "Pipeline https://capstan.example.org/pipelines/shop/web"}))
	g.Expect(c.Body[0].Inlines[0].Color).To(BeEmpty())
	c = publish(t, nil, chattest.Promotion(capstanv1.PhaseFailed), event.PromotionFailed)
	text, links = lines(c)
	g.Expect(text).To(ContainElements("Reason: InvalidCredentials", "the Git service refuses the token"))
	g.Expect(links).To(ContainElement("Pull request https://git.example.org/shop/fleet/pulls/7"))
	g.Expect(c.Body[0].Inlines[0].Color).To(Equal("Attention"))
}

// marks are the nodes of Markdown that a text without markup does not have. markdown is CommonMark with strikethrough,
// tables and bare addresses as links.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Strikethrough, extension.Table)).Parser()

// marks returns the kinds of markup in a text.
func marks(source string) []string {
	var found []string
	_ = ast.Walk(markdown.Parse(text.NewReader([]byte(source))), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n.Kind() {
		case ast.KindDocument, ast.KindParagraph, ast.KindText, ast.KindString, ast.KindTextBlock:
		default:
			if entering {
				found = append(found, n.Kind().String())
			}
		}
		return ast.WalkContinue, nil
	})
	return found
}

// TestTemplate: the literal text is Markdown, and a value is not.
func TestTemplate(t *testing.T) {
	g := NewWithT(t)
	keys := map[string]any{"template": `**{{.Pipeline}}** {{.Revision}} [go]({{.ApproveURL}})`}
	p := chattest.Promotion(capstanv1.PhaseAwaitingApproval)
	p.Spec.Revision = "[a](https://evil.example) <at>all</at> **b** `c` feature_x"
	c := publish(t, keys, p, event.PromotionWaiting)
	g.Expect(c.Body).To(HaveLen(1))
	g.Expect(c.Body[0].Type).To(Equal("TextBlock"))
	g.Expect(marks(c.Body[0].Text)).To(Equal([]string{"Emphasis", "Link"}), c.Body[0].Text)
	g.Expect(c.Actions).To(HaveLen(2), "the links follow")
	g.Expect(marks(p.Spec.Revision)).To(ContainElements("Link", "RawHTML", "Emphasis", "CodeSpan"), "the check can fail")
}

var pieces = []string{
	"[a](https://evil.example)", "![a](https://evil.example)", "<at>all</at>", "<https://evil.example>", "[a][b]", "[b]: https://evil.example", "**", "*", "_", "__", "`", "```", "~~", "~", "#", "# x", "- x", "+ x", "> x", "===", "---",
	"|", "|a|b|", "\\", "\\[", "&#91;", "&lt;", "&", "<", ">", "(", ")", "[", "]", "!", "\x00", "\u202e", "é", "😀", "\xff", "1.2.0", " ", "a", "<!-- x -->", strings.Repeat("😀", 600),
}

func hostile(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(10) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// TestHostile: for any names, revisions, messages and addresses the card has the documented form and size, and a
// template's values have no markup.
func TestHostile(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, keys := range []map[string]any{nil, {"template": "x {{.Revision}} y\n\n{{.Environment}} {{.Reason}}{{trunc 40 .Title}}"}} {
		hook := chattest.Serve(t, chattest.Status(http.StatusAccepted, ""))
		s := chattest.Open(t, msteams.Service(), chattest.Config(t, schema.MSTeams(), keys), hook.Secret())
		for range 300 {
			p := chattest.Promotion(capstanv1.PhaseFailed)
			p.Namespace, p.Spec.Pipeline.Name, p.Spec.Environment, p.Spec.Revision = hostile(r), hostile(r), hostile(r), hostile(r)
			p.Status.Reason, p.Status.Message = hostile(r), hostile(r)
			p.Status.URL = []string{"https://git.example.org/" + hostile(r), "javascript:alert(1)", hostile(r)}[r.IntN(3)]
			if err := s.Publish(t.Context(), chattest.Event(t, p, event.PromotionFailed)); err != nil {
				t.Fatal(err)
			}
			c, err := parse(hook.Last(t))
			if err != nil {
				t.Fatalf("%v: %s", err, hook.Last(t))
			}
			if keys == nil {
				continue
			}
			if found := marks(c.Body[0].Text); len(found) > 0 {
				t.Fatalf("%v in %q", found, c.Body[0].Text)
			}
		}
	}
}

// FuzzEscape: a parser of CommonMark finds no link, image, HTML, code, emphasis, heading, list or
// quote in an escaped value.
func FuzzEscape(f *testing.F) {
	for _, piece := range pieces {
		f.Add(piece)
	}
	f.Fuzz(func(t *testing.T, value string) {
		value = strings.ReplaceAll(strings.TrimSpace(value), "\t", " ")
		if found := marks("x " + msteams.Service().Escape(value)); len(found) > 0 && !strings.ContainsAny(value, "\n\r") {
			t.Errorf("%v in %q", found, msteams.Service().Escape(value))
		}
		if u := msteams.Service().EscapeURL(value); strings.ContainsAny(u, "()[]<> `\\") {
			t.Errorf("the URL %q becomes %q", value, u)
		}
	})
}

// TestAnswers of a workflow. No error contains a part of the address or of an answer.
func TestAnswers(t *testing.T) {
	hook := chattest.Serve(t, nil)
	s := chattest.Open(t, msteams.Service(), chattest.Config(t, schema.MSTeams(), nil), hook.Secret())
	e := chattest.Event(t, chattest.Promotion(capstanv1.PhaseSucceeded), event.PromotionSucceeded)
	for status, class := range map[int]sink.Class{
		200: "", 202: "", 301: sink.Unavailable, 400: sink.Refused, 401: sink.Unavailable, 403: sink.Unavailable, 404: sink.Unavailable, 410: sink.Gone,
		413: sink.TooLarge, 429: sink.Transient, 500: sink.Transient, 502: sink.Transient,
	} {
		g := NewWithT(t)
		hook.Answer(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "30")
			chattest.Status(status, chattest.Canary)(w, r)
		})
		err := s.Publish(t.Context(), e)
		if class == "" {
			g.Expect(err).NotTo(HaveOccurred())
			continue
		}
		g.Expect(err).To(MatchError(And(ContainSubstring(fmt.Sprint(status)), Not(ContainSubstring(chattest.Canary)))))
		g.Expect(sink.Of(err).Class).To(Equal(class), "%d", status)
		if class == sink.Transient {
			g.Expect(sink.Of(err).RetryAfter).To(Equal(30 * time.Second))
		}
	}
}
