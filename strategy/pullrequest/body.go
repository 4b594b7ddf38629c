package pullrequest

import (
	"fmt"
	"strings"
	"unicode/utf8"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/internal/truncate"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

const (
	// maxShown is the number of targets or changed places that a body lists.
	maxShown = 10
	// maxValue is the length to which a body cuts a value, in characters, before it is
	// escaped. Environments and revisions have no limit of their own.
	maxValue = 120
	// maxWhy is the length to which a comment cuts its sentence, in characters.
	maxWhy = 400
	// shortened ends a summary whose last lines were left out.
	shortened = "(shortened)\n"
)

// place is one changed scalar.
type place struct {
	path     string
	line     int
	from, to string
	part     revision.Part
}

// body returns the body of the pull request: a summary for people, then weave's block
// with the trailers by which the hub recognizes it.
func body(p *capstanv1.Promotion, places []place) string {
	var b strings.Builder
	verb := "Promotes"
	if p.Spec.RollbackOf != nil {
		verb = "Rolls back"
	}
	fmt.Fprintf(&b, "%s %s %s of Pipeline %s to revision %s in environment %s.\n\n", verb, code(p.Spec.App.Kind), code(p.Spec.App.Name),
		code(p.Namespace+"/"+p.Spec.Pipeline.Name), code(p.Spec.Revision), code(p.Spec.Environment))
	fmt.Fprintf(&b, "- **To**: %s\n", code(p.Spec.Revision))
	if p.Spec.From != nil && len(p.Spec.From.Revisions) > 0 {
		fmt.Fprintf(&b, "- **From**: %s\n", strings.Join(codes(p.Spec.From.Revisions), ", "))
	}
	fmt.Fprintf(&b, "- **Why**: %s\n", why(p))
	if w := p.Spec.Wave; w != nil && len(w.Clusters) > 0 {
		fmt.Fprintf(&b, "- **Wave**: %s, %d clusters: %s\n", code(w.Name), len(w.Clusters), strings.Join(shown(w.Clusters, code), ", "))
	}
	if p.Spec.From != nil && len(p.Spec.From.Targets) > 0 {
		fmt.Fprintf(&b, "- **Targets**: %s\n", strings.Join(shown(p.Spec.From.Targets, code), "; "))
	}
	if len(places) > 0 {
		fmt.Fprintf(&b, "- **Changes**: %s\n", strings.Join(shown(places, func(at place) string {
			return fmt.Sprintf("%s line %d (%s → %s)", code(at.path), at.line, code(at.from), code(at.to))
		}), "; "))
	}
	if p.Approved() {
		fmt.Fprintf(&b, "- **Approved by**: %s\n", code(p.Spec.Approval.By))
	}
	fmt.Fprintf(&b, "- **Promotion**: %s, number %d\n\n", code(p.Namespace+"/"+p.Name), p.Spec.Number)
	b.WriteString("Merging it promotes; closing it rejects the promotion. Commits that are added to the branch are left alone.\n\n")
	b.WriteString("<details>\n<summary>metadata</summary>\n\n!!! DO NOT EDIT !!!\n\n```\n")
	b.WriteString(fence(fmt.Sprintf("%s/%s/%s", p.Namespace, p.Spec.Pipeline.Name, short(p.Spec.Environment))) + "\n")
	b.WriteString(fence(trailers(p)))
	b.WriteString("```\n\n</details>\n")
	return b.String()
}

// why returns what caused a promotion.
func why(p *capstanv1.Promotion) string {
	switch by, of := p.Spec.Request, p.Spec.RollbackOf; {
	case by != nil:
		return fmt.Sprintf("%s requested it: %s", code(by.By), code(by.Reason))
	case of != nil:
		return fmt.Sprintf("the promotion %s failed in the environment; this is the last revision that succeeded there before", code(p.Namespace+"/"+of.Name))
	}
	return fmt.Sprintf("every target of environment %s runs it, ready", code(p.Spec.Source.Environment))
}

// noted returns the body of a pull request with a note at its beginning: the environment
// runs the revision, but the base branch does not have it. A body that has the note stays
// unchanged.
func noted(p *capstanv1.Promotion, body string) string {
	note := fmt.Sprintf("**Environment %s runs this revision already, but branch %s does not have it.** Merge this pull request to keep the revision: otherwise "+
		"the environment may return to the one in Git. Merging or closing it does not promote anything again.\n\n", code(p.Spec.Environment), code(p.Spec.Strategy.PullRequest.BaseBranch))
	if strings.Contains(body, strings.TrimSpace(note)) {
		return body
	}
	return note + body
}

// fence escapes a value so that it cannot end the code block around it.
func fence(s string) string { return strings.ReplaceAll(s, "```", "'''") }

// literal replaces every character by which HTML, Markdown or a service would change or
// link a text. It replaces all of them in one pass: the references that it inserts contain
// "&", "#" and ";" themselves.
var literal = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;",
	"@", "&#64;", "#", "&#35;", "`", "&#96;", "*", "&#42;", "_", "&#95;", "[", "&#91;", `\`, "&#92;",
	"!", "&#33;", "~", "&#126;", "$", "&#36;", "|", "&#124;", "://", "&#58;//", "www.", "www&#46;")

// code shows a value literally: no Markdown, HTML, mention, link or line break in it takes
// effect.
func code(value string) string { return codeUpTo(maxValue, value) }

func codeUpTo(limit int, value string) string {
	value = truncate.Runes(oneLine(value), limit)
	if value == "" {
		return "(nothing)"
	}
	return "<code>" + literal.Replace(value) + "</code>"
}

// short returns a value on one line, cut to maxValue.
func short(value string) string { return truncate.Runes(oneLine(value), maxValue) }

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

// fitBody leaves out the last lines of a body's summary, never its end, which has the
// claim. It keeps or drops whole lines: a part of one could end within a tag.
func fitBody(text string, limits provider.Limits) string {
	if limits.Body <= 0 || utf8.RuneCountInString(text) <= limits.Body {
		return text
	}
	at := strings.Index(text, "<details>")
	room := limits.Body - utf8.RuneCountInString(text[at:]) - len(shortened) - 1
	var kept strings.Builder
	for line := range strings.Lines(text[:at]) {
		if room -= utf8.RuneCountInString(line); room < 0 {
			break
		}
		kept.WriteString(line)
	}
	return kept.String() + shortened + "\n" + text[at:]
}
