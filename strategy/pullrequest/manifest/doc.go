// Package manifest writes a revision into the marked scalars of a YAML file and
// changes nothing else in it.
//
// Purpose: a line of a manifest has a marker, as weaveworks pipeline-controller
// defined it:
//
//	version: 6.0.0 # {"$promotion": "<namespace>:<pipeline>:<environment>"}
//
// Edit replaces the whole scalar at the marker by the revision. Mentions reports,
// without parsing, whether a file needs an edit.
//
// Contract: pure functions of bytes: no file, no clock, no state. Only the bytes of
// marked scalars change. Comments, blanks, line ends, byte order mark, quotes, anchors,
// tags and the other documents of the file stay the same, byte by byte. Before Edit
// returns a result, it parses the result and compares it: every node except the marked
// ones must be unchanged. Otherwise it returns an error and no result. An edit with the
// existing value changes nothing.
//
// # Position of a marker
//
// A marker is a comment that consists only of the JSON object. Behind a value, on
// its line, it marks that value. Behind "key:" it marks the key's value. On a line
// of its own it marks the value of the key, or the item, that begins directly
// below it, in the same column; other comments may be between them. The same text
// inside a string or inside a longer comment is not a marker. A marker marks a scalar
// on one line, or the empty value of a key or an item, which is then filled. On a
// mapping, a list, an alias or a block scalar it is an error that says what to change.
//
// The parser attaches comments to nodes as well, but not always to the node that a
// reader expects ("- # marker" is attached to the next item). So comments are assigned
// by their position and the parser's nodes.
//
// # Several markers
//
// An environment may have several targets and so several manifests. Every document
// with the marker is edited, in one file or in many.
//
// A document may have the marker several times, such as at the version of a chart and at
// the tag of its image. All of these scalars get the revision, as with weaveworks. A second
// marker may also be a line that was copied together with its comment. A boolean is never a
// version, so with several markers in a document, one at a boolean is an error
// (ErrTwoMarkers). A scalar may not have the markers of two environments (ErrTwoMarkers): a
// promotion into one would also promote into the other, past its gate.
//
// # Clusters
//
// A marker may name a cluster, which weaveworks does not know:
//
//	version: 6.0.0 # {"$promotion": "<namespace>:<pipeline>:<environment>", "cluster": "eu-1"}
//
// Marker.Selects says which of them are meant, so that a wave of an environment edits the manifests of its own
// clusters. A scalar with the markers of two clusters belongs to both; if only one of them is meant, that is an
// error (ErrTwoMarkers).
//
// # Parts
//
// A marker may have a fourth part that says which part of the revision is written (package internal/revision), as
// Flux's $imagepolicy does:
//
//	commit: 9f86d081... # {"$promotion": "<namespace>:<pipeline>:<environment>:commit"}
//
// Namespaces and names of Pipelines have no colon, and the environment of a Marker is known: what follows it is nothing or
// one of the parts. A Pipeline with the environments "prod" and "prod:tag" is refused elsewhere, so no text of a marker
// belongs to two environments. A part that the revision does not have is an error (ErrPart). OnlyCommits
// compares files without the values of markers with the part commit.
//
// # How the value is written
//
// Quotes stay as they are. A plain scalar stays plain where every reader reads it as
// the same string, by the rules of YAML 1.1 (sigs.k8s.io/yaml, by which Kubernetes
// and Flux read) and of 1.2. Otherwise (1.10, 1e3, true, 0x1, ~, 2001-01-01) it is
// written in double quotes. A number may replace a number: a plain 7 becomes a plain 8,
// because a reader of numbers still gets a number, and a reader of strings gets the same
// digits.
//
// Trade-offs: the file is parsed twice and every scalar of it is located. That takes
// one or two milliseconds for 200 lines, and proves that nothing else changed. A
// marker in a file that does not parse, such as a template, is an error; weaveworks
// ignored such files without a message.
package manifest
