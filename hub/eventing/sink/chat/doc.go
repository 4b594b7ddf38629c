// Package chat posts messages about events to an incoming webhook of a chat service: what the
// backends of types slack and msteams have in common.
//
// Contract: the Secret's key url is the address of the webhook, an https URL. It is the credential:
// an error names its host and no other part. Each event is one POST of a JSON document, which the
// Service makes of a Message. A Message has the title, the facts and the links of the event, and
// with a template its output in place of title, facts and explanation. Text is cleaned of control
// characters and of the characters that reverse the direction of text. Values in the output of a
// template are escaped by the Service; the literal text of a template is the markup of its author.
// All other text of a Message is plain: the Service puts it where no markup is read, or escapes it.
//
// Links are only http and https URLs: the dashboard's pages and the pull request, whose address
// comes from the Git service.
//
// The classes of answers are those of package wire, unless the Service knows better. A template that
// fails for one event refuses that event.
//
// Chat services have no id of a message: an event whose acknowledgement was lost is posted again.
//
// Locking: none.
package chat
