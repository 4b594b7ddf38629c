// Package git runs a real Gitea, the Git provider of the playground and of tests:
// repositories over HTTPS, pull requests, users and tokens.
//
// Contract: Start returns when Gitea responds and its administrator exists. Stop ends the
// process and removes all its files. Each server has its own directory, loopback port and
// certificate authority, so that several can run at once. A Repository is changed as people
// change one: commits are pushed over HTTPS, pull requests are merged and closed through
// Gitea's API. Every method is safe for concurrent use.
//
// The binary is that of `make gitea` (bin/gitea and the files next to it). Gitea runs the
// machine's git.
//
// Trade-offs: there is no compiled frontend, so its web pages have no style; the API is
// complete. A clone is in memory while a commit is made, which suits repositories of
// thousands of manifests, not of a hundred megabytes.
package git
