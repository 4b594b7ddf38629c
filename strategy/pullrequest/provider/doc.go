// Package provider speaks to the Git hosting services that keep pull requests:
// GitHub, GitLab, Gitea, Azure DevOps and Bitbucket Server, behind one small
// interface.
//
// Purpose: find the pull requests of a branch in every state, open one, retitle
// it, merge it guarded by the commit at its head, close it with a comment.
// Nothing else of a service is used.
//
// Contract: no call outlives its context, none panics, none retries by itself.
// Every error is an *Error with a Class, by which the caller decides whether to
// wait, to look again or to stop. A write that ended in an error may have taken
// effect all the same: the caller looks with Find or Get before it writes again.
// What a call returns was answered by the service, not inferred from what was
// asked of it.
//
// How: the vendors' clients only encode and decode. All of them call through one
// http.RoundTripper of this package, which alone holds the credentials and adds
// them to requests for the service's own origin, bounds time and size, refuses
// redirects that lead elsewhere, and judges every answer that is not a success.
// So there is one place where errors are told apart, and no vendor's client ever
// sees a secret, a hanging body or an error format that it cannot read.
//
// Locking: a Provider is safe for concurrent use. It holds no lock; the one thing
// that it remembers, a GitHub App's token, is replaced atomically, and two calls
// that find it expired may both fetch one.
//
// Trade-offs: services that cannot filter by head branch (Gitea) are listed page
// by page, newest first, up to a bound. Bitbucket Server knows no guard by commit:
// its optimistic version stands in for it. Azure DevOps completes a pull request
// in the background, so Merge may return it open still.
package provider
