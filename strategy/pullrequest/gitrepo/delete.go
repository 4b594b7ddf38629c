package gitrepo

import (
	"context"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// DeleteBranch deletes a branch at the remote. old is the expected head; the error is Moved
// if the branch has another one at the time of the deletion. It is no error if the branch
// does not exist any more.
func (c *Clone) DeleteBranch(ctx context.Context, branch string, old Hash) error {
	session, err := c.transport.NewReceivePackSession(c.endpoint, c.auth)
	if err != nil {
		return c.explain(ctx, "delete", err)
	}
	defer session.Close()
	offered, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return c.explain(ctx, "delete", err)
	}
	ref := plumbing.NewBranchReferenceName(branch)
	switch now, exists := offered.References[ref.String()]; {
	case !exists:
		return nil
	case now != old:
		return moved(branch)
	case !offered.Capabilities.Supports(capability.DeleteRefs):
		return &Error{Class: Refused, Op: "delete", Message: "the server does not delete branches"}
	}
	request := packp.NewReferenceUpdateRequestFromCapabilities(offered.Capabilities)
	request.Commands = []*packp.Command{{Name: ref, Old: old, New: plumbing.ZeroHash}}
	report, err := session.ReceivePack(ctx, request)
	switch {
	case report != nil:
		return c.reported(report, branch, &said{})
	case err != nil:
		return c.explain(ctx, "delete", err)
	default:
		return &Error{Class: Transient, Op: "delete", Message: "the server did not report the result of the deletion"}
	}
}

// SameEdits reports whether a merge commit differs from its second parent in the same files,
// and in the same way, as its first parent own differs from its own parent. All four commits
// must have been fetched.
func (c *Clone) SameEdits(own, merge Commit) (bool, error) {
	made, err := c.changed(own.Parents[0], own.Hash)
	if err != nil {
		return false, err
	}
	merged, err := c.changed(merge.Parents[1], merge.Hash)
	if err != nil || len(made) != len(merged) {
		return false, err
	}
	for path, hash := range made {
		if merged[path] != hash {
			return false, nil
		}
	}
	return true, nil
}

// changed returns the files that differ between two commits, with their hash in the second;
// a file that the second does not have has the zero hash. It reads only folders that differ.
func (c *Clone) changed(from, to Hash) (map[string]Hash, error) {
	before, err := c.Commit(from)
	if err != nil {
		return nil, err
	}
	after, err := c.Commit(to)
	if err != nil {
		return nil, err
	}
	files := map[string]Hash{}
	return files, c.compare(before.Tree, after.Tree, "", files)
}

func (c *Clone) compare(from, to Hash, dir string, files map[string]Hash) error {
	before, err := c.entries(from)
	if err != nil {
		return err
	}
	after, err := c.entries(to)
	if err != nil {
		return err
	}
	for name := range before {
		if _, kept := after[name]; !kept {
			files[dir+name] = plumbing.ZeroHash
		}
	}
	for name, now := range after {
		then, existed := before[name]
		switch {
		case existed && then.Hash == now.Hash && then.Mode == now.Mode:
		case existed && then.Mode == filemode.Dir && now.Mode == filemode.Dir:
			if err := c.compare(then.Hash, now.Hash, dir+name+"/", files); err != nil {
				return err
			}
		case existed && then.Mode != now.Mode:
			// No edit of the hub changes a mode, so this entry is equal to none of its files.
			files[dir+name+"\x00mode"] = now.Hash
		default:
			files[dir+name] = now.Hash
		}
	}
	return nil
}

func (c *Clone) entries(tree Hash) (map[string]object.TreeEntry, error) {
	found, err := object.GetTree(c.storage, tree)
	if err != nil {
		return nil, failed(Transient, "a folder cannot be read: %v", err)
	}
	entries := make(map[string]object.TreeEntry, len(found.Entries))
	for _, e := range found.Entries {
		entries[e.Name] = e
	}
	return entries, nil
}
