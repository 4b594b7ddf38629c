// Package manifest puts a revision into the marked scalars of a YAML file and
// changes nothing else in it.
//
// Purpose: a line of a manifest bears a marker, as weaveworks pipeline-controller
// defined it:
//
//	version: 6.0.0 # {"$promotion": "<namespace>:<pipeline>:<environment>"}
//
// Edit replaces the whole scalar that the marker stands at by the revision.
// Mentions tells, without parsing, which files are worth editing.
//
// Contract: pure functions of bytes: no file, no clock, no state. Of the content
// only the bytes of marked scalars change: comments, blanks, line ends, byte order
// mark, quotes, anchors, tags and the other documents of the file stay as they
// are, to the byte. Before a result is returned it is parsed again, and every
// node but the marked ones must be what it was; otherwise there is an error and no
// result. An edit with the value that is there already changes nothing.
//
// # Where a marker stands
//
// A marker is a comment that is nothing but the JSON object. Behind a value, on
// its line, it marks that value. Behind "key:" it marks the key's value. On a line
// of its own it marks the value of the key, or the item, that begins directly
// below it, in the same column; other comments may stand between. What looks like
// a marker inside a string or inside a longer comment is none. It marks a scalar
// on one line, or the empty value of a key or an item, which is then filled. On a
// mapping, a list, an alias or a block scalar it is an error that names the mend.
//
// The parser attaches comments to nodes as well, but not always to the one that a
// reader would name ("- # marker" goes to the next item), so comments are placed
// by their position and the parser's nodes.
//
// # Several markers
//
// An environment may have several targets and so several manifests. Every document
// that bears the marker is edited, in one file or in many.
//
// Within one document the marker may stand at one scalar only (ErrTwoMarkers).
// One document is one object, which runs one revision; a second marker there is
// mostly a line that was copied together with its comment, and would put the
// revision over something else. weaveworks replaced both. Whoever needs the
// revision twice in an object anchors the marked one and refers to it by an alias.
// For the same reason a scalar may not bear the markers of two environments: to
// promote into one would be to promote into the other, past its gate.
//
// # How the value is written
//
// Quotes stay as they are. A plain scalar stays plain where that is the same string
// to every reader, by the rules of YAML 1.1 (sigs.k8s.io/yaml, by which Kubernetes
// and Flux read) and of 1.2 alike; where it is not (1.10, 1e3, true, 0x1, ~,
// 2001-01-01) it is put into double quotes. One number may follow another: a
// plain 7 becomes a plain 8, because whoever reads it as a number goes on to, and
// whoever wants a string gets the same digits.
//
// Trade-offs: the file is parsed twice and every scalar of it is located. That is
// one or two milliseconds for 200 lines, and is what makes "nothing else" a fact. A
// marker in a file that does not parse, such as a template, is an error; weaveworks
// passed over it in silence.
package manifest
