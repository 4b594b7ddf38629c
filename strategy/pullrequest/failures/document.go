package failures

import (
	"fmt"
	"strings"
	"time"

	"github.com/capstan-hub/capstan/strategy"
)

//go:generate go test . -run TestDocumentIsCurrent -update

// Document returns the table as Markdown, for docs/git-failures.md.
func Document() string {
	var b strings.Builder
	b.WriteString("# Failures of promotions by pull request\n\n")
	b.WriteString("Generated from strategy/pullrequest/failures by `make generate`. A failure has exactly one class.\n\n")
	fmt.Fprintf(&b, "- *backoff*: the hub retries after %s. The wait doubles with each failure in sequence, up to %s.\n", duration(strategy.FirstRetry), duration(strategy.MaxRetry))
	b.WriteString("- *requested*: the hub retries after the time that the service names. No promotion with the same Secret calls the\n")
	b.WriteString("  service before that.\n")
	b.WriteString("- *polling*: the hub retries at each poll of the pull request, every 15 s at first and every 5 min when it is old.\n")
	b.WriteString("- *Failed* is when the promotion ends. Until then its message says what was refused, how often, and when the\n")
	b.WriteString("  promotion becomes Failed. The same rule holds while the hub polls an open pull request.\n")
	fmt.Fprintf(&b, "- *again*: the hub tries the failed promotion again about every %s, or when its Secret changes. Each failed promotion\n", duration(strategy.TryAgainEvery))
	b.WriteString("  also starts again when `spec.retry` is raised, and the next one starts when the Pipeline is edited so that the\n")
	b.WriteString("  promotion differs. A failed promotion is tried again only while it is the newest and its source has not left the revision.\n")
	b.WriteString("- A failed promotion becomes Succeeded when its environment runs the revision. If it has an open pull request, the\n")
	b.WriteString("  hub still polls it, every 15 min: a merge leads to AwaitingRollout, a close to Rejected.\n\n")
	b.WriteString("| class | observed | retries | Failed | again | what fixes it |\n|---|---|---|---|---|---|\n")
	for i := range Table {
		c := &Table[i]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", c.Name, c.evidence(), c.Pace, c.Ends.text(), c.again(), c.Fix)
	}
	return b.String()
}

func (c *Class) evidence() string {
	texts := make([]string, len(c.Evidence))
	for i, e := range c.Evidence {
		if e.At != "" {
			texts[i] = e.At + ": "
		}
		texts[i] += e.Seen
	}
	return strings.Join(texts, "<br>")
}

func (e Ending) text() string {
	switch e {
	case AfterRefusals:
		return fmt.Sprintf("after %d failures in sequence over %s", refusals, duration(refusedFor))
	case AfterRejections:
		return fmt.Sprintf("after %d failures in sequence", rejections)
	case Never, AtOnce:
	}
	return string(e)
}

func (c *Class) again() string {
	switch {
	case c.Ends == Never:
		return ""
	case c.TryAgain && c.Secret:
		return "hourly, Secret"
	case c.TryAgain:
		return "hourly"
	case c.Secret:
		return "Secret"
	default:
		return "no"
	}
}

// duration as people write it: 5 s, 10 min, 1 h.
func duration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	default:
		return fmt.Sprintf("%d s", d/time.Second)
	}
}
