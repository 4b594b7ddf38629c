// Package provider calls the Git hosting services that keep pull requests: GitHub,
// GitLab, Gitea, Azure DevOps and Bitbucket Server. It has one small interface for all.
//
// Purpose: find the pull requests of a branch in every state, open one, change its title,
// merge it guarded by its head commit, close it with a comment. It uses nothing else of a
// service.
//
// Contract: no call outlives its context, panics, or retries by itself. Every error is an
// *Error with a Class, by which the caller decides whether to wait, to read again or to
// stop. A write that returned an error may have taken effect: the caller reads with Find or
// Get before it writes again. Every call returns the service's response, never a value
// derived from the request.
//
// How: the vendors' clients only encode and decode. All of them call through one
// http.RoundTripper of this package. Only it has the credentials: it adds them to requests
// for the service's own origin, bounds time and size, refuses redirects to other origins,
// and classifies every response that is not a success. So errors are classified in one
// place. No vendor's client gets a secret, a body that hangs or an unknown error format.
//
// Locking: a Provider is safe for concurrent use and has no lock. Its only state, the token
// of a GitHub App, is replaced atomically; two calls that find it expired may both fetch
// a new one.
//
// Trade-offs: services that cannot filter by head branch (Gitea) are listed page by page,
// newest first, up to a bound. Bitbucket Server has no guard by commit: its optimistic
// version is used in its place. Azure DevOps completes a pull request in the background,
// so Merge may return it as still open.
package provider
