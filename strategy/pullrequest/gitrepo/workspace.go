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
	"time"
)

const (
	// DefaultClones is the number of clones at once. A clone needs disk, network and a core
	// to inflate objects. Five clones use the cores of a hub with four, and keep its
	// memory small. A tenant gets at most three of them, and a server four if there are
	// several: so neither a tenant nor a server that is slow gets all.
	DefaultClones = 5

	// DefaultSilence is the longest time in which a server may send nothing. Git's own server
	// sends a packet every 5 s while it computes a pack.
	DefaultSilence = 30 * time.Second

	// DefaultMaxPack bounds what one clone receives, in bytes. On disk it needs twice that
	// while it is indexed. A repository with 100 MB of files fits well; a larger one should
	// be split, so that Flux reads a small one.
	DefaultMaxPack = 512 << 20

	// DefaultMaxFile is the size of the largest manifest that is edited, in bytes. An
	// object of Kubernetes has at most 1.5 MiB, and a hand-written one some KiB.
	DefaultMaxFile = 1 << 20

	// DefaultMaxEntries bounds the files and folders of one commit.
	DefaultMaxEntries = 500_000

	// ownedPrefix begins the name of the folder of one process. claimFile is the file in it
	// that the process keeps locked while it runs.
	ownedPrefix = "capstan-clones-"
	claimFile   = "claim"
)

// Limits of clones. A field that is 0 means its default.
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

// Workspace is the folder of the clones of this process.
type Workspace struct {
	limits Limits
	dir    string
	claim  *os.File
	slots  *slots
}

// NewWorkspace creates a folder for this process's clones in dir, which defaults to the
// system's directory for temporary files. It removes the folders of ended processes.
func NewWorkspace(dir string, limits Limits) (*Workspace, error) {
	limits.defaults()
	if dir == "" {
		dir = os.TempDir()
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder for clones: %w", err)
	}
	if err := removeLeftovers(dir); err != nil {
		return nil, err
	}
	own, err := os.MkdirTemp(dir, ownedPrefix)
	if err != nil {
		return nil, fmt.Errorf("creating the folder for clones: %w", err)
	}
	claim, err := os.OpenFile(filepath.Join(own, claimFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = lock(claim)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claiming the folder for clones: %w", err), os.RemoveAll(own))
	}
	return &Workspace{limits: limits, dir: own, claim: claim, slots: newSlots(limits.Clones)}, nil
}

// removeLeftovers removes the folders of processes that ended without closing their
// Workspace. The kernel releases the locks of an ended process. A folder without its file
// is being created or removed by another process.
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
		if lock(claim) == nil {
			err = os.RemoveAll(left)
		}
		_ = claim.Close()
		if err != nil {
			return fmt.Errorf("removing the clones of an ended process: %w", err)
		}
	}
	return nil
}

// Close removes the folder. It must not be called while a Clone is in use.
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
	// Tenant is the owner of the clone. All clones of a tenant share a bound, whatever their
	// servers. Empty means that the clone has no such bound.
	Tenant string
	// Silence is the longest time in which the server may send nothing while the clone waits
	// for it; DefaultSilence if 0. The transfer as a whole is bounded only by the context.
	Silence time.Duration
	// Transport sends the requests. It is responsible for trusted CAs and address
	// guards.
	Transport http.RoundTripper
}

// Clone waits for a slot, reads the remote's branches, and calls act with a Clone that has
// no objects yet. The Clone is removed when Clone returns.
func (w *Workspace) Clone(ctx context.Context, remote Remote, act func(context.Context, *Clone) error) (err error) {
	origin, err := url.Parse(remote.URL)
	if err != nil || origin.User != nil {
		return failed(Invalid, "the repository's URL is invalid or contains credentials")
	}
	done, err := w.slots.take(ctx, origin.Host, remote.Tenant)
	if err != nil {
		return &Error{Class: Transient, Op: "clone", Message: "waiting for a slot for the clone: " + err.Error(), Err: err}
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
