package revision

import (
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Rejected is a list of revisions: single ones and ranges of semantic versions.
type Rejected struct {
	entries []rejected
}

type rejected struct {
	text string
	// versions is nil for a single revision.
	versions *semver.Constraints
}

// ParseRejected parses a list. An entry with one of the characters < > = ! ~ ^ | * or a comma is a range,
// such as ">=2.0.0 <2.0.3", which includes prereleases. Any other entry is one revision. The error names
// the first entry that is neither, by its index.
func ParseRejected(list []string) (Rejected, error) {
	var r Rejected
	for i, text := range list {
		one := rejected{text: text}
		if strings.ContainsAny(text, "<>=!~^|*,") {
			versions, err := semver.NewConstraint(text)
			if err != nil {
				return r, fmt.Errorf("[%d]: %q is not a range of semantic versions, such as \">=2.0.0 <2.0.3\": %w", i, text, err)
			}
			versions.IncludePrerelease = true
			one.versions = versions
		}
		r.entries = append(r.entries, one)
	}
	return r, nil
}

// Has returns the entry that contains a revision.
func (r Rejected) Has(revision string) (entry string, is bool) {
	var version *semver.Version
	for _, e := range r.entries {
		switch {
		case e.versions == nil:
			if is = Same(e.text, revision); is {
				return e.text, true
			}
			continue
		case version == nil:
			var err error
			if version, err = semver.NewVersion(revision); err != nil {
				version = &semver.Version{}
				continue
			}
		}
		if version.Original() != "" && e.versions.Check(version) {
			return e.text, true
		}
	}
	return "", false
}
