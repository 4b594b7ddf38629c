package causes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/capstan-hub/capstan/internal/truncate"
)

// Item is one object that has a problem.
type Item struct {
	// Key is equal for equal causes.
	Key string
	// Severity of the problem: 0 is the worst.
	Severity int
	// Name of the object for users, such as "fleet/prod".
	Name string
	// Since is when the problem began; zero if that is not known.
	Since time.Time
}

// Group is one cause and the objects that it affects.
type Group struct {
	Key string
	// Severity is the worst of the items.
	Severity int
	// Count is the number of items, at least 1.
	Count int
	// Oldest is the earliest known Since; zero if none is known.
	Oldest time.Time
	// Names are the first names in alphabetical order.
	Names []string
	// Example is the index of one item of the group in the items that were given: of the worst ones,
	// the oldest. Its message describes the group.
	Example int
}

// Of groups items by their keys. Each group has at most the given number of names.
func Of(items []Item, names int) []Group {
	index := map[string]int{}
	var groups []Group
	for i := range items {
		at, found := index[items[i].Key]
		if !found {
			at = len(groups)
			index[items[i].Key] = at
			groups = append(groups, Group{Key: items[i].Key, Severity: items[i].Severity, Example: i})
		}
		g := &groups[at]
		g.Count++
		g.Names = append(g.Names, items[i].Name)
		g.Severity = min(g.Severity, items[i].Severity)
		if since := items[i].Since; !since.IsZero() && (g.Oldest.IsZero() || since.Before(g.Oldest)) {
			g.Oldest = since
		}
		if compare(&items[i], &items[g.Example]) < 0 {
			g.Example = i
		}
	}
	for i := range groups {
		slices.Sort(groups[i].Names)
		groups[i].Names = slices.Clone(groups[i].Names[:min(max(names, 0), groups[i].Count)])
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), older(a.Oldest, b.Oldest), -cmp.Compare(a.Count, b.Count), cmp.Compare(a.Key, b.Key))
	})
	return groups
}

// compare orders the items of a group: the best example first.
func compare(a, b *Item) int {
	return cmp.Or(cmp.Compare(a.Severity, b.Severity), older(a.Since, b.Since), cmp.Compare(a.Name, b.Name))
}

// older orders times, the oldest first and unknown ones last.
func older(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// Examples returns the names as text, each in at most limit characters: "a, b, c and 57 more".
func (g Group) Examples(limit int) string {
	names := make([]string, len(g.Names))
	for i, name := range g.Names {
		names[i] = truncate.Runes(name, limit)
	}
	text := strings.Join(names, ", ")
	switch more := g.Count - len(names); {
	case more == 0:
		return text
	case text == "":
		return fmt.Sprintf("%d objects", more)
	default:
		return fmt.Sprintf("%s and %d more", text, more)
	}
}

// Shape returns a message without what differs between objects that have the same problem, as part of a key.
// Each word that contains a digit (addresses, counts, durations, revisions), a URL or one of the object's own
// names becomes "#".
func Shape(message string, own ...string) string {
	words := strings.Fields(message)
	for i, word := range words {
		if strings.ContainsFunc(word, unicode.IsDigit) || strings.Contains(word, "://") ||
			slices.ContainsFunc(own, func(name string) bool { return has(word, name) }) {
			words[i] = "#"
		}
	}
	return strings.Join(words, " ")
}

// has reports whether a word contains a name that is not a part of a longer name.
func has(word, name string) bool {
	if name == "" {
		return false
	}
	for from := 0; ; {
		at := strings.Index(word[from:], name)
		if at < 0 {
			return false
		}
		start, end := from+at, from+at+len(name)
		before, _ := utf8.DecodeLastRuneInString(word[:start])
		after, _ := utf8.DecodeRuneInString(word[end:])
		if !letter(before) && !letter(after) {
			return true
		}
		from = start + 1
	}
}

func letter(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
