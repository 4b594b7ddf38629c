// Package useraction has the actions that users do to Promotions and Pipelines: approve,
// reject, retry, override, suspend, resume, promote and roll back.
//
// # Purpose
//
// The dashboard and the command line do the same actions. This package has the rules once:
// when an action is refused, which right it needs, what it writes, and what is recorded.
//
// # Contract
//
// Refuse, Check, Revisions and ResolveRollback are pure functions of the objects. Do writes
// with a client that has the credentials of the user, so the API server and the admission
// policies judge the user's rights. It writes over the version of the object that was
// judged: a change of another user in between is judged first.
//
// # Locking
//
// None.
//
// # Trade-offs
//
// A PromotionRequest of a user has a name that follows from the environment and its newest
// promotion. Two users cannot request different revisions at once, from whichever client;
// the second one sees the request of the first one.
package useraction
