package truncate

import (
	"strings"
	"unicode/utf8"
)

// Mark ends a text that was shortened.
const Mark = "…"

// invalid replaces bytes that are not UTF-8.
const invalid = "?"

// Bytes returns the text, or its beginning and Mark, in at most limit bytes.
func Bytes(text string, limit int) string {
	text = strings.ToValidUTF8(text, invalid)
	switch {
	case len(text) <= limit:
		return text
	case limit < len(Mark):
		return prefix(text, limit)
	}
	return prefix(text, limit-len(Mark)) + Mark
}

// Runes returns the text, or its beginning and Mark, in at most limit characters.
func Runes(text string, limit int) string {
	text = strings.ToValidUTF8(text, invalid)
	if len(text) <= limit || utf8.RuneCountInString(text) <= limit {
		return text
	}
	if limit <= 0 {
		return ""
	}
	end, characters := 0, 0
	for i := range text {
		if characters == limit-1 {
			end = i
			break
		}
		characters++
	}
	return text[:end] + Mark
}

// Prefix returns the beginning of the text in at most limit bytes, without Mark.
func Prefix(text string, limit int) string {
	return prefix(strings.ToValidUTF8(text, invalid), limit)
}

// prefix of a valid text, which ends at the end of a character.
func prefix(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := max(limit, 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
