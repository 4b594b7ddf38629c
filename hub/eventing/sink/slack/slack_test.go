package slack_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	ce "github.com/cloudevents/sdk-go/v2/event"
	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/chat"
	"github.com/capstan-hub/capstan/hub/eventing/sink/chat/chattest"
	"github.com/capstan-hub/capstan/hub/eventing/sink/slack"
)

// object is a text object of Block Kit, and block a block, with the rules of its reference: a test of its own, which
// shares no code with the sink.
type object struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Emoji    *bool  `json:"emoji"`
	Verbatim *bool  `json:"verbatim"`
}

type block struct {
	Type     string   `json:"type"`
	Text     *object  `json:"text"`
	Fields   []object `json:"fields"`
	Elements []object `json:"elements"`
}

type document struct {
	Text   string  `json:"text"`
	Blocks []block `json:"blocks"`
}

func (o object) problem(limit int) string {
	switch n := utf8.RuneCountInString(o.Text); {
	case o.Type != "mrkdwn" && o.Type != "plain_text":
		return "type " + o.Type
	case n < 1 || n > limit:
		return fmt.Sprintf("%d characters", n)
	case o.Emoji != nil && o.Type != "plain_text", o.Verbatim != nil && o.Type != "mrkdwn":
		return "a key of another type"
	}
	return ""
}

// parse a message as strictly as Slack's reference describes it.
func parse(body string) (document, error) {
	var d document
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return d, err
	}
	if d.Text == "" || len(d.Blocks) == 0 || len(d.Blocks) > 50 {
		return d, fmt.Errorf("text %q, %d blocks", d.Text, len(d.Blocks))
	}
	for i, b := range d.Blocks {
		var problems []string
		switch b.Type {
		case "section":
			if (b.Text == nil) == (len(b.Fields) == 0) || len(b.Elements) > 0 || len(b.Fields) > 10 {
				problems = append(problems, "neither text nor fields, or both")
			}
			if b.Text != nil {
				problems = append(problems, b.Text.problem(3000))
			}
			for _, f := range b.Fields {
				problems = append(problems, f.problem(2000))
			}
		case "context":
			if b.Text != nil || len(b.Fields) > 0 || len(b.Elements) == 0 || len(b.Elements) > 10 {
				problems = append(problems, "not only elements")
			}
			for _, e := range b.Elements {
				problems = append(problems, e.problem(3000))
			}
		default:
			problems = append(problems, "type "+b.Type)
		}
		if all := strings.Join(problems, ""); all != "" {
			return d, fmt.Errorf("block %d: %s", i, all)
		}
	}
	return d, nil
}

// angled are the parts of a text that Slack reads as links and mentions. reference is an entity.
var (
	angled    = regexp.MustCompile(`<[^>]*>?`)
	reference = regexp.MustCompile(`&(amp|lt|gt);`)
)

// texts returns all texts of a message.
func (d document) texts() []string {
	all := []string{d.Text}
	for _, b := range d.Blocks {
		if b.Text != nil {
			all = append(all, b.Text.Text)
		}
		for _, o := range append(b.Fields, b.Elements...) {
			all = append(all, o.Text)
		}
	}
	return all
}

func publish(t *testing.T, keys map[string]any, e ce.Event) document {
	t.Helper()
	hook := chattest.Serve(t, chattest.Status(http.StatusOK, "ok"))
	s := chattest.Open(t, slack.Service(), chattest.Config(t, schema.Slack(), keys), hook.Secret())
	if err := s.Publish(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	d, err := parse(hook.Last(t))
	if err != nil {
		t.Fatalf("%v: %s", err, hook.Last(t))
	}
	return d
}

func TestMessage(t *testing.T) {
	g := NewWithT(t)
	d := publish(t, nil, chattest.Event(t, chattest.Promotion(capstanv1.PhaseAwaitingApproval), event.PromotionWaiting))
	g.Expect(d.texts()).To(Equal([]string{
		"Approval required: 1.2.0 of pipeline shop/web into prod",
		"Approval required: 1.2.0 of pipeline shop/web into prod",
		"Pipeline\nshop/web", "Environment\nprod", "Revision\n1.2.0",
		"<https://capstan.example.org/promotions/shop/web-prod-1/approve|Approve> · <https://capstan.example.org/pipelines/shop/web|Pipeline>",
	}))
	d = publish(t, nil, chattest.Event(t, chattest.Promotion(capstanv1.PhaseFailed), event.PromotionFailed))
	g.Expect(d.texts()).To(Equal([]string{
		"Promotion failed: 1.2.0 of pipeline shop/web into prod",
		"Promotion failed: 1.2.0 of pipeline shop/web into prod",
		"Pipeline\nshop/web", "Environment\nprod", "Revision\n1.2.0", "Reason\nInvalidCredentials",
		"the Git service refuses the token",
		"<https://capstan.example.org/pipelines/shop/web|Pipeline> · <https://git.example.org/shop/fleet/pulls/7|Pull request>",
	}))
	// An event of a cluster has no facts and links.
	other := (event.Hub{Name: "fleet", UID: "hub"}).ClusterRegistered(&capstanv1.ClusterConnection{})
	g.Expect(publish(t, nil, other).Blocks).To(HaveLen(1))
	// Each kind of the catalogue has a message.
	for _, entry := range event.Catalogue() {
		e := chattest.Event(t, chattest.Promotion(capstanv1.PhaseAwaitingApproval), event.PromotionWaiting)
		e.SetType(event.DefaultPrefix + "." + string(entry.Kind))
		publish(t, nil, e)
	}
}

func TestTemplate(t *testing.T) {
	g := NewWithT(t)
	keys := map[string]any{"template": `<!here> *{{.Pipeline}}*: {{.Revision}} <{{.ApproveURL}}|go>{{with .Reason}} {{.}}{{end}}`}
	p := chattest.Promotion(capstanv1.PhaseAwaitingApproval)
	p.Spec.Revision = "<!channel> *x* &_y_"
	d := publish(t, keys, chattest.Event(t, p, event.PromotionWaiting))
	g.Expect(d.Blocks[0].Text.Type).To(Equal("mrkdwn"))
	g.Expect(d.Blocks[0].Text.Text).To(Equal("<!here> *web*: &lt;!channel\u200b&gt; *\u200bx*\u200b &amp;_\u200by_\u200b <https://capstan.example.org/promotions/shop/web-prod-1/approve|go>"))
	g.Expect(d.Blocks).To(HaveLen(2), "the links follow")
	// A template without output leaves the default text.
	keys["template"] = `{{if eq .Kind "promotion.failed.v1"}}x{{end}} `
	d = publish(t, keys, chattest.Event(t, p, event.PromotionWaiting))
	g.Expect(d.Blocks[0].Text.Text).To(HavePrefix("Approval required: "))
}

var pieces = []string{
	"<!channel>", "<!here|x>", "<@U012AB3CD>", "<#C1>", "<https://evil.example|ok>", "&lt;", "&amp;", "&", "<", ">", "*", "_", "~", "`", "|", "@here", "\n", "\r", "\t", "\x00",
	"\u202e", "\u2066", "é", "😀", "\xff", "1.2.0", "main@sha1:0123", "feature_x", " ", "a", "{{.Revision}}", strings.Repeat("<&>", 700),
}

// hostile returns a text of random pieces.
func hostile(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(12) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// TestHostile: for any names, revisions, messages and addresses, Slack reads no link and mention
// except those of the sink, and accepts the form of the message.
func TestHostile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, keys := range []map[string]any{nil, {"template": "{{.Title}} {{.Text}} {{.Revision}} {{.Environment}} {{.Actor}} {{.URL}} {{.PullRequestURL}} {{.Pipeline | trunc 5}} {{$x := .Reason}}{{or $x .Subject}}"}} {
		hook := chattest.Serve(t, chattest.Status(http.StatusOK, "ok"))
		s := chattest.Open(t, slack.Service(), chattest.Config(t, schema.Slack(), keys), hook.Secret())
		for range 100 {
			p := chattest.Promotion(capstanv1.PhaseFailed)
			p.Namespace, p.Spec.Pipeline.Name, p.Spec.Environment, p.Spec.Revision = hostile(r), hostile(r), hostile(r), hostile(r)
			p.Status.Reason, p.Status.Message = hostile(r), hostile(r)
			p.Status.Approval = &capstanv1.ApprovalRecord{By: hostile(r)}
			p.Status.URL = []string{"https://git.example.org/a?b=<!channel>|x&c=" + hostile(r), "javascript:alert(1)", hostile(r), "https://user:pw@git.example.org/"}[r.IntN(4)]
			e := chattest.Event(t, p, event.PromotionFailed)
			if err := s.Publish(t.Context(), e); err != nil {
				t.Fatalf("%v: %s", err, e)
			}
			d, err := parse(hook.Last(t))
			if err != nil {
				t.Fatalf("%v: %s", err, hook.Last(t))
			}
			for _, text := range d.texts() {
				for _, part := range angled.FindAllString(text, -1) {
					if !regexp.MustCompile(`^<https://(capstan|git)\.example\.org/[^<>|]*\|(Pipeline|Pull request)>$`).MatchString(part) {
						t.Fatalf("%q is read as a link or mention in %q", part, text)
					}
				}
				if strings.Contains(reference.ReplaceAllString(text, ""), "&") {
					t.Fatalf("an & that is no entity: %q", text)
				}
				if strings.ContainsAny(text, "\x00\r\u202e\u2066") {
					t.Fatalf("a control character: %q", text)
				}
			}
			if keys != nil && regexp.MustCompile("[*_~`][^\u200b…]").MatchString(withoutURLs(d.Blocks[0].Text.Text)) {
				t.Fatalf("formatting: %q", d.Blocks[0].Text.Text)
			}
		}
	}
}

// withoutURLs removes addresses: their characters cannot be changed.
func withoutURLs(text string) string {
	return regexp.MustCompile(`https://\S*`).ReplaceAllString(text, "")
}

// FuzzEscape: what Slack shows of an escaped value is the value.
func FuzzEscape(f *testing.F) {
	for _, piece := range pieces {
		f.Add(piece)
	}
	shown := strings.NewReplacer("&amp;", "&", "&lt;", "<", "&gt;", ">", "\u200b", "")
	f.Fuzz(func(t *testing.T, value string) {
		escaped := slack.Service().Escape(value)
		if strings.ContainsAny(escaped, "<>") || strings.Contains(reference.ReplaceAllString(escaped, ""), "&") {
			t.Errorf("%q becomes %q", value, escaped)
		}
		if got, want := shown.Replace(escaped), strings.ReplaceAll(value, "\u200b", ""); got != want {
			t.Errorf("%q is shown as %q", want, got)
		}
		if u := slack.Service().EscapeURL(value); strings.ContainsAny(u, "<>| ") {
			t.Errorf("the URL %q becomes %q", value, u)
		}
		if fit := chat.Fit(value, 10, slack.Service().Escape); utf8.RuneCountInString(fit) > 10 || strings.Contains(reference.ReplaceAllString(fit, ""), "&") {
			t.Errorf("%q is cut to %q", value, fit)
		}
	})
}

// TestAnswers of Slack, and the classes of the errors. No error contains a part of the address, or
// text of an answer that is no code of Slack.
func TestAnswers(t *testing.T) {
	hook := chattest.Serve(t, nil)
	s := chattest.Open(t, slack.Service(), chattest.Config(t, schema.Slack(), nil), hook.Secret())
	e := chattest.Event(t, chattest.Promotion(capstanv1.PhaseSucceeded), event.PromotionSucceeded)
	for _, c := range []struct {
		status int
		body   string
		class  sink.Class
		text   string
	}{
		{200, "ok", "", ""},
		{200, "ok\n", "", ""},
		{200, "<html>" + chattest.Canary, sink.Unavailable, "not an incoming webhook of Slack"},
		{204, "", sink.Unavailable, "not an incoming webhook of Slack"},
		{302, "", sink.Unavailable, "302"},
		{400, "invalid_payload", sink.Refused, "invalid_payload"},
		{400, "user_not_found", sink.Unavailable, "user_not_found"},
		{400, chattest.Canary, sink.Refused, "400 Bad Request"},
		{403, "action_prohibited", sink.Unavailable, "an administrator restricts posting"},
		{404, "no_service", sink.Unavailable, "no_service (the webhook was removed or disabled: make a new one)"},
		{404, chattest.Canary, sink.Unavailable, "404 Not Found"},
		{410, "channel_is_archived", sink.Gone, "the channel is archived"},
		{413, "", sink.TooLarge, "413"},
		{429, "", sink.Transient, "429"},
		{500, "rollup_error", sink.Transient, "500"},
		{503, "", sink.Transient, "503"},
	} {
		g := NewWithT(t)
		hook.Answer(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "30")
			w.Header().Set("Location", "/"+chattest.Canary)
			chattest.Status(c.status, c.body)(w, r)
		})
		err := s.Publish(t.Context(), e)
		if c.class == "" {
			g.Expect(err).NotTo(HaveOccurred())
			continue
		}
		g.Expect(err).To(MatchError(ContainSubstring(c.text)))
		g.Expect(err).To(MatchError(Not(ContainSubstring(chattest.Canary))))
		got := sink.Of(err)
		g.Expect(got.Class).To(Equal(c.class), "%d %s", c.status, c.body)
		if c.class == sink.Transient {
			g.Expect(got.RetryAfter).To(Equal(30 * time.Second))
		} else {
			g.Expect(got.RetryAfter).To(BeZero())
		}
	}
}
