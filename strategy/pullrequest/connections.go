package pullrequest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// Keys of the Secret: weave's, and Flux' for a GitHub App.
const (
	keyUsername     = "username"
	keyPassword     = "password"
	keyToken        = "token"
	keyCA           = "caFile"
	keyApp          = "githubAppID"
	keyInstallation = "githubAppInstallationID"
	keyPrivateKey   = "githubAppPrivateKey"
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
		Type: spec.Type, URL: spec.URL, APIURL: spec.APIURL, Credentials: credentials, CABundle: secret.Data[keyCA],
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
	if key := proxyKey(secret); key != "" {
		return provider.Credentials{}, &failure{reason: ReasonInvalidCredentials, credentials: true, err: fmt.Errorf(
			"the Secret %s/%s has the key %s: only the administrator names a proxy, by the hub's flag --git-proxy; remove the key", secret.Namespace, secret.Name, short(key))}
	}
	text := func(key string) string { return strings.TrimSpace(string(secret.Data[key])) }
	c := provider.Credentials{Token: text(keyToken), Username: text(keyUsername), Password: string(secret.Data[keyPassword])}
	if len(secret.Data[keyPrivateKey]) == 0 {
		if c.Token == "" && c.Password == "" {
			return c, &failure{reason: ReasonInvalidCredentials, credentials: true, err: fmt.Errorf(
				"the Secret %s/%s has no key %s: add it, or %s and %s, or the keys of a GitHub App", secret.Namespace, secret.Name, keyToken, keyUsername, keyPassword)}
		}
		return c, nil
	}
	installation, err := strconv.ParseInt(text(keyInstallation), 10, 64)
	if err != nil {
		return c, &failure{reason: ReasonInvalidCredentials, credentials: true,
			err: fmt.Errorf("Secret %s/%s: %s is not a number", secret.Namespace, secret.Name, keyInstallation)}
	}
	c.App = &provider.GitHubApp{ID: text(keyApp), InstallationID: installation, PrivateKey: secret.Data[keyPrivateKey]}
	return c, nil
}

// proxyKeys are keys by which other tools name a proxy, in lower case and without separators. They would
// have no effect: the user who writes a Secret must not choose the way of the hub's requests.
var proxyKeys = map[string]bool{"proxy": true, "proxyurl": true, "proxyaddress": true, "httpproxy": true, "httpsproxy": true, "allproxy": true}

// proxyKey returns the first key of a Secret that names a proxy; empty if there is none.
func proxyKey(secret *corev1.Secret) string {
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		if proxyKeys[strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(key))] {
			return key
		}
	}
	return ""
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
