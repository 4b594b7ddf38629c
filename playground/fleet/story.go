package fleet

import (
	"context"
	"time"
)

// Deadlines of steps. A step of the hub alone takes a second or two. The network steps wait
// for probes, whose times are the hub's own.
const (
	aMoment = time.Minute
	aWhile  = 3 * time.Minute
)

// Play plays the story and prints its summary. The error is that of the step that failed.
func (f *Fleet) Play(ctx context.Context) error {
	outcomes := playAll(ctx, f.out, f.story())
	showCommand(ctx, f.out, f.files, "get", "clusterconnections,pipelines", "-A")
	summary(f.out, outcomes)
	if err := ledger(ctx, f.out, f.promotions()); err != nil {
		say(f.out, "  the Promotions could not be listed: %v", err)
	}
	return verdict(outcomes)
}

func (f *Fleet) promotions() promotions {
	return promotions{reader: f.management, acts: acts{team: f.team, billing: f.billing}}
}

// story is played in order. Each chapter gets what it needs of the fleet, and no more.
func (f *Fleet) story() []step {
	var (
		pipelines   = pipelines{f.management}
		connections = connections{f.management}
		promotions  = f.promotions()
		shopTeam    = developers{app: shop, release: f.workloads[dev].release(shop).Declare}
	)
	return []step{
		{
			name:    "the fleet is up",
			does:    "nothing: " + firstRevision + " of shop runs everywhere, and the hub has just started",
			expects: "every cluster is connected, shop is Ready and shows its targets, nothing is promoted",
			within:  aMoment, play: upChapter{pipelines, promotions, connections}.play,
		}, {
			name:    "a new revision is promoted",
			does:    "1.1.0 of shop is released in dev",
			expects: "one Promotion each to staging and prod, by notifications",
			within:  aMoment, play: promotionChapter{pipelines, promotions, shopTeam}.play,
		}, {
			name:    "prod of billing waits for an approval",
			does:    "1.1.0 of billing is released in dev; mallory, and then alice, approve it with kubectl's means",
			expects: "a pull request to staging; mallory and a false name are refused; after alice, a pull request to prod",
			needs:   f.billing.start,
			within:  aWhile, play: approvalChapter{pipelines, promotions, f.billing, f.management, f.files}.play,
		}, {
			name:    "the prod cluster is unreachable, and recovers",
			does:    "the network to prod is cut, 1.2.0 of shop is released in dev, the network is repaired",
			expects: "prod keeps its last known revision, marked stale; staging gets 1.2.0 meanwhile; prod gets it once, afterwards",
			within:  aWhile, play: outageChapter{pipelines, promotions, connections, shopTeam, f.workloads[prod].proxy, f.bus}.play,
		}, {
			name:    "every token is rotated",
			does:    "new tokens are written to the kubeconfig Secrets, the old ones are revoked, 1.3.0 is released in dev",
			expects: "the hub uses the new tokens without a new connection or a relist, and 1.3.0 is promoted",
			within:  aMoment, play: rotationChapter{pipelines, promotions, connections, shopTeam, f.billing, f.management, f.workloads}.play,
		}, {
			name:    "gates: a soak, and a stop of all promotions",
			does:    "a soak of seconds and a PromotionWindow are declared, 1.4.0 of shop is released in dev; then the window is deleted",
			expects: "the promotion soaks, waits and says why; mallory cannot override it; it continues by itself when the stop ends",
			within:  aMoment, play: gatesChapter{pipelines, promotions, shopTeam, f.management, f.files}.play,
		}, {
			name:    "a revision that does not stay healthy",
			does:    "a verification of seconds is declared; 1.5.0 of shop is released in dev, and fails after it was rolled out in staging; then 1.5.1",
			expects: "1.5.0 is not promoted to prod; 1.5.1 is verified in staging, and then promoted",
			within:  aMoment, play: verificationChapter{pipelines, promotions, shopTeam, f.workloads[staging], f.management}.play,
		}, {
			name:    "a check fails, and a revision is rolled back",
			does:    "a check and rollbacks are declared for staging of billing; 1.4.0-rc.1 is released in dev, and fails the check; then 1.4.0; then alice requests a rollback of staging, and 1.3.0 for prod",
			expects: "a pull request puts 1.3.0 back, once; 1.4.0-rc.1 stays out, 1.4.0 is promoted; the requests of alice alone are accepted",
			within:  aWhile, play: rollbackChapter{pipelines, promotions, f.billing, f.management, f.files}.play,
		}, {
			name:    "a fleet of ten stores gets a revision in waves",
			does:    "1.1.0 of edge is released in dev; one of the ten (simulated) stores is dead, and an eleventh gets the label of the stores midway",
			expects: "two stores first, then the rest in halves; the dead one is named and left out; the new one gets a Promotion of its own",
			within:  aWhile, play: wavesChapter{pipelines, promotions, f.edge, f.management}.play,
		}, {
			name:    "node groups can scale from zero",
			does:    "a MachineDeployment of m5.large and one of g5.xlarge are declared; then the second gets the template of the first",
			expects: "both have annotations of EC2's data for cluster-autoscaler; then the GPU's are removed, and users' labels stay",
			within:  aMoment, play: nodeGroupChapter{f.management}.play,
		}, {
			name:    "a spot instance gets an interruption notice",
			does:    "a queue of SQS is declared a source; a spot instance of dev starts, and then EC2 announces its end",
			expects: "the label of its AWSMachine follows, an Event reports the notice, and no message is left in the queue",
			within:  aMoment, play: instanceChapter{f.management, f.cloud}.play,
		}, {
			name:    "events are on the bus",
			does:    "nothing: the events in JetStream, from an EventingBackend of type nats, are compared with all that happened",
			expects: "the lifecycle of every Promotion, prod's outage, the annotated node groups and the spot notice are there as CloudEvents",
			within:  aMoment, play: busChapter{f.management, promotions, f.bus}.play,
		}, {
			name:    "users read the hub's pages",
			does:    "a browser opens the dashboard, curl requests discovery, and an EventingBackend with a mistake is applied",
			expects: "the dashboard shows what happened, discovery the types of backends; the API server, which calls the hub, warns",
			within:  aMoment, play: userChapter{f.management, f.hub, f.signIn}.play,
		}, {
			name:    "exactly once",
			does:    "nothing: all Promotions are compared with all notifications and all pull requests in Gitea",
			expects: "each Promotion that acted did so once, and each notification and pull request belongs to a Promotion",
			within:  aMoment, play: onceChapter{promotions}.play,
		},
	}
}

// developers of an application release it in dev.
type developers struct {
	app     string
	release func(ctx context.Context, revision string) error
}

// releaseInDev is a commit of each team; Flux does the rest.
func releaseInDev(ctx context.Context, s *stage, revision string, teams ...developers) error {
	for _, team := range teams {
		if err := team.release(ctx, revision); err != nil {
			return err
		}
		s.note("%s %s is released in dev", team.app, revision)
	}
	return nil
}
