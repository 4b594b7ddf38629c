// Package revision compares the revisions that applications report.
//
// # Purpose
//
// Flux reports the revision of a source as "main@sha1:<commit>" or "v1@sha256:<digest>":
// the name by which the source was found, and what was found. The same commit has another
// revision on another branch, and none of the names where a source selects it by the commit
// ("sha1:<commit>"). What runs is the same, so a promotion between the two would promote
// nothing. The decisions about promotions, and all that show them, use this rule.
//
// # Contract
//
// Two revisions are the same if their texts are equal, or if both end in the same digest.
// Only texts of the form [<name>@]<algorithm>:<hex>, with an algorithm and the length of
// its digest that Flux uses, have a digest. No version of a Helm chart has this form (a
// version contains neither "@" nor ":"), so two HelmReleases are compared by their texts.
// The text stays what users see. All functions are pure.
//
// Value returns a part of a revision (tag, digest or commit) as a field of a manifest takes it.
//
// # Locking
//
// None.
//
// # Trade-offs
//
// The form is recognised by its text, not by the kind of the application: statuses and
// Promotions keep only the text.
package revision
