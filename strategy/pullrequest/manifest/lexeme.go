package manifest

import (
	"bytes"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var byteOrderMark = []byte("\ufeff")

// lexeme is a scalar or an alias as it stands in the file.
type lexeme struct {
	node *yaml.Node
	// document of the file that it is in, from 0.
	document int
	// flow tells whether it is between brackets or braces.
	flow bool
	// value is the pair's, when the lexeme is a key; nil otherwise.
	value *yaml.Node
	// from is where its anchor and tag begin, start where its own text does (an
	// opening quote is part of it); end is behind its last byte. An empty one has
	// all three where it begins.
	from, start, end int
}

// text of the lexeme in the file, without anchor and tag.
func (l *lexeme) text(content []byte) []byte { return content[l.start:l.end] }

// tagged tells whether it has a tag of its own.
func (l *lexeme) tagged(content []byte) bool {
	return bytes.ContainsRune(content[l.from:l.start], '!')
}

// empty tells whether it is no text at all, but perhaps an anchor and a tag.
func (l *lexeme) empty() bool {
	const written = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return l.node.Kind == yaml.ScalarNode && l.node.Value == "" && l.node.Style&written == 0
}

// block tells whether it is a literal or folded scalar.
func (l *lexeme) block() bool {
	return l.node.Kind == yaml.ScalarNode && l.node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0
}

// locate returns the lexemes of the documents in the order of the file. The parser
// tells lines and columns of their beginnings, in characters; their ends are read
// off the content.
func locate(content []byte, documents []*yaml.Node) ([]lexeme, error) {
	r := reader{content: content}
	if bytes.HasPrefix(content, byteOrderMark) {
		r.offset = len(byteOrderMark) // which the parser does not count as a column
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

// reader walks nodes and content side by side.
type reader struct {
	content  []byte
	document int
	lexemes  []lexeme

	// Where it is: an offset, and the line and column that the parser would tell,
	// here from 0. It moves forward only, so that a file of one long line is read once.
	offset, line, column int
}

// read reads a node and what is in it. value is the pair's, when the node is a
// key; in is where it stands.
func (r *reader) read(n *yaml.Node, value *yaml.Node, in place) error {
	in.flow = in.flow || n.Style&yaml.FlowStyle != 0
	switch n.Kind {
	case yaml.ScalarNode, yaml.AliasNode:
		return r.lexeme(n, value, in)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			in.column = k.Column - 1
			if err := r.read(k, v, in); err != nil {
				return err
			}
			if err := r.read(v, nil, in); err != nil {
				return err
			}
		}
	case yaml.SequenceNode:
		in.column = n.Column - 1
		for _, item := range n.Content {
			if err := r.read(item, nil, in); err != nil {
				return err
			}
		}
	case yaml.DocumentNode: // has none inside
	}
	return nil
}

// place is where a node stands.
type place struct {
	column int  // of the collection around it, from 0
	flow   bool // in brackets or braces
}

func (r *reader) lexeme(n *yaml.Node, value *yaml.Node, in place) error {
	if !r.seek(n.Line-1, n.Column-1) {
		return misplaced(n)
	}
	l := lexeme{node: n, document: r.document, flow: in.flow, value: value, from: r.offset}
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

const misplacedDetail = "a scalar is not where the parser saw it; write it in a plainer form"

// seek moves to a line and a column, both from 0; false when there is no such
// place ahead.
func (r *reader) seek(line, column int) bool {
	for r.line < line || r.line == line && r.column < column {
		if r.offset == len(r.content) {
			// The parser ends the last line if the file does not.
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
