package simulated

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog" //nolint:depguard // net/http takes its log.Logger, to be silenced.
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// keep is how many changes a cluster remembers, for watches that resume.
const keep = 4096

// Cluster is one simulated API server.
type Cluster struct {
	name    string
	o       Options
	filler  string
	clients *authority
	count   counters
	serving sync.WaitGroup

	mu          sync.Mutex
	lockedState state
}

type state struct {
	mode  Mode
	delay time.Duration
	// answered is when the first request after the last Set was answered.
	answered time.Time
	// uid of kube-system.
	uid string
	// version is the newest resource version, and oldest the first that can be
	// resumed from.
	version, oldest uint64
	// apps by number; nil when deleted.
	apps    []*application
	history []change
	// changed is closed and replaced at each change, of objects or mode; ended when
	// watches shall end, and muted when they shall fall silent.
	changed, ended, muted chan struct{}

	token            string
	certificate, key []byte
	// serial of the client certificate, and the least that is accepted.
	serial, least int64

	current *server
	old     []*server
}

// server is what listens, with the CA that its clients shall trust.
type server struct {
	door      *door
	http      *http.Server
	authority *authority
}

// counters of what was asked.
type counters struct {
	requests, lists, watchLists, watches, probes, unauthorized, openWatches atomic.Int64
}

// Counts are what was asked of a server since it was started.
type Counts struct {
	// Requests in all.
	Requests int64
	// Lists are plain ones of whole kinds; those that ask for one object, to see
	// whether they may, do not count.
	Lists int64
	// WatchLists are streamed initial lists.
	WatchLists int64
	// Watches are those that resume from a resource version.
	Watches int64
	// Probes of /readyz.
	Probes int64
	// Unauthorized answers.
	Unauthorized int64
	// OpenWatches and Connections at present.
	OpenWatches, Connections int64
}

func newCluster(name string, o Options) (*Cluster, error) {
	clients, err := newAuthority("clients of " + name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{name: name, o: o, filler: o.filler, clients: clients}
	s := &c.lockedState
	s.changed, s.ended, s.muted = make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.token = token()
	if o.Auth == AuthCertificate {
		if s.certificate, s.key, s.serial, err = clients.client("hub"); err != nil {
			return nil, err
		}
	}
	c.resetLocked()
	if s.current, err = c.serve(); err != nil {
		return nil, err
	}
	return c, nil
}

func token() string { return "token-" + string(uuid.NewUUID()) }

// resetLocked makes a new cluster of it.
func (c *Cluster) resetLocked() {
	s := &c.lockedState
	s.uid, s.version, s.oldest, s.history, s.apps = string(uuid.NewUUID()), 100, 100, nil, nil
	for i := range c.o.Applications {
		s.version++
		s.apps = append(s.apps, &application{number: i, revision: c.o.Revision, generation: 1, upgrades: 1, version: s.version})
	}
	s.oldest = s.version
}

// serve starts a server with a CA of its own.
func (c *Cluster) serve() (*server, error) {
	ca, err := newAuthority("CA of " + c.name)
	if err != nil {
		return nil, err
	}
	certificate, err := ca.serving()
	if err != nil {
		return nil, err
	}
	d, err := newDoor()
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(c.clients.certificate)
	s := &server{door: d, authority: ca, http: &http.Server{
		Handler:           c,
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, 0),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate},
			ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: trusted,
		},
	}}
	c.serving.Go(func() {
		if err := s.http.ServeTLS(d, "", ""); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("fleet: serving: %v", err))
		}
	})
	return s, nil
}

func (s *server) close() {
	_ = s.http.Close()
	_ = s.door.Close()
}

func (c *Cluster) close() {
	c.mu.Lock()
	all := append(slices.Clone(c.lockedState.old), c.lockedState.current)
	c.lockedState.old = nil
	c.mu.Unlock()
	for _, s := range all {
		s.close()
	}
	c.serving.Wait()
}

// Name of the cluster, such as cluster-0007.
func (c *Cluster) Name() string { return c.name }

// Kubeconfig with the current server and credentials.
func (c *Cluster) Kubeconfig() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.lockedState
	user := &clientcmdapi.AuthInfo{Token: s.token}
	if c.o.Auth == AuthCertificate {
		user = &clientcmdapi.AuthInfo{ClientCertificateData: s.certificate, ClientKeyData: s.key}
	}
	raw, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{c.name: {
			Server: "https://" + s.current.door.address, CertificateAuthorityData: s.current.authority.pem,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"hub": user},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: c.name, AuthInfo: "hub"}},
		CurrentContext: "hub",
	})
	if err != nil {
		panic(fmt.Sprintf("fleet: writing a kubeconfig: %v", err)) // It holds nothing that could not be written.
	}
	return raw
}

// Set changes how clients are treated, on all of the cluster's servers.
func (c *Cluster) Set(m Mode) {
	c.mu.Lock()
	c.lockedState.mode, c.lockedState.answered = m, time.Time{}
	c.notifyLocked()
	all := append(slices.Clone(c.lockedState.old), c.lockedState.current)
	c.mu.Unlock()
	for _, s := range all {
		s.door.setSilent(m.silent())
		if m == Refuse {
			s.door.shut()
		} else if err := s.door.listen(); err != nil {
			panic(fmt.Sprintf("fleet: %v", err)) // Somebody took the port.
		}
	}
}

// Answered is when the cluster answered the first request after the last Set; zero if it answered
// none.
func (c *Cluster) Answered() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lockedState.answered
}

// answers notes that a request is answered.
func (c *Cluster) answers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lockedState.answered.IsZero() {
		c.lockedState.answered = time.Now()
	}
}

// SetDelay of Slow.
func (c *Cluster) SetDelay(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lockedState.delay = d
}

// RotateToken makes a new token. The old one is not accepted any more, but what was
// begun with it goes on.
func (c *Cluster) RotateToken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lockedState.token = token()
}

// RotateCertificate issues a new client certificate. The old one is accepted until
// RevokeOld.
func (c *Cluster) RotateCertificate() {
	certificate, key, serial, err := c.clients.client("hub")
	if err != nil {
		panic(fmt.Sprintf("fleet: %v", err)) // The machine has no randomness left.
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lockedState.certificate, c.lockedState.key, c.lockedState.serial = certificate, key, serial
}

// RevokeOld has only the newest client certificate accepted.
func (c *Cluster) RevokeOld() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lockedState.least = c.lockedState.serial
}

// RotateServer gives the cluster another address and CA. The old one goes on until
// CloseOld.
func (c *Cluster) RotateServer() {
	s, err := c.serve()
	if err != nil {
		panic(fmt.Sprintf("fleet: %v", err)) // The machine has no ports left.
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lockedState.old = append(c.lockedState.old, c.lockedState.current)
	c.lockedState.current = s
}

// CloseOld ends the servers that RotateServer replaced.
func (c *Cluster) CloseOld() {
	c.mu.Lock()
	old := c.lockedState.old
	c.lockedState.old = nil
	c.mu.Unlock()
	for _, s := range old {
		s.close()
	}
}

// Rebuild makes another cluster of it, behind the same address: its applications run
// the first revision, and resource versions begin anew.
func (c *Cluster) Rebuild() {
	c.mu.Lock()
	c.resetLocked()
	c.notifyLocked()
	current := c.lockedState.current
	c.mu.Unlock()
	current.door.sever()
}

// EndWatches ends all open watches, as a server does when their time is over.
func (c *Cluster) EndWatches() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.lockedState.ended)
	c.lockedState.ended = make(chan struct{})
}

// Mute has all open watches say nothing any more, not even bookmarks, and never end.
// New ones are served.
func (c *Cluster) Mute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.lockedState.muted)
	c.lockedState.muted = make(chan struct{})
}

// Deploy brings an application to a revision.
func (c *Cluster) Deploy(app int, revision string) {
	c.edit(app, "MODIFIED", func(a *application) {
		a.revision = revision
		a.generation++
		a.upgrades++
	})
}

// Touch is a heartbeat: nothing changes but managed fields.
func (c *Cluster) Touch(app int) {
	c.edit(app, "MODIFIED", func(a *application) { a.touched++ })
}

// DeleteApp deletes an application.
func (c *Cluster) DeleteApp(app int) {
	c.edit(app, "DELETED", func(*application) {})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lockedState.apps[app] = nil
}

func (c *Cluster) edit(app int, verb string, do func(*application)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.lockedState
	a := s.apps[app]
	s.version++
	a.version = s.version
	do(a)
	if len(s.history) == keep {
		s.oldest = s.history[keep/2-1].version
		s.history = slices.Clone(s.history[keep/2:])
	}
	s.history = append(s.history, change{verb, *a})
	c.notifyLocked()
}

func (c *Cluster) notifyLocked() {
	close(c.lockedState.changed)
	c.lockedState.changed = make(chan struct{})
}

// Counts are the present ones.
func (c *Cluster) Counts() Counts {
	c.mu.Lock()
	all := append(slices.Clone(c.lockedState.old), c.lockedState.current)
	c.mu.Unlock()
	connections := 0
	for _, s := range all {
		connections += s.door.connections()
	}
	return Counts{
		Requests: c.count.requests.Load(), Lists: c.count.lists.Load(), WatchLists: c.count.watchLists.Load(),
		Watches: c.count.watches.Load(), Probes: c.count.probes.Load(), Unauthorized: c.count.unauthorized.Load(),
		OpenWatches: c.count.openWatches.Load(), Connections: int64(connections),
	}
}
