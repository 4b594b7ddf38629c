// Package msteams posts messages about events to Microsoft Teams: backends of type msteams.
//
// Contract: the webhook is that of a workflow ("Post to a channel when a webhook request is
// received"). The body is a message with one Adaptive Card
// (learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using). The
// Office 365 connectors and their MessageCard, which Microsoft retired, are not supported. Names,
// revisions and explanations are text runs of a RichTextBlock, in which Teams reads no Markdown. The
// output of a template is a TextBlock with Markdown; in its values the characters of Markdown have a
// backslash before them. Links are actions of the card. A card has no entities, so it mentions no user.
// Texts are cut, so that a message is smaller than the 28 KB that Teams accepts.
//
// Classes of the answers are those of package wire, except 404, which is unavailable: the workflow
// was deleted or is off. A workflow answers 202 before it posts to the channel: a failure of the
// workflow itself is in its run history, and not known to the hub.
//
// Locking: none.
package msteams
