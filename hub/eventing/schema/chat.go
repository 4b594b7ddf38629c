package schema

import "github.com/capstan-hub/capstan/internal/messagetemplate"

// templateKey is the key of the template of messages.
const templateKey = "template"

// Slack returns the schema of type slack: an incoming webhook of Slack.
func Slack() Schema { return chat("slack", "Slack") }

// MSTeams returns the schema of type msteams: a webhook of a workflow in Microsoft Teams.
func MSTeams() Schema { return chat("msteams", "Microsoft Teams") }

// chat returns the schema of a type whose events are messages for people.
func chat(name, title string) Schema {
	keys := []Key{
		secretKey(true, "`url`, the address of the webhook, which is the credential; and `ca.crt` for a private authority"),
		{
			Name: templateKey, Type: String, Example: "Approve {{.Revision}} for {{.Environment}}",
			Description: "Text of a message as a template; by default the title of the event, its facts and its explanation. Links follow in both cases.",
		},
		{
			Name: "proxyUrl", Type: URL, Example: "http://proxy.example.com:3128",
			Description: "Proxy for all requests to the webhook.",
			Constraints: []Constraint{Schemes("https", "http")},
		},
	}
	s := Schema{Type: name, Title: title, Keys: append(keys, publishing()...), Rules: []Rule{backoffGrows, templateRuns}}
	return s.With(
		Key{
			Name: "eventTypes", Type: List,
			Default:     `["promotion.waiting.v1","promotion.stalled.v1","promotion.failed.v1","promotion.rejected.v1","promotion.rolledback.v1","promotion.overridden.v1"]`,
			Example:     `["promotion.waiting.v1", "promotion.succeeded.v1", "cluster.unreachable.v1"]`,
			Description: "Which events are sent: patterns of the type without its prefix, where * matches any text. The default has what waits for an approval, and the warnings and errors of promotions.",
			Constraints: eventTypes(),
		},
		Key{
			Name: "maxInFlightMessages", Type: Int, Default: "1",
			Description: "How many events may be sent and not yet acknowledged. Chat services accept about one message per second.",
			Constraints: []Constraint{Between(1, 4000)},
		},
	)
}

// templateRuns: the template can be parsed, and executed on sample events.
func templateRuns(c Config) (key, text string) {
	if !c.IsSet(templateKey) {
		return "", ""
	}
	if _, err := messagetemplate.Parse(c.String(templateKey)); err != nil {
		return templateKey, cut(err.Error())
	}
	return "", ""
}
