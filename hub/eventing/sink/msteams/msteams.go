package msteams

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/chat"
)

const (
	// cardType and cardVersion: Teams shows cards of version 1.5 and older; 1.2 has
	// RichTextBlock.
	cardType    = "application/vnd.microsoft.card.adaptive"
	cardSchema  = "http://adaptivecards.io/schemas/adaptive-card.json"
	cardVersion = "1.4"
	// Limits in characters, which have at most four bytes in JSON. Teams accepts 28 KB in all.
	maxTitle = 500
	maxFact  = 300
	maxText  = 2000
	maxURL   = 1500
)

// document is the body of a request.
type document struct {
	Type        string       `json:"type"`
	Attachments []attachment `json:"attachments"`
}

type attachment struct {
	ContentType string `json:"contentType"`
	Content     card   `json:"content"`
}

type card struct {
	Schema  string    `json:"$schema"`
	Type    string    `json:"type"`
	Version string    `json:"version"`
	Body    []element `json:"body"`
	Actions []action  `json:"actions,omitempty"`
	Teams   layout    `json:"msteams"`
}

type layout struct {
	Width string `json:"width"`
}

// element is a TextBlock (Text, Wrap) or a RichTextBlock (Inlines).
type element struct {
	Type    string `json:"type"`
	Text    string `json:"text,omitempty"`
	Wrap    bool   `json:"wrap,omitempty"`
	Inlines []run  `json:"inlines,omitempty"`
	Spacing string `json:"spacing,omitempty"`
}

// run is a TextRun, whose text is literal.
type run struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Weight string `json:"weight,omitempty"`
	Size   string `json:"size,omitempty"`
	Color  string `json:"color,omitempty"`
}

type action struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

// Service returns the rules of Microsoft Teams.
func Service() chat.Service {
	return chat.Service{Escape: escape, EscapeURL: escapeURL, Body: body, Check: check}
}

// rich returns a RichTextBlock.
func rich(spacing string, runs ...run) element {
	return element{Type: "RichTextBlock", Inlines: runs, Spacing: spacing}
}

func literal(s string, limit int) run {
	return run{Type: "TextRun", Text: chat.Fit(s, limit, func(s string) string { return s })}
}

func body(m chat.Message) any {
	c := card{Schema: cardSchema, Type: "AdaptiveCard", Version: cardVersion, Teams: layout{Width: "Full"}}
	if m.Markup != "" {
		c.Body = append(c.Body, element{Type: "TextBlock", Text: chat.Fit(m.Markup, maxText, func(s string) string { return s }), Wrap: true})
	} else {
		title := literal(m.Title, maxTitle)
		title.Weight, title.Size, title.Color = "Bolder", "Medium", colour(m.Severity)
		c.Body = append(c.Body, rich("", title))
		for i, f := range m.Facts {
			name, spacing := literal(f.Name+": ", maxFact), "None"
			name.Weight = "Bolder"
			if i == 0 {
				spacing = ""
			}
			c.Body = append(c.Body, rich(spacing, name, literal(f.Value, maxFact)))
		}
		if m.Text != "" {
			c.Body = append(c.Body, rich("", literal(m.Text, maxText)))
		}
	}
	for _, l := range m.Links {
		if url := escapeURL(l.URL); utf8.RuneCountInString(url) <= maxURL {
			c.Actions = append(c.Actions, action{Type: "Action.OpenUrl", Title: l.Label, URL: url})
		}
	}
	return document{Type: "message", Attachments: []attachment{{ContentType: cardType, Content: c}}}
}

// colour of a title; empty for the default.
func colour(s event.Severity) string {
	switch s {
	case event.Error:
		return "Attention"
	case event.Warning:
		return "Warning"
	case event.Info:
	}
	return ""
}

// special are the characters of Markdown that make links, emphasis, code, headings, HTML and tables.
const special = "\\`*_[]()<>~|#!&"

// escape a value for the Markdown of a TextBlock.
func escape(s string) string {
	var b strings.Builder
	start := true // Only blanks since the last newline.
	for _, r := range s {
		if strings.ContainsRune(special, r) || start && strings.ContainsRune("-+=", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		start = r == '\n' || start && r == ' '
	}
	return b.String()
}

// escapeURL for a link of Markdown.
func escapeURL(s string) string {
	return strings.NewReplacer("(", "%28", ")", "%29", "[", "%5B", "]", "%5D", "<", "%3C", ">", "%3E", " ", "%20", `\`, "%5C", "`", "%60", `"`, "%22").Replace(s)
}

func check(_ string, status int, _ string, err *sink.Error) *sink.Error {
	if err != nil && status == http.StatusNotFound {
		err.Class, err.RetryAfter = sink.Unavailable, 0
		err.Err = fmt.Errorf("%w: the workflow was deleted or is off, or the address is wrong", err.Err)
	}
	return err
}
