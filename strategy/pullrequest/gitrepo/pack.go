package gitrepo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

const (
	// DefaultMaxObject is the largest file, folder or commit that a repository may
	// have, in bytes: go-git inflates each whole to index it, into a buffer that
	// doubles. With as many clones as there may be, that is below a GiB for a moment.
	DefaultMaxObject = 64 << 20

	// DefaultMaxInflated bounds what all objects of a clone come to, in bytes, and so
	// the time that inflating them takes: four times DefaultMaxPack, some ten seconds.
	DefaultMaxInflated = 4 * DefaultMaxPack

	// commitsKept is how many commits' entries a pack is expected to hold: those of the
	// base and of the branch, each with its parent.
	commitsKept = 2

	// maxDeltaHead is how long the two lengths are that a delta begins with.
	maxDeltaHead = 2 * binary.MaxVarintLen64
)

// receive a pack: onto the disk first, and into the storage when it has been weighed.
func (c *Clone) receive(ctx context.Context, r io.Reader) (err error) {
	f, err := os.CreateTemp(c.dir, "received-")
	if err != nil {
		return err
	}
	defer func() {
		if rerr := errors.Join(f.Close(), os.Remove(f.Name())); err == nil {
			err = rerr
		}
	}()
	n, err := io.Copy(f, r)
	if err != nil || n == 0 {
		return err // Without a byte, there is nothing that is not here already.
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := c.limits.weigh(ctx, f); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return packfile.UpdateObjectStorage(c.storage, f)
}

// weigh a pack by the lengths that its objects state (gitformat-pack(5)), which the
// scanner holds them to. Of a delta, that is the length of what it makes. Nothing of
// an object is kept but a delta's beginning.
func (l *Limits) weigh(ctx context.Context, r io.Reader) error {
	scanner := packfile.NewScanner(r)
	_, count, err := scanner.Header()
	if err != nil {
		return err
	}
	if int64(count) > commitsKept*int64(l.MaxEntries) {
		return failed(TooLarge, "the repository has %d files, folders and commits to be fetched; give Flux' manifests a repository of their own", count)
	}
	total := int64(0)
	add := func(length int64) error {
		if length < 0 || length > l.MaxObject {
			return failed(TooLarge, "the repository has a file, or another object, of %d MiB, more than %d MiB: take it out of the branch, or keep it with Git LFS", length>>20, l.MaxObject>>20)
		}
		if total += length; total > l.MaxInflated {
			return failed(TooLarge, "the repository has files of more than %d MiB in all; give Flux' manifests a repository of their own", l.MaxInflated>>20)
		}
		return nil
	}
	for range count {
		header, err := scanner.NextObjectHeader()
		if err != nil {
			return err
		}
		if err := add(header.Length); err != nil {
			return err
		}
		head := &beginning{ctx: ctx}
		if _, _, err := scanner.NextObject(head); err != nil {
			return err
		}
		if header.Type != plumbing.OFSDeltaObject && header.Type != plumbing.REFDeltaObject {
			continue
		}
		target, err := head.target()
		if err != nil {
			return err
		}
		if err := add(target); err != nil {
			return err
		}
	}
	return nil
}

// beginning of what is written to it. It ends with its context.
type beginning struct {
	ctx   context.Context
	bytes []byte
}

// Write implements io.Writer.
func (b *beginning) Write(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	b.bytes = append(b.bytes, p[:min(len(p), maxDeltaHead-len(b.bytes))]...)
	return len(p), nil
}

// errDelta means that a delta does not begin as one does.
var errDelta = errors.New("a delta without its lengths")

// target is the length of what a delta makes: the second of two numbers.
func (b *beginning) target() (int64, error) {
	_, n := binary.Uvarint(b.bytes)
	if n <= 0 {
		return 0, errDelta
	}
	target, m := binary.Uvarint(b.bytes[n:])
	if m <= 0 || target > 1<<62 {
		return 0, fmt.Errorf("%w: %d", errDelta, target)
	}
	return int64(target), nil
}
