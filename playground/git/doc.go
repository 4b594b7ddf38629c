// Package git runs a real Gitea, the Git provider of the playground and of tests:
// repositories over HTTPS, pull requests, users and tokens.
//
// Contract: Start returns when Gitea answers and its administrator exists; Stop ends
// its process and removes everything that it wrote. Each server has a directory, a
// port of loopback and a certificate authority of its own, so that several run side
// by side. A Repository is changed as people change one: commits are pushed over
// HTTPS, pull requests are merged and closed through Gitea's API. Every method may
// be called by several goroutines at a time.
//
// The binary is that of `make gitea` (bin/gitea and the files beside it). Gitea
// itself runs the machine's git.
//
// Trade-offs: there is no compiled frontend, so that its web pages show without
// style; the API is whole. A clone is kept in memory while a commit is made, which is
// for repositories of thousands of manifests, not of a hundred megabytes.
package git
