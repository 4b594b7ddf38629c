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
	// DefaultMaxObject is the size limit of one file, folder or commit, in bytes. go-git
	// inflates each completely to index it, into a buffer that doubles. With the largest
	// number of clones, that is below one GiB for a moment.
	DefaultMaxObject = 64 << 20

	// DefaultMaxInflated bounds the total size of the objects of a clone, in bytes, and so
	// the time to inflate them: four times DefaultMaxPack, about ten seconds.
	DefaultMaxInflated = 4 * DefaultMaxPack

	// commitsKept is the number of commits whose entries a pack should contain: those of
	// the base and of the branch, each with its parent.
	commitsKept = 2

	// maxDeltaHead is the size of the two lengths at the beginning of a delta, in bytes.
	maxDeltaHead = 2 * binary.MaxVarintLen64
)

// receive writes a pack onto the disk, checks its sizes, and adds it to the storage.
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
		return err // An empty pack: the clone has everything already.
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

// weigh checks the sizes of a pack by the lengths that its objects state
// (gitformat-pack(5)); the scanner enforces these. For a delta, that is the length of its
// result. Only the beginning of a delta is kept in memory.
func (l *Limits) weigh(ctx context.Context, r io.Reader) error {
	scanner := packfile.NewScanner(r)
	_, count, err := scanner.Header()
	if err != nil {
		return err
	}
	if int64(count) > commitsKept*int64(l.MaxEntries) {
		return failed(TooLarge, "the repository has %d files, folders and commits to fetch, which is too many; move Flux' manifests into a repository of their own", count)
	}
	total := int64(0)
	add := func(length int64) error {
		if length < 0 || length > l.MaxObject {
			return failed(TooLarge, "the repository has a file, or another object, of %d MiB, more than %d MiB: remove it from the branch, or store it with Git LFS", length>>20, l.MaxObject>>20)
		}
		if total += length; total > l.MaxInflated {
			return failed(TooLarge, "the files of the repository have more than %d MiB in total; move Flux' manifests into a repository of their own", l.MaxInflated>>20)
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

// beginning keeps the beginning of what is written to it. It ends with its context.
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

// errDelta is returned for a delta with an invalid beginning.
var errDelta = errors.New("a delta without its lengths")

// target returns the length of the result of a delta: the second of two numbers.
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
