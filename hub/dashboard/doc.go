// Package dashboard serves the page that says whether the fleet is well, and what
// waits for people.
//
//	GET  /  /clusters/KIND/NAMESPACE/NAME  /pipelines  /pipelines/NAMESPACE/NAME  /promotions
//	GET  /instances  /backends  /about
//	GET  /stream   /changes                    what changes of a page, as it changes
//	GET  /promotions/NAMESPACE/NAME/approve    and POST: lets a promotion go on
//	GET  /signin   POST /signin  /signout
//
// # Contract
//
// It shows the hub's own objects and the machines of the management cluster, on every
// replica, and on the leader what that hears of the clusters; it asks no cluster. What a page shows is package view's to say.
// Every page is whole without script; with it, changes come by one stream.
//
// # Who sees what
//
// One signs in with a bearer token of the management cluster, which a TokenReview
// tells the owner of. What the owner may list (SubjectAccessReview, with groups, UID
// and extra) is shown, counted and streamed, and nothing else. The session is the
// token itself, sealed into cookies: every replica that has the key can read it, none
// keeps it, and the token's end is its end, at the latest a minute later.
//
// An approval is written with the caller's own token, not with the hub's: so the API
// server knows who it is, the admission policy that guards spec.approval holds, its
// audit log has the right name, and the hub needs neither the verb approve nor the
// right to impersonate.
//
// # How many may look
//
// A topic is a page as all viewers of one Scope see it. It is rendered once for all
// of them, entry by entry, and an entry again only when what it says changed. A
// change is sent as the entries that are new and the order of the lists; it is kept
// for a while with its version, so that a viewer that comes back takes up where it
// was, and is told to fetch the page when that is not possible. A viewer that is slow
// has no queue: it reads what was kept when it can.
//
// What was rendered is kept for whichever topic has the same entry, and the pages of
// the navigation are rendered every ten seconds even when nobody looks: so the first
// look at a large fleet is as quick as any.
//
// # Bounds
//
// Connections, requests and streams at a time, streams of one session, topics, the
// size of header and body, the time of each phase of a request and of each write to a
// stream, and tries to sign in per client are bounded. Its API client has a budget of
// its own. Where there is no room for another stream, a browser asks now and then
// instead; and none for another topic, a page is shown that is not live.
//
// # Locking
//
// topic → stock; board, source, rulings, streams and the limiter each alone. All of them
// over memory: the API server is asked with none held.
//
// # Trade-offs
//
// A session that signed out is known to the replica where it did; another replica
// would take its cookie, which the browser has forgotten, until the token ends. A
// stream is not compressed: its changes are small, and fifty compressors are not.
package dashboard
