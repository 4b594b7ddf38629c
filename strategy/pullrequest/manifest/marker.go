package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/capstan-hub/capstan/internal/revision"
)

// Marker names the environment whose revision a scalar holds.
type Marker struct {
	// Namespace and name of the Pipeline.
	Namespace, Pipeline string
	// Environment of the Pipeline, as written in its spec.
	Environment string
	// Selects returns whether a marker with a cluster is meant; the cluster is empty if the marker has none. All are
	// if it is nil.
	Selects func(cluster string) bool
}

// is returns whether a mention is the marker, with any part or none.
func (m Marker) is(of mention) bool {
	_, ok := m.partOf(of)
	return ok && (m.Selects == nil || m.Selects(of.cluster))
}

// partOf returns the part of the revision that a mention of the marker requests; empty for
// all of it. It is false if the mention is of another environment.
func (m Marker) partOf(of mention) (part revision.Part, ok bool) {
	rest, ok := strings.CutPrefix(of.identity, m.String())
	if !ok || rest == "" {
		return "", ok
	}
	i := slices.IndexFunc(revision.Parts, func(one revision.Part) bool { return rest == ":"+string(one) })
	if i < 0 {
		return "", false
	}
	return revision.Parts[i], true
}

// Forms returns the values that the key of the marker's JSON object may have.
func (m Marker) Forms() []string {
	forms := []string{m.String()}
	for _, part := range revision.Parts {
		forms = append(forms, m.String()+":"+string(part))
	}
	return forms
}

// String returns "<namespace>:<pipeline>:<environment>", as written in comments. A part of
// the revision may follow it.
func (m Marker) String() string {
	return m.Namespace + ":" + m.Pipeline + ":" + m.Environment
}

// key is the key of the marker's JSON object, as defined by weaveworks. clusterKey is Capstan's own.
const (
	key        = "$promotion"
	clusterKey = "cluster"
)

// needle is contained in every marker. It is searched for before a file is parsed, so a
// key that is written with escapes is not a marker.
var needle = []byte(`"` + key + `"`)

// Mentions reports whether a line of the content ends in text that has the form of the
// marker. It does not parse YAML: only Edit determines whether the text is a comment, and
// its position. A file without a mention has no marker.
func Mentions(content []byte, m Marker) bool {
	for mention := range mentions(content) {
		if m.is(mention) {
			return true
		}
	}
	return false
}

// mention is text that has the form of a marker.
type mention struct {
	// offset of its "#"; begin is the offset of its line.
	offset, begin int
	// identity is the value of the marker.
	identity string
	// cluster of the marker; empty if it has none.
	cluster string
}

// String returns the marker as text for users.
func (m mention) String() string {
	if m.cluster == "" {
		return fmt.Sprintf("%q", m.identity)
	}
	return fmt.Sprintf("%q with the cluster %q", m.identity, m.cluster)
}

// mentions yields the mentions in the order of the content, at most one per line.
func mentions(content []byte) iter.Seq[mention] {
	return func(yield func(mention) bool) {
		for at := 0; ; {
			found := bytes.Index(content[at:], needle)
			if found < 0 {
				return
			}
			begin, end := line(content, at+found)
			at = end
			if offset, fields, ok := trailer(content[begin:end]); ok {
				if !yield(mention{offset: begin + offset, begin: begin, identity: fields[key], cluster: fields[clusterKey]}) {
					return
				}
			}
		}
	}
}

// line returns the bounds of the line around an offset, without its line end. A byte
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

// trailer finds the comment at the end of a line that consists only of a marker's JSON
// object. It returns the fields of that.
func trailer(line []byte) (offset int, fields map[string]string, ok bool) {
	for at := range line {
		if line[at] != '#' || at > 0 && !blank(line[at-1]) {
			continue
		}
		text := bytes.TrimLeft(bytes.TrimLeft(line[at:], "#"), " \t")
		if !bytes.HasPrefix(text, []byte("{")) {
			continue
		}
		fields = nil
		if json.Unmarshal(text, &fields) == nil && fields[key] != "" {
			return at, fields, true
		}
	}
	return 0, nil, false
}
