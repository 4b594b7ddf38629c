package gitrepo

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

const (
	// objectCache bounds the cache of delta bases while blobs are read, in bytes.
	objectCache = 4 * cache.MiByte

	// largeObject is the size from which an object is read as a stream, in bytes.
	largeObject = 1 << 20
)

// go-git removes multi_ack from what a server offers, because its server side lacks it.
// Azure DevOps refuses clients without it. A client that sends all of its haves and "done" in
// one request, as this package does, only has to read the additional ACK lines, which go-git
// does. No other package of the hub uses go-git.
func init() {
	transport.UnsupportedCapabilities = []capability.Capability{capability.ThinPack}
}

// Hash of an object.
type Hash = plumbing.Hash

// ParseHash reads a hash in hexadecimal; anything else is the zero hash.
func ParseHash(text string) Hash { return plumbing.NewHash(text) }

// Clone is a bare repository on disk, without references of its own.
type Clone struct {
	limits  Limits
	dir     string
	storage *filesystem.Storage

	guard     *guard
	transport transport.Transport
	endpoint  *transport.Endpoint
	auth      transport.AuthMethod

	// branches of the remote when the clone was made.
	branches map[string]Hash
	offered  *capability.List
}

func (w *Workspace) open(remote Remote, origin *url.URL) (*Clone, error) {
	endpoint, err := transport.NewEndpoint(remote.URL)
	if err != nil {
		return nil, failed(Invalid, "the repository's URL is invalid")
	}
	dir, err := os.MkdirTemp(w.dir, "")
	if err != nil {
		return nil, failed(Transient, "creating the folder of a clone: %v", err)
	}
	d := &guard{
		next: remote.Transport, origin: origin, silence: cmp.Or(remote.Silence, DefaultSilence),
		left: w.limits.MaxPack, max: w.limits.MaxPack, secrets: secretsOf(remote),
	}
	return &Clone{
		limits: w.limits, dir: dir, guard: d,
		storage: filesystem.NewStorageWithOptions(osfs.New(dir, osfs.WithBoundOS()), cache.NewObjectLRU(objectCache),
			filesystem.Options{ExclusiveAccess: true, KeepDescriptors: true, LargeObjectThreshold: largeObject}),
		transport: githttp.NewClient(&http.Client{Transport: d}),
		endpoint:  endpoint,
		auth:      &githttp.BasicAuth{Username: remote.Username, Password: remote.Password},
	}, nil
}

func (c *Clone) remove() error {
	return errors.Join(c.storage.Close(), os.RemoveAll(c.dir))
}

// list reads the remote's branches.
func (c *Clone) list(ctx context.Context) error {
	session, err := c.transport.NewUploadPackSession(c.endpoint, c.auth)
	if err != nil {
		return c.explain(ctx, "clone", err)
	}
	defer session.Close()
	offered, err := session.AdvertisedReferencesContext(ctx)
	switch {
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return &Error{Class: Empty, Op: "clone", Message: "the repository has no branch yet"}
	case err != nil:
		return c.explain(ctx, "clone", err)
	}
	c.offered, c.branches = offered.Capabilities, map[string]Hash{}
	for name, hash := range offered.References {
		if ref := plumbing.ReferenceName(name); ref.IsBranch() {
			c.branches[ref.Short()] = hash
		}
	}
	return nil
}

// Branch returns the head commit of a branch of the remote at the time of the clone; false
// when there was no such branch.
func (c *Clone) Branch(name string) (Hash, bool) {
	hash, ok := c.branches[name]
	return hash, ok
}

// Fetch fetches commits and their files, each with a history of depth commits. It does not
// fetch what the clone already has.
func (c *Clone) Fetch(ctx context.Context, depth int, commits ...Hash) error {
	if !c.offered.Supports(capability.Shallow) {
		return &Error{Class: Refused, Op: "fetch", Message: "the server cannot make shallow clones"}
	}
	return c.fetch(ctx, request{depth: depth, wants: commits})
}

// request is what fetch requests.
type request struct {
	// depth of the history; 0 means all.
	depth int
	// filter of the objects; empty means all of them.
	filter packp.Filter
	wants  []Hash
	// haves are commits that the server need not send, with their history.
	haves []Hash
}

func (c *Clone) fetch(ctx context.Context, r request) error {
	request := packp.NewUploadPackRequestFromCapabilities(c.offered)
	var also []capability.Capability
	if r.depth > 0 {
		request.Depth = packp.DepthCommits(r.depth)
		also = append(also, capability.Shallow)
	}
	if r.filter != "" {
		request.Filter = r.filter
		also = append(also, capability.Filter)
	}
	if c.offered.Supports(capability.NoProgress) {
		also = append(also, capability.NoProgress)
	}
	for _, one := range also {
		if err := request.Capabilities.Set(one); err != nil {
			return c.explain(ctx, "fetch", err)
		}
	}
	request.Wants, request.Haves = r.wants, r.haves
	session, err := c.transport.NewUploadPackSession(c.endpoint, c.auth)
	if err != nil {
		return c.explain(ctx, "fetch", err)
	}
	defer session.Close()
	answer, err := session.UploadPack(ctx, request)
	switch {
	case errors.Is(err, transport.ErrEmptyUploadPackRequest):
		return nil // The clone has all of them.
	case err != nil:
		return c.explain(ctx, "fetch", err)
	}
	defer answer.Close() //nolint:errcheck // It was only read.
	if err := c.receive(ctx, demultiplexed(request.Capabilities, answer)); err != nil {
		return c.explain(ctx, "fetch", err)
	}
	if ctx.Err() != nil {
		return c.explain(ctx, "fetch", ctx.Err())
	}
	return nil
}

func demultiplexed(agreed *capability.List, r io.Reader) io.Reader {
	switch {
	case agreed.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, r)
	case agreed.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, r)
	default:
		return r
	}
}

// Commit is a commit as this package reads it.
type Commit struct {
	Hash    Hash
	Parents []Hash
	Tree    Hash
	// Author and Committer of the commit.
	Author, Committer Person
	Message           string
}

// Person is the author or committer of a commit.
type Person struct{ Name, Email string }

// Commit reads a commit that was fetched.
func (c *Clone) Commit(hash Hash) (Commit, error) {
	found, err := object.GetCommit(c.storage, hash)
	if err != nil {
		return Commit{}, failed(Transient, "commit %s cannot be read: %v", hash, err)
	}
	return Commit{
		Hash: hash, Parents: found.ParentHashes, Tree: found.TreeHash, Message: found.Message,
		Author:    Person{found.Author.Name, found.Author.Email},
		Committer: Person{found.Committer.Name, found.Committer.Email},
	}, nil
}
