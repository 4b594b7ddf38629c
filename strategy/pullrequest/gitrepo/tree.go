package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// File is a manifest at a commit.
type File struct {
	// Path from the repository's root.
	Path string
	// Hash of the content.
	Hash Hash
	// Content; nil when the file is over the limit.
	Content []byte
	// TooLarge is set when the file is over the limit; Size is its length then.
	TooLarge bool
	Size     int64
}

// Manifests calls visit with each YAML file of a commit, in the order of their paths.
// An error of visit ends the walk. Symbolic links and submodules are not followed.
func (c *Clone) Manifests(ctx context.Context, commit Hash, visit func(File) error) error {
	found, err := c.Commit(commit)
	if err != nil {
		return err
	}
	left := c.limits.MaxEntries
	return c.walk(ctx, found.Tree, "", &left, visit)
}

func (c *Clone) walk(ctx context.Context, tree Hash, dir string, left *int, visit func(File) error) error {
	if ctx.Err() != nil {
		return c.explain(ctx, "read", ctx.Err())
	}
	found, err := object.GetTree(c.storage, tree)
	if err != nil {
		return failed(Transient, "folder %q cannot be read: %v", dir, err)
	}
	if *left -= len(found.Entries); *left < 0 {
		return &Error{Class: TooLarge, Op: "read", Message: "the repository has too many files; move Flux' manifests into a repository of their own"}
	}
	for _, e := range found.Entries {
		at := path.Join(dir, e.Name)
		switch {
		case e.Mode == filemode.Dir:
			err = c.walk(ctx, e.Hash, at, left, visit)
		case isFile(e.Mode) && isYAML(e.Name):
			err = c.file(ctx, e.Hash, at, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isFile(m filemode.FileMode) bool {
	return m == filemode.Regular || m == filemode.Executable || m == filemode.Deprecated
}

func isYAML(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

func (c *Clone) file(ctx context.Context, hash Hash, at string, visit func(File) error) error {
	if ctx.Err() != nil {
		return c.explain(ctx, "read", ctx.Err())
	}
	size, err := c.storage.EncodedObjectSize(hash)
	if err != nil {
		return failed(Transient, "file %q cannot be read: %v", at, err)
	}
	if size > c.limits.MaxFile {
		return visit(File{Path: at, Hash: hash, TooLarge: true, Size: size})
	}
	content, err := c.content(hash)
	if err != nil {
		return failed(Transient, "file %q cannot be read: %v", at, err)
	}
	return visit(File{Path: at, Hash: hash, Content: content, Size: size})
}

func (c *Clone) content(hash Hash) ([]byte, error) {
	r, err := c.reader(hash)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, c.limits.MaxFile+1))
}

func (c *Clone) reader(hash Hash) (io.ReadCloser, error) {
	blob, err := object.GetBlob(c.storage, hash)
	if err != nil {
		return nil, err
	}
	return blob.Reader()
}

// Contains reports whether a file of any size contains a text. It reads the file as a
// stream.
func (c *Clone) Contains(f File, text string) (bool, error) {
	r, err := c.reader(f.Hash)
	if err != nil {
		return false, failed(Transient, "file %q cannot be read: %v", f.Path, err)
	}
	defer r.Close()
	const chunk = 64 << 10
	window, kept := make([]byte, chunk+len(text)), 0
	for {
		n, err := r.Read(window[kept : kept+chunk])
		if bytes.Contains(window[:kept+n], []byte(text)) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, failed(Transient, "file %q cannot be read: %v", f.Path, err)
		}
		// Keep the last bytes, which may be the beginning of the text.
		from := max(0, kept+n-len(text)+1)
		kept = copy(window, window[from:kept+n])
	}
}

// FileHash returns the hash of a file's content at a commit; false when there is no
// such file.
func (c *Clone) FileHash(commit Hash, at string) (Hash, bool) {
	found, err := c.Commit(commit)
	if err != nil {
		return Hash{}, false
	}
	tree, err := object.GetTree(c.storage, found.Tree)
	if err != nil {
		return Hash{}, false
	}
	entry, err := tree.FindEntry(at)
	if err != nil || !isFile(entry.Mode) {
		return Hash{}, false
	}
	return entry.Hash, true
}

// Change is a commit to be made. Equal changes have equal hashes.
type Change struct {
	// Parent commit.
	Parent Hash
	// Files by path, with their new content. All of them exist in Parent.
	Files map[string][]byte
	// By is the author and the committer.
	By Person
	// At is the time of the commit.
	At time.Time
	// Message of the commit.
	Message string
}

// Made is a commit in the clone that is not pushed yet.
type Made struct {
	// Hash of the commit.
	Hash Hash
	// objects that the server does not have.
	objects []Hash
}

// Make writes the commit into the clone.
func (c *Clone) Make(ctx context.Context, change Change) (Made, error) {
	parent, err := c.Commit(change.Parent)
	if err != nil {
		return Made{}, err
	}
	made := Made{}
	root, err := c.rewrite(ctx, parent.Tree, "", change.Files, &made)
	if err != nil {
		return Made{}, err
	}
	by := object.Signature{Name: change.By.Name, Email: change.By.Email, When: change.At.UTC()}
	commit := &object.Commit{Author: by, Committer: by, Message: change.Message, TreeHash: root, ParentHashes: []Hash{change.Parent}}
	made.Hash, err = c.store(&made, commit.Encode)
	return made, err
}

// rewrite writes a folder with the changed files below it.
func (c *Clone) rewrite(ctx context.Context, tree Hash, dir string, files map[string][]byte, made *Made) (Hash, error) {
	if ctx.Err() != nil {
		return Hash{}, c.explain(ctx, "commit", ctx.Err())
	}
	found, err := object.GetTree(c.storage, tree)
	if err != nil {
		return Hash{}, failed(Transient, "folder %q cannot be read: %v", dir, err)
	}
	changed := &object.Tree{Entries: append([]object.TreeEntry(nil), found.Entries...)}
	for i, e := range changed.Entries {
		at := path.Join(dir, e.Name)
		switch content, ok := files[at]; {
		case ok && isFile(e.Mode):
			changed.Entries[i].Hash, err = c.store(made, func(o plumbing.EncodedObject) error { return encodeBlob(o, content) })
		case e.Mode == filemode.Dir && anyBelow(files, at):
			changed.Entries[i].Hash, err = c.rewrite(ctx, e.Hash, at, files, made)
		}
		if err != nil {
			return Hash{}, err
		}
	}
	return c.store(made, changed.Encode)
}

func anyBelow(files map[string][]byte, dir string) bool {
	for at := range files {
		if strings.HasPrefix(at, dir+"/") {
			return true
		}
	}
	return false
}

func encodeBlob(o plumbing.EncodedObject, content []byte) error {
	o.SetType(plumbing.BlobObject)
	w, err := o.Writer()
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return errors.Join(err, w.Close())
}

// store writes an object and records that it is new.
func (c *Clone) store(made *Made, encode func(plumbing.EncodedObject) error) (Hash, error) {
	o := c.storage.NewEncodedObject()
	if err := encode(o); err != nil {
		return Hash{}, failed(Transient, "writing an object: %v", err)
	}
	hash, err := c.storage.SetEncodedObject(o)
	if err != nil {
		return Hash{}, failed(Transient, "writing an object: %v", err)
	}
	made.objects = append(made.objects, hash)
	return hash, nil
}
