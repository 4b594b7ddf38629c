// Package dashboard serves web pages with the state of the fleet and with the
// promotions that wait for a person.
//
//	GET  /  /clusters  /clusters/KIND/NAMESPACE/NAME  /management  /pipelines  /pipelines/NAMESPACE/NAME  /promotions
//	GET  /delivery  /instances  /backends  /search  /about
//	GET  /stream   /changes                    the changes of a page, as they happen
//	GET  /promotions/NAMESPACE/NAME/ACTION     and POST: approve, reject, retry, override/GATE
//	GET  /pipelines/NAMESPACE/NAME/ACTION      and POST: suspend, resume, promote/ENVIRONMENT, rollback/ENVIRONMENT
//	GET  /signin   POST /signin  /signout
//	GET  /api/v1/  /api/v1/delivery            JSON, for sessions and for tokens in the header Authorization
//	GET  /signin/oidc  /signin/oidc/callback   sign-in at an OpenID Connect provider
//
// # Contract
//
// Every replica shows the hub's own objects and the machines of the management cluster.
// The leader also shows the connection states that it observes. The dashboard calls no
// workload cluster. Package view defines the content of the pages. Every page is complete
// without JavaScript; with JavaScript, one stream delivers the changes.
//
// # Access
//
// A user signs in with a bearer token of the management cluster. A TokenReview returns
// the user of the token. The pages, counts and streams contain only what this user may
// list, by SubjectAccessReviews with groups, UID and extra. The session is the token,
// encrypted in cookies: every replica that has the key can read it, and no replica stores
// it. When the token becomes invalid, the session ends at most one minute later.
//
// An action is written with the user's own token, not with the hub's. So the API server
// authenticates the user, the admission policies apply, the audit log has the right name,
// and the hub needs neither the verbs of the actions nor the verb impersonate. Each write
// names the version of the object that was judged; after a conflict the object is read and
// judged again. The form with the token of the session is made by the layout, because the
// blocks of a page are shared by sessions: its fields name it by their attribute form.
//
// A user can also sign in at an OpenID Connect provider (package openid). The ID token is then
// that bearer token: the API server must accept its issuer. The session also has the refresh
// token. A request renews the ID token before it expires; each replica renews a session once for
// all of its requests, and remembers the result for requests with the former cookies. A stream
// sends "renew": the browser reconnects, and that answer sets the renewed cookies.
//
// # Many viewers
//
// A topic is a page for all viewers with the same Scope. The topic renders each entry
// once for all of them, and again only when its data changed. A change contains the new
// and changed entries and the order of the lists. The topic keeps the latest changes with
// their versions: a viewer that reconnects continues from its version, or is requested to
// fetch the page when that version is not kept any more. A slow viewer has no queue: it
// reads the kept changes when it can.
//
// Rendered entries are shared by all topics that have the same entry. Half a minute after the
// last viewer left, nothing rendered is kept: the next first request renders its page anew.
//
// # Bounds
//
// These are bounded: concurrent connections, requests and streams; streams of one session
// and of one user; topics; sizes of header and body; the time of each phase of a request
// and of each write to a stream; sign-in attempts of each client. The API client has its
// own rate limit. When there is no slot for another stream, the browser polls. When there
// is no slot for another topic, the page is shown without live changes.
//
// # Locking
//
// topic → stock; board, source, rulings, streams and the limiter each alone. All locks
// guard memory only: no lock is held during a call of the API server.
//
// # Trade-offs
//
// Replicas do not share renewals: when two of them renew a session at once, a provider with refresh
// tokens for one use refuses one of them. That one keeps the valid ID token until it expires.
//
// Only the replica that handled a sign-out knows that the session ended. Another replica
// would accept the cookie, which the browser has deleted, until the token ends. Streams
// are not compressed: the changes are small, and fifty compressors use much memory.
package dashboard
