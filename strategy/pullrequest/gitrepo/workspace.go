package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	// DefaultClones at once. A clone is disk, network and a core for inflating; four
	// of them keep a hub of four cores busy and its memory small. Where there are
	// several servers, each has one less at most.
	DefaultClones = 4

	// DefaultMaxPack bounds what one clone takes over the network, in bytes; on disk it
	// is there twice while it is indexed. A repository with 100 MB of files fits well; one that does not belongs
	// split from what Flux reads.
	DefaultMaxPack = 512 << 20

	// DefaultMaxFile is the largest manifest that is edited, in bytes. An object of
	// Kubernetes has at most 1.5 MiB, and one that people write by hand some KiB.
	DefaultMaxFile = 1 << 20

	// DefaultMaxEntries bounds the files and folders of one commit.
	DefaultMaxEntries = 500_000

	// ownedPrefix names the folder of one process, claimFile the file in it that the
	// process holds locked for as long as it lives.
	ownedPrefix = "capstan-clones-"
	claimFile   = "claim"
)

// Limits of clones; each its default when 0.
type Limits struct {
	// Clones at once; DefaultClones.
	Clones int
	// MaxPack bytes of one clone; DefaultMaxPack.
	MaxPack int64
	// MaxFile bytes of a manifest; DefaultMaxFile.
	MaxFile int64
	// MaxObject bytes of a file, inflated; DefaultMaxObject.
	MaxObject int64
	// MaxInflated bytes of all files of one clone; DefaultMaxInflated.
	MaxInflated int64
	// MaxEntries of one commit's trees; DefaultMaxEntries.
	MaxEntries int
}

func (l *Limits) defaults() {
	if l.Clones <= 0 {
		l.Clones = DefaultClones
	}
	if l.MaxPack <= 0 {
		l.MaxPack = DefaultMaxPack
	}
	if l.MaxFile <= 0 {
		l.MaxFile = DefaultMaxFile
	}
	if l.MaxObject <= 0 {
		l.MaxObject = DefaultMaxObject
	}
	if l.MaxInflated <= 0 {
		l.MaxInflated = DefaultMaxInflated
	}
	if l.MaxEntries <= 0 {
		l.MaxEntries = DefaultMaxEntries
	}
}

// Workspace is where clones live.
type Workspace struct {
	limits Limits
	dir    string
	claim  *os.File
	slots  *slots
}

// NewWorkspace makes a folder for this process's clones in dir (the system's for
// temporary files when empty) and removes those of processes that are no more.
func NewWorkspace(dir string, limits Limits) (*Workspace, error) {
	limits.defaults()
	if dir == "" {
		dir = os.TempDir()
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for clones: %w", err)
	}
	if err := removeLeftovers(dir); err != nil {
		return nil, err
	}
	own, err := os.MkdirTemp(dir, ownedPrefix)
	if err != nil {
		return nil, fmt.Errorf("making the folder for clones: %w", err)
	}
	claim, err := os.OpenFile(filepath.Join(own, claimFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(claim.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claiming the folder for clones: %w", err), os.RemoveAll(own))
	}
	return &Workspace{limits: limits, dir: own, claim: claim, slots: newSlots(limits.Clones)}, nil
}

// removeLeftovers of processes that ended without closing their Workspace. The
// kernel gives up a dead process's locks; a folder without its file is one that
// another process is just making, or removing.
func removeLeftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the folder for clones: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), ownedPrefix) {
			continue
		}
		left := filepath.Join(dir, e.Name())
		claim, err := os.OpenFile(filepath.Join(left, claimFile), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(claim.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			err = os.RemoveAll(left)
		}
		_ = claim.Close()
		if err != nil {
			return fmt.Errorf("removing the clones of a process that is no more: %w", err)
		}
	}
	return nil
}

// Close removes the folder. No Clone may be under way.
func (w *Workspace) Close() error {
	err := os.RemoveAll(w.dir)
	return errors.Join(err, w.claim.Close())
}

// Remote is a repository on a server.
type Remote struct {
	// URL to clone from, by HTTPS, without credentials.
	URL string
	// Username and Password for basic authentication.
	Username, Password string
	// Transport carries the requests: trusted CAs and guarded addresses are its
	// business.
	Transport http.RoundTripper
}

// Clone asks the remote for its branches and gives a Clone without objects to act.
// It waits for a slot first. The Clone is gone when Clone returns.
func (w *Workspace) Clone(ctx context.Context, remote Remote, act func(context.Context, *Clone) error) (err error) {
	origin, err := url.Parse(remote.URL)
	if err != nil || origin.User != nil {
		return failed(Invalid, "the repository's URL is not one without credentials")
	}
	done, err := w.slots.take(ctx, origin.Host)
	if err != nil {
		return &Error{Class: Transient, Op: "clone", Message: "waiting for the clones before it: " + err.Error(), Err: err}
	}
	defer done()
	c, err := w.open(remote, origin)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := c.remove(); cerr != nil && err == nil {
			err = &Error{Class: Transient, Op: "clone", Message: "removing it: " + cerr.Error()}
		}
	}()
	if err := c.list(ctx); err != nil {
		return err
	}
	return act(ctx, c)
}
