package revision

import (
	"strings"

	"github.com/Masterminds/semver/v3"
)

// digits is the number of hexadecimal digits of a digest, for each algorithm that Flux
// uses: sha1 and sha256 for Git, the others for OCI artifacts and buckets.
var digits = map[string]int{"sha1": 40, "sha256": 64, "sha384": 96, "sha512": 128}

// Split returns the two parts of a revision that has a digest: the name of the branch or
// tag, which may be empty, and the digest with its algorithm. ok is false for a revision
// without a digest.
func Split(revision string) (name, digest string, ok bool) {
	at := strings.LastIndexByte(revision, '@')
	digest = revision[at+1:]
	algorithm, hex, _ := strings.Cut(digest, ":")
	if at == 0 || len(hex) == 0 || len(hex) != digits[algorithm] || strings.Trim(hex, "0123456789abcdef") != "" {
		return "", "", false
	}
	return revision[:max(at, 0)], digest, true
}

// Content returns what identifies the content of a revision: its digest, or the whole text
// if it has none.
func Content(revision string) string {
	if _, digest, ok := Split(revision); ok {
		return digest
	}
	return revision
}

// Same returns whether two revisions have the same content.
func Same(a, b string) bool { return a == b || Content(a) == Content(b) }

// Distance is which number of two semantic versions differs first.
type Distance string

// Distances.
const (
	MajorChange Distance = "Major"
	MinorChange Distance = "Minor"
	PatchChange Distance = "Patch"
)

// Change returns which number of two versions differs first; PatchChange if only what follows the numbers
// does. It is false unless both are semantic versions.
func Change(a, b string) (Distance, bool) {
	from, err := semver.NewVersion(a)
	if err != nil {
		return "", false
	}
	to, err := semver.NewVersion(b)
	switch {
	case err != nil:
		return "", false
	case from.Major() != to.Major():
		return MajorChange, true
	case from.Minor() != to.Minor():
		return MinorChange, true
	}
	return PatchChange, true
}

// Older returns whether a is an older version than b. It is false unless both are semantic versions.
func Older(a, b string) bool {
	older, err := semver.NewVersion(a)
	if err != nil {
		return false
	}
	newer, err := semver.NewVersion(b)
	return err == nil && older.LessThan(newer)
}
