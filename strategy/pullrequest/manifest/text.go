package manifest

import (
	"bytes"
	"strings"
)

// These functions read YAML text: they return where line breaks, the properties of a node
// and the five styles of scalars end. Each takes text that begins with the element, and
// returns a negative length if it does not.

func blank(b byte) bool { return b == ' ' || b == '\t' }

// trim removes blanks at both ends, but no line break of any kind.
func trim(text []byte) []byte { return bytes.Trim(text, " \t") }

// lineBreak returns the length of the line break at the beginning of the text, in bytes; 0
// if there is none. YAML 1.1 and the parser have six kinds.
func lineBreak(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	switch text[0] {
	case '\n':
		return 1
	case '\r':
		if bytes.HasPrefix(text, []byte("\r\n")) {
			return 2
		}
		return 1
	case 0xC2:
		if bytes.HasPrefix(text, []byte("\u0085")) {
			return len("\u0085")
		}
	case 0xE2:
		if bytes.HasPrefix(text, []byte("\u2028")) || bytes.HasPrefix(text, []byte("\u2029")) {
			return len("\u2028")
		}
	}
	return 0
}

// multiline reports whether the text contains a line break.
func multiline(text []byte) bool {
	return bytes.ContainsAny(text, "\r\n\u0085\u2028\u2029")
}

// behindProperties returns the offset of the text of a node whose anchor and tag begin at
// an offset; comments may be between them.
func behindProperties(content []byte, at int) int {
	for at < len(content) && (content[at] == '&' || content[at] == '!') {
		at += property(content[at:])
		at += space(content[at:])
		for at < len(content) && content[at] == '#' {
			_, at = line(content, at)
			at += space(content[at:])
		}
	}
	return at
}

// property returns the length of the anchor or tag at the beginning of the text. A tag
// ends at a blank, an anchor at a character that no name contains.
func property(text []byte) int {
	at := 1
	for at < len(text) && !blank(text[at]) && lineBreak(text[at:]) == 0 {
		if text[0] == '&' && strings.ContainsRune("?:,]}%@`", rune(text[at])) {
			break
		}
		at++
	}
	return at
}

// doubleQuoted returns the length of the double-quoted scalar that the text begins with.
func doubleQuoted(text []byte) int {
	if !bytes.HasPrefix(text, []byte(`"`)) {
		return -1
	}
	for at := 1; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return -1
}

// singleQuoted returns the length of the single-quoted scalar that the text begins with.
func singleQuoted(text []byte) int {
	if !bytes.HasPrefix(text, []byte("'")) {
		return -1
	}
	for at := 1; at < len(text); at++ {
		if text[at] != '\'' {
			continue
		}
		if !bytes.HasPrefix(text[at:], []byte("''")) {
			return at + 1
		}
		at++
	}
	return -1
}

// plain returns the length of the plain scalar that the text begins with and that
// reads as value. Over several lines blanks and breaks are folded: then they count
// in neither.
func plain(text []byte, value string) int {
	if bytes.HasPrefix(text, []byte(value)) {
		return len(value)
	}
	at := 0
	for rest := []byte(value); ; rest = rest[1:] {
		rest = rest[space(rest):]
		if len(rest) == 0 {
			return at
		}
		next := at + space(text[at:])
		if next == len(text) || text[next] != rest[0] {
			return -1
		}
		at = next + 1
	}
}

// space returns the length of the blanks and breaks that the text begins with.
func space(text []byte) int {
	at := 0
	for at < len(text) {
		width := lineBreak(text[at:])
		if width == 0 && !blank(text[at]) {
			break
		}
		at += max(width, 1)
	}
	return at
}

// block returns the length of the literal or folded scalar that the text begins
// with, its line end and trailing empty lines included. indent is the column of
// the collection around it; content stands further right.
func block(text []byte, indent int) int {
	if len(text) == 0 || text[0] != '|' && text[0] != '>' {
		return -1
	}
	header, at := nextLine(text, 0)
	content := 0 // its column; 0 until it is known
	if digit := strings.IndexAny(string(header[:min(len(header), 3)]), "123456789"); digit > 0 {
		content = indent + int(header[digit]-'0')
	}
	for at < len(text) {
		line, next := nextLine(text, at)
		text := bytes.TrimLeft(line, " ")
		column := len(line) - len(text)
		if len(text) > 0 {
			if content == 0 {
				content = max(column, indent+1)
			}
			if column < content {
				break
			}
		}
		at = next
	}
	return at
}

// nextLine returns the line at an offset without its break, and where the next begins.
func nextLine(text []byte, at int) (line []byte, next int) {
	for end := at; end < len(text); end++ {
		if width := lineBreak(text[end:]); width > 0 {
			return text[at:end], end + width
		}
	}
	return text[at:], len(text)
}
