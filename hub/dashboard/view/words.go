package view

import (
	"strings"
	"unicode/utf8"
)

// words are the words of a search text, in lower case; at most maxSearch/2 of them. An object matches when each word is
// in one of its texts.
type words []string

func (q Query) words() words { return strings.Fields(strings.ToLower(q.Search)) }

// in reports whether each word is in one of the texts, in any case. No words are in any texts.
func (w words) in(texts ...string) bool {
	m := w.match()
	for _, text := range texts {
		m.read(text)
	}
	return m.all()
}

func (w words) match() match { return match{words: w, missing: len(w)} }

// match is the comparison of an object with words. It reads one text after the other, and copies none.
type match struct {
	words words
	// found has a bit for each word that was found; missing counts the others.
	found   uint64
	missing int
}

// all reports whether all words were found.
func (m *match) all() bool { return m.missing == 0 }

// read finds words in a text.
func (m *match) read(text string) {
	if m.missing == 0 || text == "" {
		return
	}
	for i, word := range m.words {
		if bit := uint64(1) << i; m.found&bit == 0 && containsFold(text, word) {
			m.found |= bit
			m.missing--
		}
	}
}

// readName finds words in "namespace/name".
func (m *match) readName(namespace, name string) {
	m.read(namespace)
	m.read(name)
	if m.missing == 0 {
		return
	}
	for _, word := range m.words {
		if strings.Contains(word, "/") {
			m.read(namespace + "/" + name)
			return
		}
	}
}

// containsFold reports whether a text contains a word that is in lower case. It makes no copy of an ASCII text: a search
// reads a hundred thousand texts.
func containsFold(text, word string) bool {
	if word == "" {
		return true
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c >= utf8.RuneSelf:
			return strings.Contains(strings.ToLower(text), word)
		case lower(c) == word[0] && hasPrefixFold(text[i:], word):
			return true
		}
	}
	return false
}

// hasPrefixFold reports whether a text begins with a word that is in lower case. Only ASCII letters have two cases.
func hasPrefixFold(text, word string) bool {
	if len(text) < len(word) {
		return false
	}
	for i := range len(word) {
		if lower(text[i]) != word[i] {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// rank is how well a name matches a search text; the best is the lowest.
type rank int

const (
	rankExact rank = iota
	rankPrefix
	// rankName has all words in the name, and rankOther has some in other texts.
	rankName
	rankOther
)

// rank returns the rank of an object that matches: its names are those that a user would type.
func (w words) rank(names ...string) rank {
	best := rankOther
	whole := strings.Join(w, " ")
	for _, name := range names {
		switch {
		case strings.EqualFold(name, whole):
			return rankExact
		case hasPrefixFold(name, whole):
			best = min(best, rankPrefix)
		case w.in(name):
			best = min(best, rankName)
		}
	}
	return best
}
