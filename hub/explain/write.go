package explain

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/truncate"
)

const (
	// width is the default width of a terminal, in characters.
	width = 80
	// maxName, maxRuns and maxInFlight keep a row within width: with READY and the
	// gaps they are 79. Sentences have the full texts.
	maxName     = 18
	maxRuns     = 20
	maxInFlight = 30

	gap    = 2
	indent = "  "
)

// Write prints the report: a table, then a sentence for each environment.
func (r *Report) Write(out io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "Pipeline %s (%s)\n", r.Pipeline, r.App)
	for _, note := range r.Notes {
		b.WriteString(wrap(note, ""))
	}
	for _, command := range r.Commands {
		b.WriteString(indent + indent + command + "\n")
	}
	if len(r.Environments) > 0 {
		b.WriteString("\n")
		table := tabwriter.NewWriter(b, 0, 0, gap, ' ', 0)
		fmt.Fprintln(table, "ENVIRONMENT\tRUNS\tREADY\tIN FLIGHT")
		for _, e := range r.Environments {
			inFlight := e.InFlight
			if inFlight == "" {
				inFlight = "-"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", cut(e.Name, maxName), cut(e.Runs, maxRuns), e.Ready, cut(inFlight, maxInFlight))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		b.WriteString("\n")
	}
	for _, e := range r.Environments {
		b.WriteString(wrap(e.Name+": "+e.Why, indent))
		for _, command := range e.Commands {
			b.WriteString(indent + indent + command + "\n") // Not wrapped, so that it can be copied.
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// cut returns a cell on one line, at most length characters long.
func cut(s string, length int) string {
	return truncate.Runes(strings.Join(strings.Fields(printable(s)), " "), length)
}

// wrap wraps a text at width and indents every line except the first. It never breaks a
// word.
func wrap(text, hang string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(printable(text)) {
		length := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+length > width:
			b.WriteString("\n" + hang)
			column = len(hang)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += length
	}
	b.WriteString("\n")
	return b.String()
}

// pathOf returns the escaped path of the call that approves a promotion.
func pathOf(p *capstanv1.Promotion) string {
	parts := []string{"approval", p.Namespace, p.Spec.Pipeline.Name, p.Spec.Environment, p.Spec.Revision}
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return "/" + strings.Join(parts, "/")
}
