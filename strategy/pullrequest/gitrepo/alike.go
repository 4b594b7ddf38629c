package gitrepo

import (
	"context"

	"github.com/go-git/go-git/v5/plumbing"
)

// Has reports whether the clone has a commit. A commit that it does not have is fetched with its
// files, without its history. The result is also false if the server does not send it: the
// repository does not have it, or the server sends only heads of branches.
func (c *Clone) Has(ctx context.Context, commit Hash) (bool, error) {
	if _, err := c.Commit(commit); err == nil {
		return true, nil
	}
	if err := c.Fetch(ctx, 1, commit); err != nil {
		if ctx.Err() != nil {
			return false, err
		}
		return false, nil
	}
	_, err := c.Commit(commit)
	return err == nil, nil
}

// Alike reports whether two commits have the same files, and whether same returns true for each
// file that differs between them. Both commits must have been fetched.
func (c *Clone) Alike(from, to Hash, same func(before, after []byte) bool) (bool, error) {
	files, err := c.changed(from, to)
	if err != nil {
		return false, err
	}
	for path, hash := range files {
		old, existed := c.FileHash(from, path)
		if !existed || hash == plumbing.ZeroHash || !c.readable(old) || !c.readable(hash) {
			return false, nil
		}
		before, err := c.content(old)
		if err != nil {
			return false, failed(Transient, "file %q cannot be read: %v", path, err)
		}
		after, err := c.content(hash)
		if err != nil {
			return false, failed(Transient, "file %q cannot be read: %v", path, err)
		}
		if !same(before, after) {
			return false, nil
		}
	}
	return true, nil
}

// readable reports whether a file is within the limit of manifests.
func (c *Clone) readable(file Hash) bool {
	size, err := c.storage.EncodedObjectSize(file)
	return err == nil && size <= c.limits.MaxFile
}
