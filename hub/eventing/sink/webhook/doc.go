// Package webhook posts events to an HTTP receiver: backends of type http.
//
// Contract: an event is posted as CloudEvents 1.0, structured (one JSON body) or binary
// (attributes as ce- headers). Any 2xx is the receiver's yes. Each attempt has the same
// ce id; a receiver acts once on each. No redirect is followed: it would take events and
// signatures to somewhere else.
//
// With hmac-key in the Secret each call is signed as calls to the hub are
// (hub/approval, version 2): X-Signature: v2=<hex HMAC-SHA256> over the lines method,
// escaped path, X-Signature-Timestamp and hex SHA-256 of the body. In binary mode the
// attributes are headers, and are not signed: what must be sure is in the body.
//
// What an answer means:
//
//	2xx               published
//	408 425 429 5xx   transient; Retry-After is kept to (seconds or a date)
//	404 409           transient: a receiver that is being rolled out
//	401 403           unavailable: the credentials
//	410               gone: the receiver wants nothing any more
//	413               too large
//	3xx, other 4xx    refused
//
// With abuseProtection the receiver is asked first (OPTIONS with WebHook-Request-Origin)
// and must allow it (WebHook-Allowed-Origin). Ping asks it so, too; without, Ping only
// makes a connection, because a receiver need not answer anything but a POST.
//
// An error names the host and the status, and nothing that was sent or answered: paths
// and queries of webhooks are often secrets, and a receiver may echo what it got.
//
// Locking: none; the permission that a receiver gave is one atomic flag.
package webhook
