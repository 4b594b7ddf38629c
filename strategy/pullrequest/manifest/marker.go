package manifest

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Marker says which environment's revision a scalar is.
type Marker struct {
	// Namespace and name of the Pipeline.
	Namespace, Pipeline string
	// Environment of it, as spelt in its spec.
	Environment string
}

// String returns "<namespace>:<pipeline>:<environment>", as it stands in comments.
func (m Marker) String() string {
	return m.Namespace + ":" + m.Pipeline + ":" + m.Environment
}

// key of the marker's JSON object; weaveworks' word.
const key = "$promotion"

// needle is what every marker contains. It is searched for before anything else
// is done with a file, so a key that is spelt with escapes is no marker.
var needle = []byte(`"` + key + `"`)

// Mentions tells whether a line of the content ends in a comment that reads as the
// marker. It does not parse YAML: that the comment is one, and where it stands, is
// known only to Edit. No file without a mention has a marker.
func Mentions(content []byte, m Marker) bool {
	for mention := range mentions(content) {
		if mention.identity == m.String() {
			return true
		}
	}
	return false
}

// mention is a piece of text that reads as a marker.
type mention struct {
	// offset of its "#"; begin is that of its line.
	offset, begin int
	// identity that it names.
	identity string
}

// mentions yields them in the order of the content, one a line at most.
func mentions(content []byte) iter.Seq[mention] {
	return func(yield func(mention) bool) {
		for at := 0; ; {
			found := bytes.Index(content[at:], needle)
			if found < 0 {
				return
			}
			begin, end := line(content, at+found)
			at = end
			if offset, identity, ok := trailer(content[begin:end]); ok {
				if !yield(mention{offset: begin + offset, begin: begin, identity: identity}) {
					return
				}
			}
		}
	}
}

// line returns the bounds of the line around an offset, without its end. A byte
// order mark at the beginning belongs to no line.
func line(content []byte, offset int) (begin, end int) {
	begin = bytes.LastIndexAny(content[:offset], "\r\n") + 1
	if begin == 0 && bytes.HasPrefix(content, byteOrderMark) {
		begin = len(byteOrderMark)
	}
	end = len(content)
	if found := bytes.IndexAny(content[offset:], "\r\n"); found >= 0 {
		end = offset + found
	}
	return begin, end
}

// trailer finds the comment at the end of a line that is a marker's JSON object
// and nothing else.
func trailer(line []byte) (offset int, identity string, ok bool) {
	for at := range line {
		if line[at] != '#' || at > 0 && !blank(line[at-1]) {
			continue
		}
		text := bytes.TrimLeft(bytes.TrimLeft(line[at:], "#"), " \t")
		if !bytes.HasPrefix(text, []byte("{")) {
			continue
		}
		var fields map[string]string
		if json.Unmarshal(text, &fields) == nil && fields[key] != "" {
			return at, fields[key], true
		}
	}
	return 0, "", false
}
