package explain

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/capstan-hub/capstan/internal/causes"
)

const (
	// maxColumns is the longest line of the summary, in characters.
	maxColumns = 120
	// examples are the names in the row of a cause. They share what the line has left, with room for their commas
	// and " and 1000 more".
	examples = 3
	moreRoom = 20
	// maxCause is the longest text of a cause. It leaves room for the examples.
	maxCause = 50

	// Causes of each part that are printed. Each has at most three lines: 9 causes, 4 titles and lines
	// about what is left out, blank lines and the last line are at most MaxLines.
	shownClusters  = 4
	shownPipelines = 4
	shownBackends  = 1
)

// Write prints the summary in at most MaxLines lines of at most 120 characters, whatever the fleet is.
func (s *Summary) Write(out io.Writer) error {
	b := &strings.Builder{}
	line := func(format string, args ...any) {
		b.WriteString(cut(fmt.Sprintf(format, args...), maxColumns) + "\n")
	}
	line("%s", s.Verdict)
	if n := len(s.NotShown); n > 0 {
		text := "Not shown: " + s.NotShown[0]
		if n > 1 {
			text = fmt.Sprintf("Not shown: %s; and %d more", cut(s.NotShown[0], maxColumns/2), n-1)
		}
		line("%s", text)
	}
	// What one part does not need, the next ones may use.
	spare := 0
	part := func(all []Cause, share int, objects string) {
		share += spare
		shown := min(len(all), share)
		spare = share - shown
		for i := range all[:shown] {
			s.cause(b, &all[i])
		}
		left := 0
		for _, c := range all[shown:] {
			left += c.Count
		}
		if left > 0 {
			b.WriteString(indent + fmt.Sprintf("and %s with %d %s", counted(len(all)-shown, "more cause", "more causes"), left, objects) + "\n")
		}
	}
	b.WriteString("\n")
	line("Clusters: %s", s.counts)
	part(s.Clusters.Causes, shownClusters, "clusters")
	b.WriteString("\n")
	line("Pipelines: %d (%d waiting)", s.Pipelines.Total, s.Pipelines.Waiting)
	part(s.Pipelines.Causes, shownPipelines, "environments")
	if s.Backends.NotReady > 0 {
		b.WriteString("\n")
		line("Backends: %d (%d not ready)", s.Backends.Total, s.Backends.NotReady)
		part(s.Backends.Causes, shownBackends, "backends")
	}
	b.WriteString("\nAll rows: capstan status --all\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// cause prints a cause in at most three lines: what it is and whom it affects, the message, and a command.
func (s *Summary) cause(b *strings.Builder, c *Cause) {
	since := ""
	if c.Oldest != nil {
		since = " for "
		if c.Count > 1 {
			since = ", the oldest for "
		}
		since += duration.HumanDuration(s.now.Sub(*c.Oldest))
	}
	group := causes.Group{Count: c.Count, Names: make([]string, min(examples, c.Count))}
	for i := range group.Names {
		group.Names[i] = printable(c.Objects[i])
	}
	head := fmt.Sprintf("%s%s: %s%s: ", indent, counted(c.Count, c.noun, c.noun+"s"), cut(c.text, maxCause), since)
	room := (maxColumns - moreRoom - utf8.RuneCountInString(head)) / len(group.Names)
	b.WriteString(head + group.Examples(room) + "\n")
	if c.Message != "" {
		b.WriteString(indent + indent + cut(c.Message, maxColumns-len(indent+indent)) + "\n")
	}
	const next = indent + indent + "next: "
	command := c.Next
	if utf8.RuneCountInString(next+command) > maxColumns {
		command = c.other // A command that is cut cannot be copied.
	}
	b.WriteString(next + command + "\n")
}

// printable returns a text of another program without characters that control a terminal or change the
// direction of text.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return -1
	}, text)
}
