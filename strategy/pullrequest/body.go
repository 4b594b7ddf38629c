package pullrequest

import (
	"fmt"
	"html"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/truncate"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

const (
	// maxShown is the number of targets or changed places that a body lists.
	maxShown = 10
	// maxValue is the length to which a body cuts a value, in characters. With ten
	// targets and ten changes the body stays under the 4,000 of Azure DevOps.
	maxValue = 120
)

// place is one changed scalar.
type place struct {
	path     string
	line     int
	from, to string
}

// body returns the body of the pull request: a summary for people, then weave's block
// with the trailers by which the hub recognizes it.
func body(p *capstanv1.Promotion, places []place) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Promotes %s %s of Pipeline %s to revision %s in environment %s.\n\n", code(p.Spec.App.Kind), code(p.Spec.App.Name),
		code(p.Namespace+"/"+p.Spec.Pipeline.Name), code(p.Spec.Revision), code(p.Spec.Environment))
	fmt.Fprintf(&b, "- **To**: %s\n", code(p.Spec.Revision))
	if p.Spec.From != nil && len(p.Spec.From.Revisions) > 0 {
		fmt.Fprintf(&b, "- **From**: %s\n", strings.Join(codes(p.Spec.From.Revisions), ", "))
	}
	fmt.Fprintf(&b, "- **Why**: every target of environment %s runs it, ready\n", code(p.Spec.Source.Environment))
	if p.Spec.From != nil && len(p.Spec.From.Targets) > 0 {
		fmt.Fprintf(&b, "- **Targets**: %s\n", strings.Join(shown(p.Spec.From.Targets, code), "; "))
	}
	if len(places) > 0 {
		fmt.Fprintf(&b, "- **Changes**: %s\n", strings.Join(shown(places, func(at place) string {
			return fmt.Sprintf("%s line %d (%s → %s)", code(at.path), at.line, code(at.from), code(at.to))
		}), "; "))
	}
	if p.Spec.Approval != nil {
		fmt.Fprintf(&b, "- **Approved by**: %s\n", code(p.Spec.Approval.By))
	}
	fmt.Fprintf(&b, "- **Promotion**: %s, number %d\n\n", code(p.Namespace+"/"+p.Name), p.Spec.Number)
	b.WriteString("Merging it promotes; closing it rejects the promotion. Commits that are added to the branch are left alone.\n\n")
	b.WriteString("<details>\n<summary>metadata</summary>\n\n!!! DO NOT EDIT !!!\n\n```\n")
	b.WriteString(fence(fmt.Sprintf("%s/%s/%s", p.Namespace, p.Spec.Pipeline.Name, oneLine(p.Spec.Environment))) + "\n")
	b.WriteString(fence(trailers(p)))
	b.WriteString("```\n\n</details>\n")
	return b.String()
}

// fence escapes a value so that it cannot end the code block around it.
func fence(s string) string { return strings.ReplaceAll(s, "```", "'''") }

// code shows a value literally: no Markdown, HTML, mention or line break in it takes effect.
func code(value string) string {
	value = truncate.Runes(oneLine(value), maxValue)
	if value == "" {
		return "(nothing)"
	}
	return "<code>" + strings.NewReplacer("@", "&#64;", "#", "&#35;", "`", "&#96;", "*", "&#42;", "_", "&#95;", "[", "&#91;", "\\", "&#92;",
		"!", "&#33;", "~", "&#126;", "$", "&#36;", "|", "&#124;").Replace(html.EscapeString(value)) + "</code>"
}

func codes(values []string) []string {
	return shown(values, code)
}

// shown returns the texts of the first maxShown elements, and the number of the others.
func shown[T any](all []T, text func(T) string) []string {
	var texts []string
	for _, one := range all[:min(len(all), maxShown)] {
		texts = append(texts, text(one))
	}
	if more := len(all) - maxShown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return texts
}

// fit cuts a text to the limit of a service.
func fit(text string, limit int) string {
	if limit <= 0 {
		return text
	}
	return truncate.Runes(text, limit)
}

// fitBody cuts the summary of a body, never its end, which has the claim.
func fitBody(text string, limits provider.Limits) string {
	runes := []rune(text)
	if limits.Body <= 0 || len(runes) <= limits.Body {
		return text
	}
	at := strings.Index(text, "<details>")
	end := []rune(text[at:])
	room := max(0, limits.Body-len(end)-2)
	return string([]rune(text[:at])[:room]) + "\n\n" + string(end)
}
