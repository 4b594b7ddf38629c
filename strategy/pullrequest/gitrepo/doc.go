// Package gitrepo reads and changes a Git repository through a shallow, bare clone on
// disk, which exists for the time of one act.
//
// Purpose: the operations of Git that a pull request needs: list the branches, read the
// manifests at a commit, make a commit with a few changed files, and push it so that it
// replaces exactly the commit that was read.
//
// Contract: Workspace.Clone passes a Clone to a function and removes it when the function
// ends, also by a panic. The next Workspace on the same directory removes what a killed
// process left. Every operation ends with its context. The number of clones at once is
// bounded; the other callers wait in order. With several servers, no server has all slots.
// No tenant ever has more than half.
//
// A request ends when its server sends nothing for Remote.Silence. A transfer that continues
// ends with the context only.
//
// Disk and memory are bounded whatever a server or repository contains: disk to twice
// Limits' MaxPack, memory to a few times their MaxObject. go-git inflates each object of a
// pack completely to index it. So a pack is received onto the disk, and refused as TooLarge
// by the lengths that its objects state, before go-git reads it.
//
// Every error is an *Error with a Class; no error contains a credential.
//
// A push names the old value of the branch in its command, so the server refuses it if the
// branch has changed. That is the lease; this package compares nothing itself.
//
// How: go-git's HTTP transport, object storage and pack encoder, without its Remote,
// Repository and Worktree. Remote accepts neither an http.Client (so no address guard and
// no bound) nor an expected old value for a branch that was not fetched. A Worktree holds
// the repository in memory. There is no checkout: files are read as blobs, and a change
// writes the blobs, their trees and the commit.
//
// Servers: any that speaks Git's smart HTTP protocol in its first version, with shallow clones.
// The package requests multi_ack, which Azure DevOps demands, and changes a variable of go-git
// for this, once. The history of a commit is fetched without files where the server allows
// filters.
//
// Locking: a Workspace is safe for concurrent use. A Clone belongs to the function to
// which it was passed.
//
// Trade-offs: nothing is kept between acts. A cache of repositories would have to be
// bounded, locked and trusted, and a shallow clone of a thousand manifests takes a
// tenth of a second.
package gitrepo
