// Package commitstatus shows promotions at the commit that they promote: backends of type commitstatus.
//
// Contract: an event of a promotion whose revision has a Git commit (internal/revision), and whose
// Pipeline the key pipelines selects, sets the state of the check
// capstan/<namespace>/<pipeline>/<environment> of that commit at the Git service. A check is a name
// at a commit, so a later event of the promotion changes it. The link of the check is the Pipeline's
// page in the dashboard, or else the pull request, or else the repository. Events that change no
// state, of other Pipelines, and of revisions without a commit, are acknowledged without a call.
//
//	succeeded             success
//	failed, rejected      failure
//	superseded            canceled
//	overridden            no change
//	all others            pending
//
// The service is called by package strategy/pullrequest/provider, with its address policy, the
// administrator's proxy for Git and its classes of errors. A commit that the repository does not have is
// refused; Gitea answers 500, so it is retried until retryMaxAttempts. Errors contain no credential.
//
// Azure DevOps is not supported: it shows states of commits nowhere that a user reads.
//
// Trade-offs: the repository is a key and not derived from the event, because a Pipeline does not say from
// which repository its applications come, and the token belongs to one repository.
//
// Locking: none.
package commitstatus
