package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"code.gitea.io/sdk/gitea"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/strategy"
)

// Deadlines of steps. A step of the hub alone takes a second or two; the network
// steps wait for probes, whose times are the hub's own.
const (
	aMoment = time.Minute
	aWhile  = 3 * time.Minute
)

// Play plays the story and prints its summary. The error is what went wrong.
func (f *Fleet) Play(ctx context.Context) error {
	outcomes := playAll(ctx, f.out, f.story())
	f.show(ctx, "get", "clusterconnections,pipelines", "-A")
	summary(f.out, outcomes)
	if err := f.ledger(ctx); err != nil {
		say(f.out, "  the Promotions could not be listed: %v", err)
	}
	return verdict(outcomes)
}

func (f *Fleet) story() []step {
	return []step{
		{
			name:    "the fleet is up",
			does:    "nothing: " + firstRevision + " runs everywhere, and the hub has just started",
			expects: "every cluster is connected, both Pipelines are Ready and show their targets, nothing is promoted",
			within:  aMoment, play: f.fleetIsUp,
		}, {
			name:    "a new revision travels",
			does:    "1.1.0 of shop and billing is released in dev",
			expects: "one Promotion each: shop to staging and prod by notifications, billing to staging by a pull request",
			within:  aMoment, play: f.revisionTravels,
		}, {
			name:    "prod of billing waits for an approval",
			does:    "mallory, and then alice, approve 1.1.0 with kubectl's means",
			expects: "mallory and a false name are refused; after alice, a pull request takes billing on to prod",
			within:  aMoment, play: f.approval,
		}, {
			name:    "the prod cluster goes away and comes back",
			does:    "the network to prod is cut, 1.2.0 of shop is released in dev, the network is mended",
			expects: "prod keeps its last seen revision, marked stale; staging gets 1.2.0 meanwhile; prod gets it once, afterwards",
			within:  aWhile, play: f.outage,
		}, {
			name:    "every token is rotated",
			does:    "new tokens are put into the kubeconfig Secrets, the old ones are revoked, 1.3.0 is released in dev",
			expects: "the hub goes over without a new connection or a relist, and 1.3.0 travels",
			within:  aMoment, play: f.rotation,
		}, {
			name:    "node groups can scale from zero",
			does:    "a MachineDeployment of m5.large and one of g5.xlarge are declared; then the template of the second is swapped for the first's",
			expects: "both bear what EC2 says of a node, for cluster-autoscaler; after the swap the GPU goes, and what people wrote stays",
			within:  aMoment, play: f.scaleFromZero,
		}, {
			name:    "a spot instance is about to be taken away",
			does:    "a queue of SQS is declared a source; a spot instance of dev starts, and then EC2 gives notice of its end",
			expects: "the label of its AWSMachine follows, an Event tells of the notice, and no message is left in the queue",
			within:  aMoment, play: f.spotNotice,
		}, {
			name:    "the bus was told",
			does:    "nothing: what a JetStream has by an EventingBackend of type nats is held against all that happened",
			expects: "the life of every Promotion, prod's outage, the annotated node groups and the spot notice are there as CloudEvents",
			within:  aMoment, play: f.busIsTold,
		}, {
			name:    "people ask the hub",
			does:    "a browser opens the dashboard, curl asks discovery, and an EventingBackend with a mistake is applied",
			expects: "the dashboard shows what happened, discovery the types of backends; the API server, which asks the hub, warns",
			within:  aMoment, play: f.peopleAsk,
		}, {
			name:    "exactly once",
			does:    "nothing: all Promotions are held against all notifications and all pull requests in Gitea",
			expects: "each Promotion that acted did so once, and no notification or pull request is of anything else",
			within:  aMoment, play: f.exactlyOnce,
		},
	}
}

func (f *Fleet) fleetIsUp(ctx context.Context, s *stage) error {
	if err := s.await(ctx, "ClusterConnections of dev, staging and prod are Ready",
		f.connected(capstanv1.ConnectionReady, Environments...)); err != nil {
		return err
	}
	for _, app := range []string{shop, billing} {
		if err := s.await(ctx, fmt.Sprintf("%s is Ready and shows %s in dev, staging and prod", app, firstRevision),
			all(f.pipelineReady(app), f.runs(app, firstRevision, Environments...))); err != nil {
			return err
		}
	}
	return s.expect(ctx, "there is no Promotion", func(ctx context.Context) error {
		if every, err := f.promotions(ctx); err != nil || len(every) > 0 {
			return errors.Join(err, fmt.Errorf("there are %d", len(every)))
		}
		return nil
	})
}

func (f *Fleet) revisionTravels(ctx context.Context, s *stage) error {
	const revision = "1.1.0"
	if err := f.releaseInDev(ctx, s, revision, shop, billing); err != nil {
		return err
	}
	if err := s.await(ctx, "shop runs "+revision+" everywhere, promoted once to staging and once to prod",
		all(f.runs(shop, revision, Environments...), f.promotedOnce(shop, revision, staging, prod))); err != nil {
		return err
	}
	if err := f.merge(ctx, s, billing, staging, revision); err != nil {
		return err
	}
	return s.await(ctx, "billing runs "+revision+" in dev and staging, promoted once to staging",
		all(f.runs(billing, revision, dev, staging), f.promotedOnce(billing, revision, staging)))
}

func (f *Fleet) approval(ctx context.Context, s *stage) error {
	const revision = "1.1.0"
	var waiting *capstanv1.Promotion
	if err := s.await(ctx, "the Promotion of billing into prod is AwaitingApproval, and waitingApproval.revision says "+revision,
		func(ctx context.Context) (err error) {
			if waiting, err = f.only(ctx, billing, prod, revision, capstanv1.PhaseAwaitingApproval); err != nil {
				return err
			}
			return f.waitsForApproval(billing, prod, revision)(ctx)
		}); err != nil {
		return err
	}
	if err := s.expect(ctx, "there is no pull request of it", func(ctx context.Context) error {
		acts, err := f.acts(ctx)
		if err == nil && acts(strategy.Identity(waiting)) != 0 {
			err = fmt.Errorf("there are %d", acts(strategy.Identity(waiting)))
		}
		return err
	}); err != nil {
		return err
	}
	for _, attempt := range []struct{ user, by, why string }{
		{mallory, mallory, "mallory, who lacks the verb approve, is refused"},
		{alice, "bob", "alice, who writes another's name, is refused"},
	} {
		if err := s.expect(ctx, attempt.why, func(ctx context.Context) error {
			err := f.approve(ctx, waiting.Name, attempt.user, attempt.by)
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				return fmt.Errorf("the API server answered: %w", errors.Join(err, errNotRefused))
			}
			s.note("%v", err)
			return nil
		}); err != nil {
			return err
		}
	}
	s.note("%s", f.approveCommand(waiting.Name))
	if err := s.expect(ctx, "alice is not refused", func(ctx context.Context) error {
		return f.approve(ctx, waiting.Name, alice, alice)
	}); err != nil {
		return err
	}
	if err := f.merge(ctx, s, billing, prod, revision); err != nil {
		return err
	}
	if err := s.await(ctx, "billing runs "+revision+" everywhere, promoted once to prod",
		all(f.runs(billing, revision, Environments...), f.promotedOnce(billing, revision, prod), f.waitsForApproval(billing, prod, ""))); err != nil {
		return err
	}
	return s.expect(ctx, "the Promotion says that alice approved it", func(ctx context.Context) error {
		p, err := f.only(ctx, billing, prod, revision, capstanv1.PhaseSucceeded)
		if err == nil && (p.Status.Approval == nil || p.Status.Approval.By != alice) {
			err = fmt.Errorf("it says %+v", p.Status.Approval)
		}
		return err
	})
}

var errNotRefused = errors.New("this was to be refused")

func (f *Fleet) outage(ctx context.Context, s *stage) error {
	const before, revision = "1.1.0", "1.2.0"
	f.workloads[prod].proxy.Set(controlplane.Refuse)
	defer f.workloads[prod].proxy.Set(controlplane.Pass)
	s.note("the network to prod is cut")
	if err := s.await(ctx, "the ClusterConnection of prod is Unreachable", f.connected(capstanv1.ConnectionUnreachable, prod)); err != nil {
		return err
	}
	if err := s.await(ctx, "prod of shop is stale, and still shows "+before, f.stale(shop, prod, before)); err != nil {
		return err
	}
	if err := f.releaseInDev(ctx, s, revision, shop); err != nil {
		return err
	}
	if err := s.await(ctx, "shop runs "+revision+" in dev and staging, promoted once to staging, while prod is away",
		all(f.runs(shop, revision, dev, staging), f.promotedOnce(shop, revision, staging), f.agreed(shop, staging, revision))); err != nil {
		return err
	}
	if err := s.expect(ctx, "nothing is promoted into prod, which nobody can see", all(
		f.notPromoted(shop, prod, revision), f.stale(shop, prod, before), f.connected(capstanv1.ConnectionReady, dev, staging))); err != nil {
		return err
	}
	// Of states that pass within half a minute only the last is told.
	if err := s.await(ctx, "the bus is told that prod is unreachable", func(ctx context.Context) error {
		return f.toldOfCluster(ctx, prod, event.ClusterUnreachable)
	}); err != nil {
		return err
	}
	f.workloads[prod].proxy.Set(controlplane.Pass)
	s.note("the network to prod is mended")
	if err := s.await(ctx, "the ClusterConnection of prod is Ready again", f.connected(capstanv1.ConnectionReady, prod)); err != nil {
		return err
	}
	return s.await(ctx, "shop runs "+revision+" everywhere, promoted once to prod",
		all(f.runs(shop, revision, Environments...), f.promotedOnce(shop, revision, prod)))
}

func (f *Fleet) rotation(ctx context.Context, s *stage) error {
	const revision = "1.3.0"
	listed, err := lists()
	if err != nil {
		return err
	}
	connections := map[string]*capstanv1.ClusterConnection{}
	for _, name := range Environments {
		if connections[name], err = f.connection(ctx, name); err != nil {
			return err
		}
	}
	old, err := f.tokenConfigs(ctx)
	if err != nil {
		return err
	}
	for _, name := range Environments {
		if err := f.writeCredentials(ctx, f.workloads[name], nextCredentials); err != nil {
			return err
		}
	}
	s.note("new tokens are in the kubeconfig Secrets")
	if err := s.await(ctx, "the ClusterConnections show the new tokens' expiry", func(ctx context.Context) error {
		for name, was := range connections {
			is, err := f.connection(ctx, name)
			if err != nil {
				return err
			}
			if is.Status.CredentialExpiryTime.Equal(was.Status.CredentialExpiryTime) {
				return fmt.Errorf("ClusterConnection %s shows %v", is.Name, is.Status.CredentialExpiryTime)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, name := range Environments {
		if err := f.workloads[name].revoke(ctx, firstCredentials); err != nil {
			return err
		}
	}
	for _, name := range Environments {
		if err := s.await(ctx, "the old token of "+name+" is refused there", refused(old[name])); err != nil {
			return err
		}
	}
	if err := f.releaseInDev(ctx, s, revision, shop, billing); err != nil {
		return err
	}
	if err := s.await(ctx, "shop runs "+revision+" everywhere, promoted once to staging and once to prod",
		all(f.runs(shop, revision, Environments...), f.promotedOnce(shop, revision, staging, prod))); err != nil {
		return err
	}
	if err := f.merge(ctx, s, billing, staging, revision); err != nil {
		return err
	}
	if err := s.await(ctx, "billing runs "+revision+" in dev and staging, and waits for an approval",
		all(f.promotedOnce(billing, revision, staging), f.waitsForApproval(billing, prod, revision))); err != nil {
		return err
	}
	return s.expect(ctx, "the connections are the same as before, and no informer has listed again", func(ctx context.Context) error {
		for name, was := range connections {
			is, err := f.connection(ctx, name)
			if err != nil {
				return err
			}
			if is.Status.State != was.Status.State || !is.Status.LastTransitionTime.Equal(was.Status.LastTransitionTime) {
				return fmt.Errorf("ClusterConnection %s is %s since %v", is.Name, is.Status.State, is.Status.LastTransitionTime)
			}
		}
		now, err := lists()
		if err == nil && now != listed {
			err = fmt.Errorf("%g initial lists were made", now-listed)
		}
		return err
	})
}

// toldOfCluster tells whether the bus has a kind of event of a cluster.
func (f *Fleet) toldOfCluster(ctx context.Context, name string, kind event.Kind) error {
	told, err := f.events(ctx)
	if err != nil {
		return err
	}
	subject := "clusters/Cluster/" + fleetNamespace + "/" + name
	for _, e := range told {
		if e.Subject() == subject && event.KindOf(e) == kind {
			return nil
		}
	}
	return fmt.Errorf("there is no %s of %s among %d events", kind, subject, len(told))
}

// exactlyOnce holds Promotions against notifications and pull requests, both ways.
func (f *Fleet) exactlyOnce(ctx context.Context, s *stage) error {
	return s.expect(ctx, "Promotions match notifications and pull requests, one to one", func(ctx context.Context) error {
		every, err := f.promotions(ctx)
		if err != nil {
			return err
		}
		acts, err := f.acts(ctx)
		if err != nil {
			return err
		}
		opened, err := f.repository.PullRequests(ctx)
		if err != nil {
			return err
		}
		acted := map[string]bool{}
		for i := range every {
			p := &every[i]
			expected := 1
			if p.Status.Phase == capstanv1.PhaseAwaitingApproval {
				expected = 0
			}
			acted[strategy.Identity(p)] = true
			if n := acts(strategy.Identity(p)); n != expected {
				return fmt.Errorf("Promotion %s (%s) was carried out %d times, not %d", p.Name, p.Status.Phase, n, expected)
			}
			opened = slices.DeleteFunc(opened, func(pr *gitea.PullRequest) bool { return claims(pr, strategy.Identity(p)) })
		}
		if len(opened) > 0 {
			return fmt.Errorf("the pull request %q is of no Promotion: %s", opened[0].Title, opened[0].HTMLURL)
		}
		for _, n := range f.team.all() {
			if !acted[n.ID] {
				return fmt.Errorf("a notification of %s %s into %s is of no Promotion: %s", n.Pipeline, n.Revision, n.Environment, n.ID)
			}
		}
		return nil
	})
}

// releaseInDev is a team's commit; Flux does the rest.
func (f *Fleet) releaseInDev(ctx context.Context, s *stage, revision string, apps ...string) error {
	for _, app := range apps {
		if err := f.release(ctx, app, revision); err != nil {
			return err
		}
		s.note("%s %s is released in dev", app, revision)
	}
	return nil
}

// approve a Promotion as a user.
func (f *Fleet) approve(ctx context.Context, name, user, by string) error {
	config, err := f.management.UserConfig(user)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: f.client.Scheme()})
	if err != nil {
		return err
	}
	p := &capstanv1.Promotion{}
	p.Namespace, p.Name = appsNamespace, name
	return c.Patch(ctx, p, client.RawPatch("application/merge-patch+json", []byte(approvalPatch(by))))
}

func approvalPatch(by string) string { return fmt.Sprintf(`{"spec":{"approval":{"by":%q}}}`, by) }

// ledger prints every Promotion and how often it was carried out.
func (f *Fleet) ledger(ctx context.Context) error {
	// The story may have ended with its context; the list is then of use all the more.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), aMoment)
	defer cancel()
	every, err := f.promotions(ctx)
	if err != nil || len(every) == 0 {
		return err
	}
	acts, err := f.acts(ctx)
	if err != nil {
		return err
	}
	printLedger(f.out, every, acts)
	return nil
}

func printLedger(out io.Writer, promotions []capstanv1.Promotion, acts func(id string) int) {
	say(out, "\nPromotions, and how many notifications or pull requests there are of each")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	say(table, "  PIPELINE\tENVIRONMENT\tREVISION\tPHASE\tREASON\tAPPROVED BY\tACTS\tID")
	for i := range promotions {
		p := &promotions[i]
		by := "-"
		if p.Status.Approval != nil {
			by = p.Status.Approval.By
		}
		say(table, "  %s\t%s\t%s\t%s\t%s\t%s\t%d\t%s", p.Spec.Pipeline.Name, p.Spec.Environment, p.Spec.Revision,
			p.Status.Phase, p.Status.Reason, by, acts(strategy.Identity(p)), strategy.Identity(p))
	}
	_ = table.Flush()
}
