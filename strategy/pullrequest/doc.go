// Package pullrequest carries a promotion out by a pull request: the marked scalars
// of a Git repository's manifests are set to the revision on a branch of the
// environment's own, and a pull request asks people to merge it.
//
// Contract: exactly one pull request for each identity of a promotion, however often
// and by how many processes Promote is called and wherever it is killed. What makes
// it so:
//
//   - Whose a pull request is stands in its body: Promotion-ID and -Number and the
//     Pipeline's UID. Promote looks for it in every state before it makes one.
//   - The commit is a function of the promotion and of the base commit: a repetition
//     makes the same one, and pushing it again changes nothing.
//   - The branch has one name for each environment, and a service has one open pull
//     request for a branch and a base: a second create is refused, and what is
//     there is adopted.
//   - The push carries the commit that it replaces; whoever was faster wins.
//
// Nothing is touched that bears a higher number of the same Pipeline. Commits that
// are not the hub's are never overwritten, unless a merged pull request has carried
// them into the base; those of weave are the hub's, and what lies below them is looked
// through, so far at most (maxBelow).
//
// A promotion that is withdrawn by one hub and followed by the next number's at another
// may meet it at their one pull request. Whose it is is asked again right before it is
// closed, and on GitHub, GitLab and Gitea the close writes back the body that was seen,
// on Bitbucket Server it is of the version that was seen: a claim that came between the
// two requests goes, or the close is refused, and the next promotion opens another.
// What is left: on Azure DevOps such a claim, of the time between two requests, ends in
// a pull request closed under its promotion, which counts as rejected (spec.retry
// begins it again); and so does, on any of them, a hub killed between adopting a pull
// request that was closed at that moment and giving it back.
//
// A branch is rebuilt from the base only when it has to be: the base has changed one
// of the files it edits, or was replaced by another history. To push for each commit
// on the base would throw away reviews and run every check again.
//
// Errors that no repetition heals have a reason of reasons.go; of those that other
// credentials may heal, the version of the Secret is told.
//
// A server that does not answer delays nobody else for long: once three acts in
// sequence have waited for it in vain, those that follow fail at once, to be tried
// again, and one at a time finds out whether it answers. Until it has been found out,
// acts at it hold workers for one request's time (30 s), and places for clones, but
// never all of these.
//
// Locking: a Strategy is safe for concurrent use. One act at a time is under way on
// a branch of a repository in this process; others wait for it, or for their
// context. Small maps (connections, pace, breaker, looks) have a mutex each, under
// which nothing is called.
//
// Trade-offs: pull requests are polled, at a pace that slows with their age and is
// bounded for each service and Secret. The branch of a withdrawn or merged pull
// request stays; deleting branches is the service's own setting.
package pullrequest
