// Package gitrepo reads and changes a Git repository through a shallow, bare clone
// that lives on disk for as long as one act takes.
//
// Purpose: what a pull request needs of Git, and nothing else: the branches there
// are, the manifests at a commit, a commit with a few files changed, and a push that
// replaces exactly the commit that was seen.
//
// Contract: Workspace.Clone hands a Clone to a function and removes it when the
// function ends, also by a panic; what a killed process left behind is removed by
// the next Workspace on the same directory. Everything ends with its context. At
// most so many clones exist at once as the Workspace was told; the others wait, in the
// order in which they came, and where there are several servers none has all the
// places. No answer of a server, and no repository, makes it use more disk than twice
// Limits' MaxPack, nor more memory than a few times their MaxObject: go-git inflates
// each object of a pack whole to index it, so a pack is received onto the disk and
// refused as TooLarge by the lengths that its objects state, before go-git sees it.
// Every error is an *Error with a Class; none holds a credential.
//
// A push carries the old value of the branch in its own command, so the server
// itself refuses it if the branch is another by then. That is the lease; nothing is
// compared on this side.
//
// How: go-git's HTTP transport, object storage and pack encoder, without its
// Remote, Repository and Worktree: Remote can be given neither an http.Client (and
// so no guard of addresses, no bound) nor an expected old value for a branch that
// was not fetched, and a Worktree holds the repository in memory. There is no
// checkout: files are read as blobs, and a change writes the blobs, the trees above
// them and the commit.
//
// Locking: a Workspace is safe for concurrent use; a Clone belongs to the function
// that it was given to.
//
// Trade-offs: nothing is kept between acts: a cache of repositories would have to be
// bounded, locked and trusted, and a shallow clone of a thousand manifests takes a
// tenth of a second.
package gitrepo
