// Package fleet is a whole fleet on one machine: a management cluster and three
// workload clusters (real kube-apiserver and etcd), the hub, two teams' Pipelines,
// and a story that is played on them and checked.
//
// Contract: Run brings the fleet up, calls back, and takes everything down again
// in the opposite order, whatever happened. Nothing stays: no process, no
// goroutine, no temporary file. The context of the callback ends, with the cause,
// when a part of the fleet breaks.
//
// What is real: the API servers, Gitea, the hub with its defaults but for the times
// after which it notices an outage (planes.go) and with the rights of config/rbac,
// the credentials, the admission policy, the network between
// hub and workload clusters (a proxy each, which can be cut). What is played: Flux's
// controllers (playground/flux), and the teams. The team of shop has a CI, which
// receives the hub's Flux events and does what each Promote event asks for: it sets
// the chart version of the HelmRelease in the environment's cluster. The team of
// billing has its manifests in a repository, and merges the hub's pull requests. EC2
// and SQS are playground/aws, and what EventBridge would send there, the story sends:
// while the fleet is up, the process' environment leads the SDK there and to no
// account, and names nobody's profile.
// The bus that the hub's events go to is a real NATS JetStream, in the process.
//
// Locking: the receiver of events guards what it has received; everything else is
// written before the goroutines that read it start.
package fleet
