// Package flux posts the events of promotions to Flux's notification-controller: backends of type
// flux. The Alerts and Providers of Flux then notify users.
//
// Contract: an event becomes a Flux event (github.com/fluxcd/pkg/apis/event). The involved object
// is the Pipeline, in its own namespace, so an Alert selects it with an eventSource of kind
// Pipeline. Flux's CustomResourceDefinition of Alerts must permit that kind: see
// config/flux-notifications and docs/decisions/0044. Flux has the severities info and error only;
// warning becomes error, so that an Alert with `eventSeverity: error` gets it.
//
// The metadata have the prefix of the Pipeline's API group, without which notification-controller
// drops them. Its token is the id of the event: notification-controller drops an event whose
// object, message, revision and token it received within the last five minutes, and two
// promotions of one revision have different ids. It answers such a repetition with 429 and the
// header X-RateLimit-Limit. That is an acknowledgement here: it had accepted the event before. A
// 429 without that header is not from it, and the event is sent again.
//
// An event of any other object is refused: it has no Pipeline. The other answers have the classes
// of package webhook. Errors name the host and no other part of the URL.
//
// Trade-offs: notification-controller acknowledges an event before its Providers have accepted it,
// and does not repeat a notification that failed after its own retries. What a chat service or
// webhook behind it receives is at most once; type slack, msteams and http are at least once.
//
// Locking: none.
package flux
