package simulated

import (
	"cmp"
	"fmt"
	"sync"
	"time"
)

// Namespace of the applications.
const Namespace = "apps"

// Auth is how clients prove who they are.
type Auth int

// Ways of authentication.
const (
	// AuthToken is a bearer token.
	AuthToken Auth = iota
	// AuthCertificate is a client certificate.
	AuthCertificate
)

// Defaults of Options.
const (
	defaultBytes    = 8 << 10
	defaultRevision = "1.0.0"
	defaultBookmark = time.Minute
)

// Options of a Fleet.
type Options struct {
	// Clusters is how many there are.
	Clusters int
	// Applications in each: HelmReleases app-0, app-1 and so on in Namespace.
	Applications int
	// ApplicationBytes (8 KiB) is about the size of each as JSON.
	ApplicationBytes int
	// Revision ("1.0.0") that they run at first.
	Revision string
	// Auth of the kubeconfigs.
	Auth Auth
	// MaxWatch ends watches after this time, if that is before the client's own
	// timeoutSeconds; zero does not.
	MaxWatch time.Duration
	// BookmarkEvery (1 min) is how often a watch that allows them gets a bookmark.
	BookmarkEvery time.Duration

	// filler of all objects.
	filler string
}

// Fleet is a set of running API servers.
type Fleet struct {
	clusters []*Cluster
}

// New starts the servers.
func New(o Options) (*Fleet, error) {
	o.ApplicationBytes = cmp.Or(o.ApplicationBytes, defaultBytes)
	o.Revision = cmp.Or(o.Revision, defaultRevision)
	o.BookmarkEvery = cmp.Or(o.BookmarkEvery, defaultBookmark)
	o.filler = newFiller(o.ApplicationBytes)
	f := &Fleet{}
	for i := range o.Clusters {
		c, err := newCluster(fmt.Sprintf("cluster-%04d", i), o)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("starting cluster %d: %w", i, err)
		}
		f.clusters = append(f.clusters, c)
	}
	return f, nil
}

// Clusters of the fleet.
func (f *Fleet) Clusters() []*Cluster { return f.clusters }

// Close ends the servers and waits for their goroutines.
func (f *Fleet) Close() {
	var closing sync.WaitGroup
	for _, c := range f.clusters {
		closing.Go(c.close)
	}
	closing.Wait()
}
