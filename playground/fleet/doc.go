// Package fleet is a whole fleet on one machine: a management cluster and three workload
// clusters (real kube-apiserver and etcd), the hub, the Pipelines of two teams, and a story
// whose steps are checked.
//
// Purpose: a newcomer sees the product work, and test/install checks the hub's rights by the
// same story.
//
// Contract: Run starts the fleet, calls back, and stops everything in the opposite order, also
// after an error. No process, goroutine or temporary file stays. The context of the callback
// ends, with the cause, when a part of the fleet breaks.
//
// Each chapter of the story is a small type with the handles that it needs, such as the
// Pipelines' status or the way to one cluster. The first chapters need no Gitea: when it is not
// built yet, Options.ProvideGitea builds it meanwhile. The team of billing starts with it.
//
// Real: the API servers, Gitea, NATS JetStream, the hub with the rights of config/rbac and with
// its defaults, except for the times after which it detects an outage (planes.go), the
// credentials, the admission policy, and the network between the hub and the workload clusters
// (a proxy each, which the story can cut).
//
// Simulated: twelve more clusters, for the chapter about waves (playground/simulated), Flux's controllers (playground/flux), EC2 and SQS (playground/aws) and the teams.
// The team of shop has a CI, which receives the hub's Flux events and sets the chart version of
// the HelmRelease for each Promote event. The team of billing has its manifests in a
// repository, and merges the hub's pull requests. The story sends what EventBridge sends on AWS.
// While the fleet is up, the environment of the process leads the AWS SDK to the simulation,
// and to no account.
//
// Locking: the receiver of events guards its notifications. All else is written before the
// goroutines that read it start, or by the goroutine that plays the story.
//
// Trade-offs: the two teams differ, so that one story shows both ways of promotion.
package fleet
