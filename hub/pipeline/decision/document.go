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
	b.WriteString("# When a promotion is due, and its lifecycle\n\n")
	b.WriteString("Generated from hub/pipeline/decision by `make generate`. The first matching row decides.\n\n")
	b.WriteString("## Is a promotion due?\n\n")
	b.WriteString("The hub decides this for each environment except the first, at each reconciliation of the Pipeline.\n")
	b.WriteString("The source is the environment before it. The candidate is the revision that the source agreed on, with\n")
	b.WriteString("the sequence of that agreement.\n\n")
	b.WriteString("| # | when | a Promotion is created | reason | why |\n|---|---|---|---|---|\n")
	for i, row := range decisionTable {
		create := "no"
		if row.create {
			create = "**yes**"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | `%s` | %s |\n", i+1, row.when, create, row.reason, row.why)
	}
	b.WriteString("\n## The lifecycle of a promotion\n\n")
	b.WriteString("If no row matches, the promotion stays in its phase.\n\n")
	b.WriteString("- `spec.suspend` of the Pipeline blocks a promotion in Promoting: it makes no attempt.\n")
	b.WriteString("- `spec.retry` starts a finished promotion again. A raise before the end has no effect: an admission policy refuses\n")
	b.WriteString("  it, and the hub ignores it (`status.ignoredRetry`).\n")
	b.WriteString("- `spec.gates` of the Pipeline, or of the environment, are read again before each step outside: a push, a pull\n")
	b.WriteString("  request, a merge, a notification. In Promoting and AwaitingMerge a closed gate holds the next step.\n")
	b.WriteString("- Each run of a manual promotion needs its own approval: `spec.approval.retry` names the run.\n")
	b.WriteString("- The hub removes `metadata.managedFields` of a promotion that succeeded or was superseded, an hour after its end. A\n")
	b.WriteString("  `kubectl apply --server-side` of it then conflicts with `before-first-apply`; `kubectl patch` does not.\n")
	b.WriteString("- The hub repeats an attempt that fails temporarily. The promotion stays in Promoting, and the backoff doubles.\n")
	b.WriteString("  [git-failures.md](git-failures.md) lists which failures are repeated, and which lead to Failed.\n")
	b.WriteString("- The hub tries a failed promotion again about every hour if users may have fixed the cause. It stays in Failed\n")
	b.WriteString("  until a try succeeds. It is tried only while no row would supersede it if it were in flight.\n")
	b.WriteString("- In AwaitingMerge the hub checks the pull request, less often as it gets older. If the branch must be rebuilt\n")
	b.WriteString("  or the pull request must be merged, the hub makes an attempt as in Promoting.\n")
	b.WriteString("- The hub closes the pull request of a superseded promotion, of one that succeeded without it, and of a failed\n")
	b.WriteString("  one that a row below would supersede if it were in flight. It repeats this until the pull request is closed,\n")
	b.WriteString("  or until the pull request belongs to another promotion.\n\n")
	b.WriteString("| # | phase | observed | next phase | reason |\n|---|---|---|---|---|\n")
	for i, row := range lifecycleTable {
		from := make([]string, len(row.from))
		for j, phase := range row.from {
			from[j] = phaseText(phase)
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | `%s` |\n", i+1, strings.Join(from, ", "), row.when, phaseText(row.to), row.reason)
	}
	b.WriteString("\nIn AwaitingGates, the reason of the first closed gate replaces `GateClosed`.\n")
	b.WriteString("If the strategy gives a reason for Failed, that reason replaces `Impossible`.\n")
	return b.String()
}

func phaseText(p capstanv1.PromotionPhase) string {
	if p == created {
		return "(new)"
	}
	return string(p)
}
