// Package webhook posts events to an HTTP receiver: backends of type http.
//
// Contract: an event is posted as CloudEvents 1.0, structured (one JSON body) or binary
// (attributes as ce- headers). Any 2xx is an acknowledgement. Each attempt has the same ce
// id; a receiver must act once on each id. Redirects are not followed, because they would
// send events and signatures to another server.
//
// With hmac-key in the Secret each call is signed like the calls to the hub (hub/approval,
// version 2): X-Signature: v2=<hex HMAC-SHA256> over the lines method, escaped path,
// X-Signature-Timestamp and hex SHA-256 of the body. In binary mode the attributes are
// headers, which are not signed: put data that must be authentic into the body.
//
// With `signature: standard` each call has the headers of Standard Webhooks instead (specification at
// standardwebhooks.com; the code that signs is that of its authors). webhook-id is the id of the
// event, the same for each attempt; webhook-timestamp is the time of the attempt. With
// hmac-key-previous in the Secret there are two signatures, so that receivers can change the key one
// after the other. As there, method and path are not signed.
//
// Classes of the answers:
//
//	2xx               published
//	408 425 429 5xx   transient; Retry-After is respected (seconds or a date)
//	404 409           transient: a receiver that is being rolled out
//	401 403           unavailable: the credentials
//	410               gone: the receiver accepts no more events
//	413               too large
//	3xx, other 4xx    refused
//
// With abuseProtection the sink requests permission first (OPTIONS with
// WebHook-Request-Origin), and the receiver must give it (WebHook-Allowed-Origin). Ping
// does the same. Without abuseProtection, Ping only makes a connection, because a receiver
// must only answer a POST.
//
// An error names the host and the status, and nothing that was sent or received. Paths and
// queries of webhooks are often secrets, and a receiver may return what it got.
//
// Locking: none; the permission of the receiver is one atomic flag.
package webhook
