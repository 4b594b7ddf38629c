package slack

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/chat"
)

// Limits of Block Kit, in characters.
const (
	maxText    = 3000
	maxField   = 2000
	maxContext = 2000
)

// document is the body of a request.
type document struct {
	Text   string  `json:"text"`
	Blocks []block `json:"blocks"`
}

// block is a section (with text or fields) or a context (with elements).
type block struct {
	Type     string `json:"type"`
	Text     *text  `json:"text,omitempty"`
	Fields   []text `json:"fields,omitempty"`
	Elements []text `json:"elements,omitempty"`
}

// text object. Emoji is for plain_text, Verbatim for mrkdwn.
type text struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Emoji    *bool  `json:"emoji,omitempty"`
	Verbatim bool   `json:"verbatim,omitempty"`
}

// Service returns the rules of Slack.
func Service() chat.Service {
	return chat.Service{Escape: escape, EscapeURL: escapeURL, Body: body, Check: check}
}

func plain(s string, limit int) text {
	return text{Type: "plain_text", Text: chat.Fit(s, limit, entities), Emoji: new(bool)}
}

// mrkdwn of text that is escaped already, whose length is at most that limit.
func mrkdwn(s string) text { return text{Type: "mrkdwn", Text: s, Verbatim: true} }

func section(t text) block { return block{Type: "section", Text: &t} }

func body(m chat.Message) any {
	d := document{Text: chat.Fit(m.Title, maxText, entities)}
	if m.Markup != "" {
		d.Blocks = append(d.Blocks, section(mrkdwn(fit(m.Markup, maxText))))
	} else {
		d.Blocks = append(d.Blocks, section(plain(m.Title, maxText)))
		if facts := fields(m.Facts); len(facts) > 0 {
			d.Blocks = append(d.Blocks, block{Type: "section", Fields: facts})
		}
		if m.Text != "" {
			d.Blocks = append(d.Blocks, section(plain(m.Text, maxText)))
		}
	}
	if links := links(m.Links); links != "" {
		d.Blocks = append(d.Blocks, block{Type: "context", Elements: []text{mrkdwn(links)}})
	}
	return d
}

// fit cuts mrkdwn to a number of characters, never inside <...> or an entity.
func fit(s string, limit int) string {
	short := chat.Fit(s, limit, func(s string) string { return s })
	if short == s {
		return s
	}
	short = strings.TrimSuffix(short, chat.Mark)
	for _, pair := range []string{"<>", "&;"} {
		if begin := strings.LastIndexByte(short, pair[0]); begin > strings.LastIndexByte(short, pair[1]) {
			short = short[:begin]
		}
	}
	return short + chat.Mark
}

func fields(facts []chat.Fact) []text {
	var all []text
	for _, f := range facts {
		all = append(all, plain(f.Name+"\n"+f.Value, maxField))
	}
	return all
}

// links returns the links that fit, the first ones first.
func links(all []chat.Link) string {
	var b strings.Builder
	for _, l := range all {
		one := "<" + escapeURL(l.URL) + "|" + l.Label + ">"
		if b.Len() > 0 {
			one = " · " + one
		}
		if b.Len()+len(one) <= maxContext {
			b.WriteString(one)
		}
	}
	return b.String()
}

// entities replaces the three characters that Slack reads in all texts.
func entities(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// zeroWidth is a zero-width space: formatting of mrkdwn does not begin or end next to it.
const zeroWidth = "\u200b"

// escape a value for mrkdwn. At the start of a line, Slack reads also the entity of > as a quote.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", zeroWidth+"&gt;",
		"*", "*"+zeroWidth, "_", "_"+zeroWidth, "~", "~"+zeroWidth, "`", "`"+zeroWidth).Replace(s)
}

// escapeURL for a link of mrkdwn.
func escapeURL(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "%3C", ">", "%3E", "|", "%7C", " ", "%20").Replace(s)
}

// accepted is the body of an answer to a message that Slack accepted.
const accepted = "ok"

// codes of Slack, with what they mean for a user. The bodies of answers are these words.
var codes = map[string]string{
	"action_prohibited":                 "an administrator restricts posting to the channel",
	"channel_is_archived":               "the channel is archived: make a webhook of another channel",
	"channel_not_found":                 "the channel was deleted: make a webhook of another channel",
	"invalid_blocks":                    "Slack does not accept the form of the message",
	"invalid_blocks_format":             "Slack does not accept the form of the message",
	"invalid_payload":                   "Slack does not accept the form of the message",
	"invalid_token":                     "the webhook was revoked: make a new one",
	"no_active_hooks":                   "the webhook was disabled: make a new one",
	"no_service":                        "the webhook was removed or disabled: make a new one",
	"no_service_id":                     "the address of the webhook is not complete",
	"no_team":                           "the address of the webhook is wrong",
	"no_text":                           "Slack does not accept the form of the message",
	"posting_to_general_channel_denied": "an administrator restricts posting to the channel",
	"team_disabled":                     "the workspace is disabled",
	"user_not_found":                    "the user of the webhook was deleted: make a new one",
}

func check(host string, status int, body string, err *sink.Error) *sink.Error {
	switch {
	case err == nil && body == accepted:
		return nil
	case err == nil:
		return sink.Errorf(sink.Unavailable, "not-slack", "%s answered %d without ok: the address is not an incoming webhook of Slack", host, status)
	case status == http.StatusNotFound, body == "user_not_found":
		err.Class, err.RetryAfter = sink.Unavailable, 0
	}
	if meaning, known := codes[body]; known {
		err.Err = fmt.Errorf("%w: %s (%s)", err.Err, body, meaning)
	}
	return err
}
