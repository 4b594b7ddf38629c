package decision

import (
	"fmt"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

//go:generate go test . -run TestDocumentIsCurrent -update

// Document returns both tables as Markdown, for docs/promotion-life.md.
func Document() string {
	var b strings.Builder
	b.WriteString("# When a promotion is due, and its life\n\n")
	b.WriteString("Generated from hub/pipeline/decision by `make generate`. The first row that fits wins.\n\n")
	b.WriteString("## Is a promotion due?\n\n")
	b.WriteString("Asked for each environment but the first, whenever something is observed. The candidate is the revision\n")
	b.WriteString("that the environment before it (the source) agreed on, with the sequence of that agreement.\n\n")
	b.WriteString("| # | when | a Promotion is created | reason | why |\n|---|---|---|---|---|\n")
	for i, row := range decisionTable {
		create := "no"
		if row.create {
			create = "**yes**"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | `%s` | %s |\n", i+1, row.when, create, row.reason, row.why)
	}
	b.WriteString("\n## The life of a promotion\n\n")
	b.WriteString("Where no row fits, the promotion stays in its phase. Held by `spec.suspend`, it stays in Promoting and does\n")
	b.WriteString("not act. An attempt that fails in a way that heals is repeated in Promoting, after a backoff that doubles.\n")
	b.WriteString("In AwaitingMerge the pull request is looked at, at a pace that slows with its age; an act that is due then\n")
	b.WriteString("(a branch to be rebuilt, a merge) is an attempt as in Promoting. The pull request of a superseded promotion,\n")
	b.WriteString("or of a failed one that nobody wants any more, is closed, by attempts that are repeated until it is, or until it\n")
	b.WriteString("is another promotion's.\n\n")
	b.WriteString("| # | phase | what is observed | next phase | reason |\n|---|---|---|---|---|\n")
	for i, row := range lifeTable {
		from := make([]string, len(row.from))
		for j, phase := range row.from {
			from[j] = phaseText(phase)
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | `%s` |\n", i+1, strings.Join(from, ", "), row.when, phaseText(row.to), row.reason)
	}
	b.WriteString("\nThe reason of Failed is the strategy's own word where it gives one.\n")
	return b.String()
}

func phaseText(p capstanv1.PromotionPhase) string {
	if p == created {
		return "(new)"
	}
	return string(p)
}
