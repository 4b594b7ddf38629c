package manifest

import (
	"bytes"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var byteOrderMark = []byte("\ufeff")

// lexeme is a scalar or an alias with its position in the file.
type lexeme struct {
	node *yaml.Node
	// document is the index of its document in the file, from 0.
	document int
	// flow is true if it is between brackets or braces.
	flow bool
	// value is the value of the pair when the lexeme is a key; nil otherwise.
	value *yaml.Node
	// key is the key of the pair when the lexeme is its value; empty otherwise.
	key string
	// from is the offset of its anchor and tag, start that of its own text (an opening
	// quote is part of it), end the offset behind its last byte. In an empty lexeme all
	// three are equal.
	from, start, end int
}

// text returns the text of the lexeme in the file, without anchor and tag.
func (l *lexeme) text(content []byte) []byte { return content[l.start:l.end] }

// tagged reports whether it has an explicit tag.
func (l *lexeme) tagged(content []byte) bool {
	return bytes.ContainsRune(content[l.from:l.start], '!')
}

// empty reports whether it has no text. It may have an anchor and a tag.
func (l *lexeme) empty() bool {
	const written = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return l.node.Kind == yaml.ScalarNode && l.node.Value == "" && l.node.Style&written == 0
}

// block reports whether it is a literal or folded scalar.
func (l *lexeme) block() bool {
	return l.node.Kind == yaml.ScalarNode && l.node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0
}

// locate returns the lexemes of the documents in the order of the file. The parser
// gives line and column of each beginning, in characters; the ends are read from the
// content.
func locate(content []byte, documents []*yaml.Node) ([]lexeme, error) {
	r := reader{content: content}
	if bytes.HasPrefix(content, byteOrderMark) {
		r.offset = len(byteOrderMark) // The parser does not count it as a column.
	}
	for i, document := range documents {
		r.document = i
		for _, root := range document.Content {
			if err := r.read(root, nil, place{}); err != nil {
				return nil, err
			}
		}
	}
	return r.lexemes, nil
}

// reader walks nodes and content in parallel.
type reader struct {
	content  []byte
	document int
	lexemes  []lexeme

	// The current position: an offset, and the parser's line and column, here from 0. It
	// only moves forward, so that a file of one long line is read once.
	offset, line, column int
}

// read reads a node and its children. value is the value of the pair when the node is a
// key; in is the position of the node.
func (r *reader) read(n *yaml.Node, value *yaml.Node, in place) error {
	in.flow = in.flow || n.Style&yaml.FlowStyle != 0
	switch n.Kind {
	case yaml.ScalarNode, yaml.AliasNode:
		return r.lexeme(n, value, in)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			in.column, in.key = k.Column-1, ""
			if err := r.read(k, v, in); err != nil {
				return err
			}
			if k.Kind == yaml.ScalarNode {
				in.key = k.Value
			}
			if err := r.read(v, nil, in); err != nil {
				return err
			}
		}
	case yaml.SequenceNode:
		in.column, in.key = n.Column-1, ""
		for _, item := range n.Content {
			if err := r.read(item, nil, in); err != nil {
				return err
			}
		}
	case yaml.DocumentNode: // Documents are not nested.
	}
	return nil
}

// place is the position of a node.
type place struct {
	column int    // of the collection around it, from 0
	flow   bool   // in brackets or braces
	key    string // of which it is the value
}

func (r *reader) lexeme(n *yaml.Node, value *yaml.Node, in place) error {
	if !r.seek(n.Line-1, n.Column-1) {
		return misplaced(n)
	}
	l := lexeme{node: n, document: r.document, flow: in.flow, value: value, key: in.key, from: r.offset}
	if l.empty() {
		l.start, l.end = l.from, l.from
		r.lexemes = append(r.lexemes, l)
		return nil
	}
	l.start = behindProperties(r.content, l.from)
	rest := r.content[l.start:]
	length := -1
	switch {
	case n.Kind == yaml.AliasNode:
		if bytes.HasPrefix(rest, []byte("*"+n.Value)) {
			length = len("*" + n.Value)
		}
	case n.Style&yaml.DoubleQuotedStyle != 0:
		length = doubleQuoted(rest)
	case n.Style&yaml.SingleQuotedStyle != 0:
		length = singleQuoted(rest)
	case l.block():
		length = block(rest, in.column)
	default:
		length = plain(rest, n.Value)
	}
	if length < 0 {
		return misplaced(n)
	}
	l.end = l.start + length
	r.lexemes = append(r.lexemes, l)
	return nil
}

func misplaced(n *yaml.Node) error {
	return &Error{Line: n.Line, Err: ErrUnparsable, Detail: misplacedDetail}
}

const misplacedDetail = "a scalar is not at the position that the parser reports; write it in a simpler form"

// seek moves to a line and a column, both from 0. It returns false when there is no such
// place ahead.
func (r *reader) seek(line, column int) bool {
	for r.line < line || r.line == line && r.column < column {
		if r.offset == len(r.content) {
			// The parser adds a missing line end at the end of the file.
			return line == r.line+1 && column == 0
		}
		if width := lineBreak(r.content[r.offset:]); width > 0 {
			r.offset += width
			r.line, r.column = r.line+1, 0
			continue
		}
		_, width := utf8.DecodeRune(r.content[r.offset:])
		r.offset += width
		r.column++
	}
	return r.line == line && r.column == column
}
