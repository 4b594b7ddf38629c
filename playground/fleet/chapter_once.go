package fleet

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"code.gitea.io/sdk/gitea"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
)

// onceChapter compares Promotions with notifications and pull requests, both ways.
type onceChapter struct{ promotions promotions }

func (c onceChapter) play(ctx context.Context, s *stage) error {
	return s.expect(ctx, "Promotions match notifications and pull requests, one to one", func(ctx context.Context) error {
		every, err := c.promotions.list(ctx)
		if err != nil {
			return err
		}
		acts, err := c.promotions.acts.count(ctx)
		if err != nil {
			return err
		}
		opened, err := c.promotions.acts.billing.pullRequests(ctx)
		if err != nil {
			return err
		}
		acted := map[string]bool{}
		for i := range every {
			p := &every[i]
			expected := 1
			if p.Status.Phase == capstanv1.PhaseAwaitingApproval || replacedWhileWaiting(p) || i > 0 && verifiesOnly(p, &every[i-1]) {
				expected = 0
			}
			acted[strategy.Identity(p)] = true
			if n := acts(strategy.Identity(p)); n != expected {
				return fmt.Errorf("Promotion %s (%s) was carried out %d times, not %d", p.Name, p.Status.Phase, n, expected)
			}
			opened = slices.DeleteFunc(opened, func(pr *gitea.PullRequest) bool { return claims(pr, strategy.Identity(p)) })
		}
		if len(opened) > 0 {
			return fmt.Errorf("the pull request %q belongs to no Promotion: %s", opened[0].Title, opened[0].HTMLURL)
		}
		for _, n := range c.promotions.acts.team.all() {
			if !acted[n.ID] {
				return fmt.Errorf("a notification of %s %s into %s belongs to no Promotion: %s", n.Pipeline, n.Revision, n.Environment, n.ID)
			}
		}
		return nil
	})
}

// replacedWhileWaiting reports whether the promotion was superseded before the hub did anything for it.
func replacedWhileWaiting(p *capstanv1.Promotion) bool {
	return p.Status.Phase == capstanv1.PhaseSuperseded && p.Status.Attempt == nil
}

// verifiesOnly reports whether the promotion is for the revision that the one before it brought into
// the environment: the verification was set since then, and nothing is left to promote.
func verifiesOnly(p, before *capstanv1.Promotion) bool {
	return p.Spec.Pipeline == before.Spec.Pipeline && p.Spec.Environment == before.Spec.Environment &&
		p.Spec.Revision == before.Spec.Revision && p.Spec.RollbackOf == nil && p.Spec.Request == nil && p.Spec.Wave == nil
}

// ledger prints every Promotion and how often it was carried out.
func ledger(ctx context.Context, out io.Writer, promotions promotions) error {
	// The list is printed also when the story ended with its context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), aMoment)
	defer cancel()
	every, err := promotions.list(ctx)
	if err != nil || len(every) == 0 {
		return err
	}
	acts, err := promotions.acts.count(ctx)
	if err != nil {
		return err
	}
	printLedger(out, every, acts)
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
