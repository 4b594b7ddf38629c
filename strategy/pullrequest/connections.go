package pullrequest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// unusedFor is how long an unused connection is kept, or as long as an act may take if that is
// longer, so that no connection is closed during an act.
const unusedFor = 10 * time.Minute

// connection is a repository with the credentials of one version of a Secret.
type connection struct {
	provider provider.Provider
	pace     *pace
	breakers *serverBreakers

	used time.Time // guarded by connections.mu
}

// connections holds the connections in use, so that promotions with the same Secret share
// the token of a GitHub App and TCP connections.
type connections struct {
	o Options

	// mu guards the fields that follow.
	mu         sync.Mutex
	lockedOpen map[connectionKey]*connection
	// lockedPaces and lockedBreakers outlive the connections that use them, because a new
	// version of the Secret makes a new connection. They are kept while they have state.
	lockedPaces    map[paceKey]*pace
	lockedBreakers map[string]*serverBreakers // by server
}

type connectionKey struct {
	secret  types.NamespacedName
	version string
	kind    pipelinesv1.GitProviderType
	url     string
	api     string
}

// paceKey identifies a client, by which services count requests.
type paceKey struct {
	server string
	secret types.NamespacedName
}

func newConnections(o Options) *connections {
	return &connections{o: o, lockedOpen: map[connectionKey]*connection{}, lockedPaces: map[paceKey]*pace{}, lockedBreakers: map[string]*serverBreakers{}}
}

// get returns the connection that a promotion needs, and the version of its Secret.
func (c *connections) get(ctx context.Context, p *capstanv1.Promotion) (*connection, capstanv1.SecretVersion, error) {
	spec := p.Spec.Strategy.PullRequest
	version := capstanv1.SecretVersion{Name: spec.SecretRef.Name}
	if _, err := provider.ParseRepository(spec.Type, spec.URL); err != nil {
		return nil, version, &failure{reason: ReasonInvalidSpec, err: fmt.Errorf("strategy.pull-request.url: %w", err)}
	}
	name := types.NamespacedName{Namespace: p.Namespace, Name: spec.SecretRef.Name}
	secret := &corev1.Secret{}
	switch err := c.o.Reader.Get(ctx, name, secret); {
	case apierrors.IsNotFound(err):
		return nil, version, &failure{reason: ReasonSecretNotFound, credentials: true,
			err: fmt.Errorf("the Secret %s does not exist: create it with the keys username, password and token", name)}
	case apierrors.IsForbidden(err):
		return nil, version, fmt.Errorf("the hub may not read the Secret %s: apply config/rbac/pipeline-secrets to the namespace: %w", name, err)
	case err != nil:
		return nil, version, fmt.Errorf("reading the Secret %s: %w", name, err)
	}
	version.ResourceVersion = secret.ResourceVersion
	key := connectionKey{secret: name, version: secret.ResourceVersion, kind: spec.Type, url: spec.URL, api: spec.APIURL}
	if found := c.find(key); found != nil {
		return found, version, nil
	}
	credentials, err := credentialsOf(secret)
	if err != nil {
		return nil, version, err
	}
	made, err := provider.New(provider.Options{
		Type: spec.Type, URL: spec.URL, APIURL: spec.APIURL, Credentials: credentials, CABundle: secret.Data[provider.KeyCA],
		AllowLoopback: c.o.AllowLoopback, Proxy: c.o.Proxy, Timeout: c.o.Timeout, Clock: c.o.Clock,
	})
	if err != nil {
		return nil, version, &failure{reason: ReasonInvalidCredentials, credentials: true, err: fmt.Errorf("Secret %s: %w", name, err)}
	}
	if err := checkHosts(secret, made.Repository(), c.o.RequireSecretHosts); err != nil {
		return nil, version, err
	}
	return c.keep(key, made), version, nil
}

// credentialsOf reads the credentials of a Secret. Its errors show no value.
func credentialsOf(secret *corev1.Secret) (provider.Credentials, error) {
	c, err := provider.CredentialsOf(secret.Data)
	if err != nil {
		return c, &failure{reason: ReasonInvalidCredentials, credentials: true, err: fmt.Errorf("the Secret %s/%s %w", secret.Namespace, secret.Name, err)}
	}
	return c, nil
}

func (c *connections) find(key connectionKey) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.lockedOpen[key]
	if found != nil {
		found.used = c.o.Clock.Now()
	}
	return found
}

// keep stores a connection, unless another call already has, and removes unused ones.
func (c *connections) keep(key connectionKey, made provider.Provider) *connection {
	now := c.o.Clock.Now()
	var idle []provider.Provider
	c.mu.Lock()
	for k, other := range c.lockedOpen {
		if now.Sub(other.used) > max(unusedFor, c.o.Deadline) {
			idle = append(idle, other.provider)
			delete(c.lockedOpen, k)
		}
	}
	c.forgetLocked(now)
	kept := c.lockedOpen[key]
	if kept == nil {
		by := paceKey{server: made.Repository().Server, secret: key.secret}
		if c.lockedPaces[by] == nil {
			c.lockedPaces[by] = newPace()
		}
		if c.lockedBreakers[by.server] == nil {
			c.lockedBreakers[by.server] = newBreakers(c.o.Clock)
		}
		kept = &connection{provider: made, pace: c.lockedPaces[by], breakers: c.lockedBreakers[by.server]}
		c.lockedOpen[key] = kept
	} else {
		idle = append(idle, made)
	}
	kept.used = now
	c.mu.Unlock()
	for _, p := range idle {
		p.CloseIdle()
	}
	return kept
}

// forgetLocked removes the paces and breakers that no connection uses and that have no
// state. What remains is bounded: the Secrets in use, and those that a service has
// rate limited.
func (c *connections) forgetLocked(now time.Time) {
	paces, breakers := map[*pace]bool{}, map[*serverBreakers]bool{}
	for _, open := range c.lockedOpen {
		paces[open.pace], breakers[open.breakers] = true, true
	}
	maps.DeleteFunc(c.lockedPaces, func(_ paceKey, p *pace) bool { return !paces[p] && p.idle(now) })
	maps.DeleteFunc(c.lockedBreakers, func(_ string, b *serverBreakers) bool { return !breakers[b] })
}

func (c *connections) close() {
	c.mu.Lock()
	open := c.lockedOpen
	c.lockedOpen = map[connectionKey]*connection{}
	c.mu.Unlock()
	for _, one := range open {
		one.provider.CloseIdle()
	}
}
