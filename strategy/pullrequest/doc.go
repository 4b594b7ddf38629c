// Package pullrequest carries out a promotion by a pull request. It sets the marked
// scalars of a Git repository's manifests to the revision, on a branch of the
// environment's own, and opens a pull request that people review and merge.
//
// Contract: there is exactly one pull request for each identity of a promotion. This
// holds for any number of calls of Promote, in any number of processes, killed anywhere:
//
//   - The body of a pull request names its owner: Promotion-ID, Promotion-Number and the
//     Pipeline's UID. Promote searches for it in every state before it opens one.
//   - The commit is a function of the promotion and of the base commit. A repetition
//     makes the same commit, and pushing it again changes nothing.
//   - The branch has one name for each environment, and a service allows one open pull
//     request for a branch and a base. The service refuses a second create, and the
//     existing one is adopted.
//   - The push names the commit that it replaces. If two processes push, the first
//     succeeds and the server refuses the other.
//
// The strategy changes nothing that has a higher number of the same Pipeline. It never
// overwrites commits that are not the hub's, unless a merged pull request has carried
// them into the base. Commits of weave count as the hub's; at most maxBelow commits below
// them are searched for commits of people.
//
// One hub may withdraw a promotion while another hub already carries out the next number.
// Both then act on the same pull request. Its owner is checked again immediately before
// the close. On GitHub, GitLab and Gitea the close writes back the body that was read; on
// Bitbucket Server it names the version that was read. A claim that was written between
// the two requests is overwritten, or the close is refused, and the next promotion opens
// another pull request. Two cases remain, both of the time between two requests:
//
//   - On Azure DevOps, the next promotion's pull request can be closed. It counts as
//     rejected, and spec.retry begins the promotion again.
//   - On every service, the same happens if a hub adopts a pull request that is closed at
//     that moment, and is killed before it returns it to its earlier owner.
//
// A branch is rebuilt from the base only when necessary: when the base has changed one of
// the edited files, or has another history, or when the service refuses to merge it because
// it does not have the head of the base. A push for each commit on the base would discard
// reviews and run every check again. A commit of a service that only merges the base into
// the branch counts as the hub's.
//
// Package failures has the table of errors: how they are retried, when they end the
// promotion, and with which reason. If other credentials may fix one, the error names the
// version of the Secret.
//
// The pull request of a promotion that succeeded is closed only if the base branch has the
// revision. Otherwise it stays open, with a note: people changed the environment, and Flux
// would return it to the revision in Git.
//
// Credentials are sent to the host of the repository's URL and to that of its API, and only
// if the annotation of the Secret allows both (hosts.go).
//
// A revision with a digest, which Flux reports of a source, is not written as a whole (usable): the marker says which
// part is. A commit that differs from the one in Git only in what promotions wrote brings nothing new (unchanged), and
// is not promoted: the result is Unchanged. To find that out, the server must send commits by their hash; a server that
// does not is treated as one that does not have the commit.
//
// A server that does not respond does not block the others. After three acts in sequence
// have timed out, the next acts at that server fail at once and are retried later; one
// act at a time tests whether it responds. Until then, acts at it occupy workers for the
// time of one request (30 s), and slots for clones, but never all slots. Git and the API of a
// server are counted apart. Only silence counts: a transfer that continues may last until the
// deadline of the act, which is an option (Options.Deadline). The claim of an act has the
// same deadline.
//
// A tenant is a namespace. Its acts have at most half of the slots for clones, and the hub
// gives them a part of its workers.
//
// Locking: a Strategy is safe for concurrent use. One act at a time runs on a branch of a
// repository in this process; others wait for it, or for their context. Each small map
// (connections, pace, breaker, comparisons) has its own mutex; nothing is called under it.
//
// Trade-offs: pull requests are polled. The interval grows with their age, and the rate is
// bounded for each service and Secret. The branch of a finished promotion is deleted by a
// push that names its commit, which costs a clone without files of the base. Merge queues
// and the auto-merge of services are not used (docs/decisions/0024).
package pullrequest
