// Package slack posts messages about events to an incoming webhook of Slack: backends of type slack.
// Services with the same interface, such as Mattermost, accept the text of the messages.
//
// Contract: a message is Block Kit (docs.slack.dev/messaging/sending-messages-using-incoming-webhooks and
// docs.slack.dev/reference/block-kit): `text` for notifications, a section with the title, a section
// with the facts, a section with the explanation and a context with the links. Names, revisions and
// explanations are in objects of type plain_text, in which Slack reads no formatting, with &, < and
// > as entities, so that they are no mention and no link. The output of a template is mrkdwn with
// verbatim, in which Slack links no bare addresses and names; in its values the characters of formatting are
// followed by a zero-width space, because mrkdwn has no escape for them. Texts are cut to Slack's
// limits.
//
// Classes of the answers, on top of those of package wire:
//
//	200 and the body ok                 published
//	2xx and another body                unavailable: the address is not a webhook of Slack
//	400 invalid_payload and the like    refused
//	404 (no_service and the like)       unavailable: the webhook was removed
//	410 (channel_is_archived)           gone
//
// An error contains a code of Slack only if it is one of a fixed list, and nothing else of an answer.
//
// Locking: none.
package slack
