// Package message reads what AWS puts into a queue: it makes facts of a message's body.
//
// Purpose: the one place that knows the shapes of AWS' events. EventBridge events,
// notifications that an Auto Scaling group sends to a queue directly, and both of them
// wrapped by SNS become the same Facts: which instance or group, which label word,
// when, and how grave.
//
// Contract: Decode is a pure function of the body and of the time at which SQS got it,
// so that a message delivered twice says the same twice. A body is one of three
// things: facts to apply, something to ignore, or malformed (ErrMalformed), and only
// the last may be dead-lettered. Nothing is read from the ARNs of instances, which come
// in several shapes; that of a group is taken whole, as a key. Label words are valid
// label values; AWS' free text is cut, and goes into Details only.
//
// What the events look like, and what each label word means, stands in
// docs/instance-state.md.
//
// Trade-offs: an event that AWS invents tomorrow is ignored, not guessed at; but a spot
// notice with a new action is still a spot notice.
package message
