package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/manifest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// edit is the change that a promotion makes to a commit of the base branch.
type edit struct {
	files map[string][]byte
	// before has the hash of each file before the edit.
	before map[string]gitrepo.Hash
	places []place
}

func (e edit) empty() bool { return len(e.files) == 0 }

// edits returns the edits of all manifests at a commit that have the marker.
func (a *act) edits(ctx context.Context, c *gitrepo.Clone, base gitrepo.Hash) (edit, error) {
	wave := membersOf(a.p)
	marker := manifest.Marker{Namespace: a.p.Namespace, Pipeline: a.p.Spec.Pipeline.Name, Environment: a.p.Spec.BaseEnvironment(), Selects: wave.selects()}
	e := edit{files: map[string][]byte{}, before: map[string]gitrepo.Hash{}}
	marked := false
	err := c.Manifests(ctx, base, func(f gitrepo.File) error {
		if f.TooLarge {
			return a.tooLarge(c, f, marker)
		}
		if !manifest.Mentions(f.Content, marker) {
			return nil
		}
		edited, changes, err := manifest.Edit(f.Content, marker, a.p.Spec.Revision)
		switch {
		case errors.Is(err, manifest.ErrNoMarker):
			return nil // The marker is in a string, or quoted in a longer comment.
		case err != nil:
			return fmt.Errorf("%s on branch %s: %w", oneLine(f.Path), a.spec.BaseBranch, err)
		}
		marked = true
		wave.note(changes)
		changes = slices.DeleteFunc(changes, func(c manifest.Change) bool { return c.From == c.To })
		if len(changes) == 0 || string(edited) == string(f.Content) {
			return nil
		}
		e.files[f.Path], e.before[f.Path] = edited, f.Hash
		for _, change := range changes {
			if err := usable(a.p, marker, change); err != nil {
				return fmt.Errorf("%s line %d on branch %s: %w", oneLine(f.Path), change.Line, a.spec.BaseBranch, err)
			}
			e.places = append(e.places, place{path: f.Path, line: change.Line, from: change.From, to: change.To, part: change.Part})
		}
		return nil
	})
	if err != nil {
		return edit{}, err
	}
	if err := wave.complete(a, marker); err != nil {
		return edit{}, err
	}
	if !marked {
		return edit{}, fail(ReasonNoMarker, "no YAML file on branch %s of %s has the marker: put the comment # {\"$promotion\": \"%s:%s:%s\"} behind the version to be promoted",
			a.spec.BaseBranch, a.provider.Repository(), a.p.Namespace, a.p.Spec.Pipeline.Name, oneLine(a.p.Spec.BaseEnvironment()))
	}
	return e, nil
}

// digestField is the field of Flux' OCIRepository, and of an image of kustomize, whose value
// is a digest with its algorithm.
const digestField = "digest"

// usable returns an error for a revision that no program could use in the marked field.
// Flux reports what it found as "<branch or tag>@<digest>". A field selects by the one or
// by the other, so the source would find nothing. The marker says which part is written.
func usable(p *capstanv1.Promotion, marker manifest.Marker, change manifest.Change) error {
	name, digest, ok := revision.Split(p.Spec.Revision)
	if !ok || change.Part != "" || name == "" && change.Field == digestField && !strings.HasPrefix(digest, "sha1:") {
		return nil
	}
	has := revision.Has(p.Spec.Revision)
	return fail(ReasonUnwritableRevision, "revision %s of %s %s cannot be written to the field %q: it is what Flux reports about a source, and a field takes one part of it. "+
		"Append the part to the marker, such as # {\"$promotion\": \"%s:%s\"} (this revision has: %s), or promote this application with the strategy notification",
		short(p.Spec.Revision), p.Spec.App.Kind, p.Spec.App.Name, short(change.Field), oneLine(marker.String()), has[len(has)-1], has)
}

// tooLarge returns an error for a file over the limit that has the marker. Other large
// files are skipped.
func (a *act) tooLarge(c *gitrepo.Clone, f gitrepo.File, marker manifest.Marker) error {
	found := false
	for _, form := range marker.Forms() {
		var err error
		if found, err = c.Contains(f, `"`+form+`"`); err != nil {
			return err
		}
		if found {
			break
		}
	}
	if !found {
		return nil
	}
	return fail(ReasonFileTooLarge, "%s has the marker, but its size is %d MiB; move the promoted object into a file of its own", oneLine(f.Path), f.Size>>20)
}

// built is the branch after a promotion has built it.
type built struct {
	// nothing is set when no change is needed: the base has the revision.
	nothing bool
	// unchanged is set when the revision brings nothing new.
	unchanged bool
	// head of the branch, and the base commit that it was built on.
	head, base gitrepo.Hash
	// foreign is set when the branch has commits of a person; head is then theirs.
	foreign bool
	places  []place
}

// build brings the branch to the state that the promotion needs. open is true if an open
// pull request for it belongs to this promotion.
func (a *act) build(ctx context.Context, prs []provider.PullRequest, open bool) (b built, err error) {
	err = a.clone(ctx, func(ctx context.Context, c *gitrepo.Clone) error {
		b, err = a.rebuild(ctx, c, prs, open)
		return err
	})
	return b, err
}

func (a *act) rebuild(ctx context.Context, c *gitrepo.Clone, prs []provider.PullRequest, open bool) (built, error) {
	base, err := a.base(c)
	if err != nil {
		return built{}, err
	}
	old, exists := c.Branch(a.branch)
	needed := []gitrepo.Hash{base}
	if exists && old != base {
		needed = append(needed, old)
	}
	// A history of two: the branch's commit and the base that it was built on.
	if err := c.Fetch(ctx, 2, needed...); err != nil {
		return built{}, err
	}
	e, err := a.edits(ctx, c, base)
	if err != nil {
		return built{}, err
	}
	if e.empty() {
		return built{nothing: true, base: base}, nil
	}
	if unchanged, err := a.unchanged(ctx, c, e); err != nil || unchanged {
		return built{unchanged: unchanged, base: base}, err
	}
	if exists && old != base {
		head, err := c.Commit(old)
		if err != nil {
			return built{}, err
		}
		foreign, err := a.foreign(ctx, c, head, base, prs)
		switch {
		case err != nil:
			return built{}, err
		case foreign != nil && open:
			return built{foreign: true, head: old, base: base, places: e.places}, nil
		case foreign != nil:
			return built{}, a.modified(*foreign)
		}
		if readClaim(head.Message).relationTo(a.p) == mine && ownCommit(head) {
			fits, err := a.fits(ctx, c, head, base, e)
			if err != nil {
				return built{}, err
			}
			if fits && a.current(head, base) {
				return built{head: old, base: base, places: e.places}, nil
			}
		}
		if updated, err := a.updatedFits(ctx, c, head, base, e); err != nil || updated {
			return built{head: old, base: base, places: e.places}, err
		}
	}
	made, err := c.Make(ctx, a.change(base, e))
	if err != nil {
		return built{}, err
	}
	if made.Hash != old {
		if err := a.may(ctx, strategy.StepPush); err != nil {
			return built{}, err
		}
		if err := c.Push(ctx, a.branch, old, made); err != nil {
			return built{}, err
		}
	}
	return built{head: made.Hash, base: base, places: e.places}, nil
}

// maxBelow is the number of weave's commits that are searched for a person's commit below
// them. weave never rebuilt its branch: it has one commit for each promotion since the
// branch was last deleted.
const maxBelow = 500

// foreign returns a commit of the branch that must be kept: it is a person's, and no merged
// pull request has carried it into the base. It returns nil when there is none. The hub
// puts its own commit directly onto the base, so nothing of the branch is below it; weave
// put its commits onto whatever the branch had.
func (a *act) foreign(ctx context.Context, c *gitrepo.Clone, head gitrepo.Commit, base gitrepo.Hash, prs []provider.PullRequest) (*gitrepo.Commit, error) {
	merged := func(commit gitrepo.Commit) bool {
		return slices.ContainsFunc(prs, func(pr provider.PullRequest) bool {
			return pr.State == provider.Merged && strings.EqualFold(pr.HeadSHA, commit.Hash.String())
		})
	}
	switch {
	case ownCommit(head) && readClaim(head.Message).relationTo(a.p) == newer:
		return nil, higher(nil, readClaim(head.Message))
	case ownCommit(head), merged(head):
		return nil, nil //nolint:nilnil // None is the answer.
	case !weavesCommit(head):
		switch updated, err := a.updated(ctx, c, head, base); {
		case err != nil:
			return nil, err
		case updated != nil:
			return nil, nil //nolint:nilnil // None is the answer.
		}
		return &head, nil
	}
	return c.Foreign(ctx, head.Hash, base, maxBelow, func(commit gitrepo.Commit) bool { return weavesCommit(commit) || ownCommit(commit) }, merged)
}

// modified returns the error for a branch that also has a person's commit.
func (a *act) modified(by gitrepo.Commit) error {
	return fail(ReasonBranchModified, "branch %s has commit %s of %s, which the hub did not make and no merged pull request has carried into %s: merge, rename or delete the branch",
		a.branch, by.Hash.String()[:12], oneLine(by.Author.Name), a.spec.BaseBranch)
}

// change returns the promotion's commit on a base.
func (a *act) change(base gitrepo.Hash, e edit) gitrepo.Change {
	return gitrepo.Change{Parent: base, Files: e.files, By: author, At: a.p.CreationTimestamp.Time, Message: message(a.p)}
}

// fits reports whether the promotion's commit, which was built on an earlier base, is still
// correct: the promotion would make the same commit there today, the base has not changed
// those files since, and the earlier base is in its history.
func (a *act) fits(ctx context.Context, c *gitrepo.Clone, head gitrepo.Commit, base gitrepo.Hash, e edit) (bool, error) {
	if len(head.Parents) != 1 {
		return false, nil
	}
	parent := head.Parents[0]
	for path, now := range e.before {
		if then, ok := c.FileHash(parent, path); !ok || then != now {
			return false, nil
		}
	}
	made, err := c.Make(ctx, a.change(parent, e))
	if err != nil || made.Hash != head.Hash {
		return false, err
	}
	return a.descends(ctx, c, head.Hash, base, parent)
}
