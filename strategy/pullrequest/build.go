package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/manifest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// edit is what a promotion changes at a commit of the base branch.
type edit struct {
	files map[string][]byte
	// before is the hash of each of the files as it was.
	before map[string]gitrepo.Hash
	places []place
}

func (e edit) empty() bool { return len(e.files) == 0 }

// edits of all manifests at a commit that bear the marker.
func (a *act) edits(ctx context.Context, c *gitrepo.Clone, base gitrepo.Hash) (edit, error) {
	marker := manifest.Marker{Namespace: a.p.Namespace, Pipeline: a.p.Spec.Pipeline.Name, Environment: a.p.Spec.Environment}
	e := edit{files: map[string][]byte{}, before: map[string]gitrepo.Hash{}}
	marked := false
	err := c.Manifests(ctx, base, func(f gitrepo.File) error {
		if f.TooLarge {
			return a.tooLarge(c, f)
		}
		if !manifest.Mentions(f.Content, marker) {
			return nil
		}
		edited, changes, err := manifest.Edit(f.Content, marker, a.p.Spec.Revision)
		switch {
		case errors.Is(err, manifest.ErrNoMarker):
			return nil // it stands in a string, or is quoted in a longer comment
		case err != nil:
			return fmt.Errorf("%s on branch %s: %w", oneLine(f.Path), a.spec.BaseBranch, err)
		}
		marked = true
		changes = slices.DeleteFunc(changes, func(c manifest.Change) bool { return c.From == c.To })
		if len(changes) == 0 || string(edited) == string(f.Content) {
			return nil
		}
		e.files[f.Path], e.before[f.Path] = edited, f.Hash
		for _, change := range changes {
			e.places = append(e.places, place{path: f.Path, line: change.Line, from: change.From, to: change.To})
		}
		return nil
	})
	if err != nil {
		return edit{}, err
	}
	if !marked {
		return edit{}, fail(ReasonNoMarker, "no YAML file on branch %s of %s has the marker: put the comment # {\"$promotion\": \"%s:%s:%s\"} behind the version to be promoted",
			a.spec.BaseBranch, a.provider.Repository(), a.p.Namespace, a.p.Spec.Pipeline.Name, oneLine(a.p.Spec.Environment))
	}
	return e, nil
}

// tooLarge files are not edited; one with the marker is not passed over in silence.
func (a *act) tooLarge(c *gitrepo.Clone, f gitrepo.File) error {
	key := fmt.Sprintf(`"%s:%s:%s"`, a.p.Namespace, a.p.Spec.Pipeline.Name, a.p.Spec.Environment)
	found, err := c.Contains(f, key)
	if err != nil || !found {
		return err
	}
	return fail(ReasonFileTooLarge, "%s bears the marker, but is of %d MiB; put what is promoted into a file of its own", oneLine(f.Path), f.Size>>20)
}

// built is the branch as a promotion left it.
type built struct {
	// nothing is to be changed: the base has the revision.
	nothing bool
	// head of the branch, and the base commit that it was built on.
	head, base gitrepo.Hash
	// foreign is set when the branch is a person's; head is theirs then.
	foreign bool
	places  []place
}

// build makes the branch be what the promotion wants. open tells whether a pull
// request for it is open, and this promotion's.
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
	wants := []gitrepo.Hash{base}
	if exists && old != base {
		wants = append(wants, old)
	}
	// Two of history: the branch's commit and the base that it was built on.
	if err := c.Fetch(ctx, 2, wants...); err != nil {
		return built{}, err
	}
	e, err := a.edits(ctx, c, base)
	if err != nil {
		return built{}, err
	}
	if e.empty() {
		return built{nothing: true, base: base}, nil
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
			if fits {
				return built{head: old, base: base, places: e.places}, nil
			}
		}
	}
	made, err := c.Make(ctx, a.change(base, e))
	if err != nil {
		return built{}, err
	}
	if made.Hash != old {
		if err := a.outranked(ctx); err != nil {
			return built{}, err
		}
		if err := c.Push(ctx, a.branch, old, made); err != nil {
			return built{}, err
		}
	}
	return built{head: made.Hash, base: base, places: e.places}, nil
}

// maxBelow is how many of weave's commits are looked through for a person's below them.
// weave never rebuilt its branch: it has as many as it promoted since somebody deleted it.
const maxBelow = 500

// foreign returns a commit of the branch that may not be lost, for it is a person's and
// no merged pull request has carried it into the base; nil when there is none. The hub
// puts its own commit right onto the base, so that below it there is nothing of the
// branch; weave put its commits onto whatever was there.
func (a *act) foreign(ctx context.Context, c *gitrepo.Clone, head gitrepo.Commit, base gitrepo.Hash, prs []provider.PullRequest) (*gitrepo.Commit, error) {
	merged := func(commit gitrepo.Commit) bool {
		return slices.ContainsFunc(prs, func(pr provider.PullRequest) bool {
			return pr.State == provider.Merged && strings.EqualFold(pr.HeadSHA, commit.Hash.String())
		})
	}
	switch {
	case ownCommit(head) && readClaim(head.Message).relationTo(a.p) == newer:
		return nil, errOutranked
	case ownCommit(head), merged(head):
		return nil, nil //nolint:nilnil // None is the answer.
	case !weavesCommit(head):
		return &head, nil
	}
	return c.Foreign(ctx, head.Hash, base, maxBelow, func(commit gitrepo.Commit) bool { return weavesCommit(commit) || ownCommit(commit) }, merged)
}

// modified is the error of a branch that is a person's, too.
func (a *act) modified(by gitrepo.Commit) error {
	return fail(ReasonBranchModified, "branch %s holds commit %s of %s, which is not the hub's and which no merged pull request has carried into %s: merge, rename or delete the branch",
		a.branch, by.Hash.String()[:12], oneLine(by.Author.Name), a.spec.BaseBranch)
}

// change is the promotion's commit on a base.
func (a *act) change(base gitrepo.Hash, e edit) gitrepo.Change {
	return gitrepo.Change{Parent: base, Files: e.files, By: author, At: a.p.CreationTimestamp.Time, Message: message(a.p)}
}

// fits tells whether the promotion's own commit, which was built on an earlier base,
// still says what it should: it is what the promotion would make there today, the
// base has left those files alone since, and leads back to that earlier one.
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
	return c.Leads(ctx, base, parent)
}
