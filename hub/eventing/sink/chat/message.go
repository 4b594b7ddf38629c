package chat

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	ce "github.com/cloudevents/sdk-go/v2/event"

	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/notice"
	"github.com/capstan-hub/capstan/internal/messagetemplate"
)

// Message is an event for people.
type Message struct {
	// Title says in one line what happened. It is plain text.
	Title string
	// Markup is the output of a template, in the markup of the service; empty without a template.
	// Then Facts and Text are not shown.
	Markup string
	// Facts are plain text; none for an event that is not about a promotion.
	Facts []Fact
	// Text explains the event. It is plain text, may have several lines, and may be empty.
	Text     string
	Severity event.Severity
	// Links are in the order of their importance.
	Links []Link
}

// Fact is one value with its name.
type Fact struct{ Name, Value string }

// Link has a label of this package, and an http or https URL.
type Link struct{ Label, URL string }

// message returns the Message of an event.
func (s *Sink) message(e ce.Event) (Message, error) {
	n, err := notice.Of(e, s.o.DashboardURL)
	if err != nil {
		return Message{}, sink.Errorf(sink.Refused, "malformed", "%w", err)
	}
	m := Message{Title: line(n.Title), Text: strings.TrimSpace(clean(n.Text)), Severity: n.Severity}
	for _, l := range []Link{{"Approve", n.ApproveURL}, {"Pipeline", n.URL}, {"Pull request", n.PullRequestURL}} {
		if l.URL = webURL(l.URL); l.URL != "" {
			m.Links = append(m.Links, l)
		}
	}
	if p := n.Promotion; p != nil {
		for _, f := range []Fact{{"Pipeline", p.Namespace + "/" + p.Pipeline}, {"Environment", p.ToEnvironment}, {"Revision", p.Revision}, {"Reason", n.Reason}} {
			if f.Value = line(f.Value); f.Value != "" {
				m.Facts = append(m.Facts, f)
			}
		}
	}
	if s.template == nil {
		return m, nil
	}
	if m.Markup, err = s.template.Execute(values(n), s.escape); err != nil {
		return Message{}, sink.Errorf(sink.Refused, "template", "the template fails for event %s of type %s: %w", e.ID(), e.Type(), err)
	}
	m.Markup = strings.TrimSpace(m.Markup)
	return m, nil
}

// escape a value that a template outputs.
func (s *Sink) escape(value any) string {
	if link, is := value.(messagetemplate.Link); is {
		return s.o.Service.EscapeURL(string(link))
	}
	return s.o.Service.Escape(fmt.Sprint(value))
}

// values of the fields of a template.
func values(n notice.Notice) map[string]string {
	all := map[string]string{
		messagetemplate.Title: n.Title, messagetemplate.Kind: string(n.Kind),
		messagetemplate.Severity: string(n.Severity), messagetemplate.Time: n.Time.UTC().Format(time.RFC3339),
		messagetemplate.Subject: n.Subject, messagetemplate.Reason: n.Reason,
	}
	if p := n.Promotion; p != nil {
		all[messagetemplate.Namespace], all[messagetemplate.Pipeline] = p.Namespace, p.Pipeline
		all[messagetemplate.Environment], all[messagetemplate.FromEnvironment] = p.ToEnvironment, p.FromEnvironment
		all[messagetemplate.Revision], all[messagetemplate.Promotion], all[messagetemplate.Actor] = p.Revision, p.Promotion, p.Actor
	}
	for name, text := range all {
		all[name] = line(text)
	}
	all[messagetemplate.Text] = strings.TrimSpace(clean(n.Text))
	all[messagetemplate.URL], all[messagetemplate.ApproveURL], all[messagetemplate.PullRequestURL] = webURL(n.URL), webURL(n.ApproveURL), webURL(n.PullRequestURL)
	return all
}

// webURL returns an http or https URL in printable ASCII without spaces, quotes and the characters of
// markup <, >, | and backquote; empty for any other text.
func webURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || u.User != nil {
		return ""
	}
	var b strings.Builder
	for _, c := range []byte(u.String()) {
		if c <= ' ' || c > '~' || strings.IndexByte("<>|`\"\\", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// clean returns valid UTF-8 without control characters other than the newline, and without those
// that reverse the direction of text: with them, a name could show another text than it has.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case unicode.IsControl(r), r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069', r == '\u200e', r == '\u200f', r == '\u061c', r == '\u2028', r == '\u2029':
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// line is clean, in one line.
func line(text string) string {
	return strings.TrimSpace(strings.ReplaceAll(clean(text), "\n", " "))
}

// Mark ends a text that Fit has cut.
const Mark = "…"

// Fit returns the text with each character escaped, in at most limit characters. It is cut between
// two characters of the text, never inside an escape.
func Fit(text string, limit int, escape func(string) string) string {
	var b strings.Builder
	used, whole, cut := 0, 0, 0
	for _, r := range text {
		piece := escape(string(r))
		size := len([]rune(piece))
		if used+size > limit {
			cut = 1
			break
		}
		b.WriteString(piece)
		if used += size; used <= limit-1 {
			whole = b.Len()
		}
	}
	if cut == 0 {
		return b.String()
	}
	return b.String()[:whole] + Mark
}
