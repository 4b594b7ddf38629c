package revision

import (
	"fmt"
	"strings"
)

// Part names a part of a revision, as the fields of Flux's sources take it.
type Part string

// Parts of a revision.
const (
	// Tag is the name before the digest, without refs/tags/; of a revision without a digest,
	// all of it. Flux does not say whether a name is that of a tag or of a branch, unless it
	// begins with refs/.
	Tag Part = "tag"
	// Digest of an OCI artifact or a bucket, with its algorithm.
	Digest Part = "digest"
	// Commit of a Git repository: 40 hexadecimal digits, without the algorithm. Argo CD reports
	// nothing else.
	Commit Part = "commit"
)

// Parts lists all parts.
var Parts = []Part{Tag, Digest, Commit}

// Forms of the names and digests of Flux.
const (
	sha1 = "sha1:"
	tags = "refs/tags/"
	refs = "refs/"
)

// Value returns a part of a revision, or all of it if no part is given. The error says what
// the revision has.
func Value(revision string, part Part) (string, error) {
	if part == "" {
		return revision, nil
	}
	if value := partsOf(revision)[part]; value != "" {
		return value, nil
	}
	if found := Has(revision); len(found) > 0 {
		return "", fmt.Errorf("revision %s has no %s; write one of what it has into the marker: %s", revision, part, found)
	}
	return "", fmt.Errorf("revision %s has no %s, and no other part that a marker can request", revision, part)
}

// partsOf returns the parts that a revision has.
func partsOf(revision string) map[Part]string {
	name, digest, ok := Split(revision)
	switch {
	case !ok && strings.ContainsAny(revision, "@:"):
		return nil // A form that is not known.
	case !ok:
		name = revision
	}
	has := map[Part]string{}
	if name = strings.TrimPrefix(name, tags); !strings.HasPrefix(name, refs) {
		has[Tag] = name
	}
	if commit, is := strings.CutPrefix(digest, sha1); is && ok {
		has[Commit] = commit
	} else if ok {
		has[Digest] = digest
	} else if len(revision) == digits["sha1"] && strings.Trim(revision, "0123456789abcdef") == "" {
		has[Commit] = revision // As Argo CD reports it. An image may have it as its tag.
	}
	return has
}

// Has returns the parts that a revision has, in the order of Parts.
func Has(revision string) []Part {
	has := partsOf(revision)
	var found []Part
	for _, one := range Parts {
		if has[one] != "" {
			found = append(found, one)
		}
	}
	return found
}
