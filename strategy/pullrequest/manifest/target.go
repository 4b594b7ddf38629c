package manifest

import (
	"bytes"
	"fmt"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/capstan-hub/capstan/internal/revision"
)

// mark is what the markers of a scalar say.
type mark struct {
	// part of the revision; empty for all of it.
	part revision.Part
	// clusters of the markers; an empty one for a marker without a cluster.
	clusters []string
}

// targets returns the scalars that have the marker, in the order of the file, and what their markers say.
func targets(content []byte, lexemes []lexeme, m Marker) ([]*lexeme, map[*lexeme]*mark, error) {
	p := places{content: content, lexemes: lexemes, below: -1}
	var found []*lexeme
	foreign := map[*lexeme]string{} // another marker at a scalar
	marks := map[*lexeme]*mark{}
	for mention := range mentions(content) {
		target, err := p.target(mention)
		if !m.is(mention) {
			// Markers of other environments and clusters are ignored, unless they are at one of these scalars.
			if target != nil {
				foreign[target] = mention.String()
			}
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if target == nil {
			continue
		}
		part, _ := m.partOf(mention)
		if marks[target] == nil {
			marks[target] = &mark{part: part}
		}
		if marks[target].part != part {
			return nil, nil, p.err(target.start, ErrTwoMarkers, "the scalar has markers with different parts of the revision; keep one of them")
		}
		marks[target].clusters = append(marks[target].clusters, mention.cluster)
		if len(found) > 0 && found[len(found)-1] == target {
			continue // One scalar, with markers above it and behind it.
		}
		found = append(found, target)
	}
	for _, target := range found {
		if other, ok := foreign[target]; ok {
			return nil, nil, p.err(target.start, ErrTwoMarkers, fmt.Sprintf(
				"the scalar also has the marker of %s, but can belong to one environment, and to one of its waves, only; remove one of them", other))
		}
	}
	return found, marks, nil
}

// places finds the scalars that markers refer to.
type places struct {
	content []byte
	lexemes []lexeme

	// The index of the lexeme in the last call of above, and the offset of the comments
	// above it, so that many markers above one value cost no more than one.
	below, top int
}

// target returns the scalar that a mention marks. It returns nil when the mention is not a
// comment of its own, and an error when no revision can be written at what it marks.
func (p *places) target(m mention) (*lexeme, error) {
	next := sort.Search(len(p.lexemes), func(i int) bool { return p.lexemes[i].from >= m.offset })
	if next == 0 {
		if len(trim(p.content[m.begin:m.offset])) == 0 {
			return p.above(m, next)
		}
		return p.behind(m, -1, m.begin)
	}
	previous := &p.lexemes[next-1]
	switch {
	case m.offset < previous.start: // behind its anchor, the text below
		return p.scalar(m, next-1)
	case m.offset < previous.end:
		if previous.block() && !multiline(p.content[previous.start:m.offset]) { // behind "|"
			return p.scalar(m, next-1)
		}
		return nil, nil // in a string
	case previous.end <= m.begin && len(trim(p.content[m.begin:m.offset])) == 0:
		return p.above(m, next)
	default:
		return p.behind(m, next-1, max(previous.end, m.begin))
	}
}

// behind returns the target of a mention that follows other text on its line. previous is
// the index of the lexeme before it, or -1; from is the offset behind that lexeme.
func (p *places) behind(m mention, previous, from int) (*lexeme, error) {
	between := string(trim(p.content[from:m.offset]))
	sameLine := previous >= 0 && p.lexemes[previous].end >= m.begin
	switch {
	case strings.Contains(between, "#"):
		return nil, nil // the end of a longer comment
	case sameLine && between == ":" && p.lexemes[previous].value != nil:
		return p.scalarOfKey(m, previous)
	case sameLine && (between == "" || between == ","):
		return p.scalar(m, previous)
	default:
		return nil, p.notScalar(m)
	}
}

// above returns the target of a mention on a line of its own; next is the index of the
// first lexeme behind it.
func (p *places) above(m mention, next int) (*lexeme, error) {
	if next == len(p.lexemes) {
		return nil, p.notScalar(m)
	}
	l := &p.lexemes[next]
	begin, _ := line(p.content, l.from)
	if p.below != next {
		p.below, p.top = next, topOfComments(p.content, begin)
	}
	indent, lead := p.content[m.begin:m.offset], p.content[begin:l.from]
	if m.begin < p.top || !bytes.HasPrefix(lead, indent) {
		return nil, p.notScalar(m)
	}
	switch lead = lead[len(indent):]; {
	case len(lead) == 0 && l.value != nil:
		return p.scalarOfKey(m, next)
	case len(lead) == 0 || lead[0] == '-' && len(trim(lead[1:])) == 0:
		return p.scalar(m, next)
	default:
		return nil, p.notScalar(m)
	}
}

// topOfComments returns the offset of the block of comment lines directly above the line
// that begins at an offset.
func topOfComments(content []byte, begin int) int {
	for begin > 0 {
		end := begin - 1
		if end > 0 && content[end] == '\n' && content[end-1] == '\r' {
			end--
		}
		above, _ := line(content, end)
		if above > end || !bytes.HasPrefix(bytes.TrimLeft(content[above:end], " \t"), []byte("#")) {
			break
		}
		begin = above
	}
	return begin
}

// scalarOfKey returns the value of the key at an index.
func (p *places) scalarOfKey(m mention, key int) (*lexeme, error) {
	switch p.lexemes[key].value.Kind {
	case yaml.ScalarNode, yaml.AliasNode:
		return p.scalar(m, key+1)
	case yaml.MappingNode, yaml.SequenceNode, yaml.DocumentNode:
	}
	return nil, p.notScalar(m)
}

// scalar returns the lexeme at an index, if a revision can be written there.
func (p *places) scalar(m mention, i int) (*lexeme, error) {
	l := &p.lexemes[i]
	before := p.content[max(0, l.end-1):l.end]
	switch {
	case l.value != nil: // a key
		return nil, p.notScalar(m)
	case l.node.Kind == yaml.AliasNode:
		return nil, p.err(m.offset, ErrNotScalar, "it is the alias *"+l.node.Value+"; put the marker behind the value that has this anchor")
	case l.block():
		return nil, p.err(m.offset, ErrMultiline, "it is a block scalar; write the value behind its key, in quotes")
	case multiline(l.text(p.content)):
		return nil, p.err(m.offset, ErrMultiline, "write it on one line")
	case l.tagged(p.content) && l.node.ShortTag() != stringTag:
		return nil, p.err(m.offset, ErrNotString, "a revision is a string; remove the tag")
	case l.empty() && (l.flow || !bytes.ContainsAny(before, ":-")):
		return nil, p.err(m.offset, ErrNotScalar, `there is no value; write "" there`)
	}
	return l, nil
}

func (p *places) notScalar(m mention) error {
	return p.err(m.offset, ErrNotScalar, "put it behind a value, on the value's line, or directly above its key, in the key's column")
}

func (p *places) err(offset int, sentinel error, detail string) error {
	return &Error{Line: lineOf(p.content, offset), Err: sentinel, Detail: detail}
}

// lineOf returns the line of an offset as editors and Git count, from 1.
func lineOf(content []byte, offset int) int {
	return 1 + bytes.Count(content[:offset], []byte("\n"))
}
