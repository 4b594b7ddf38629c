package beb

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
)

const (
	// early is how long before its expiry a token is no longer used: longer than a call.
	early = time.Minute
	// shortest is how long a token is used that has no expiry, or a very near one.
	shortest = 10 * time.Second
)

// tokens fetches and keeps the token of one client.
type tokens struct {
	config clientcredentials.Config
	host   string
	client *http.Client
	clock  clock.PassiveClock
	// turn has one place, for the call that fetches.
	turn chan struct{}

	mu          sync.Mutex
	lockedState struct {
		token string
		until time.Time
	}
}

func newTokens(k serviceKey, client *http.Client, c clock.PassiveClock) *tokens {
	return &tokens{
		config: clientcredentials.Config{ClientID: k.clientID, ClientSecret: k.clientCode, TokenURL: k.token.String(), AuthStyle: oauth2.AuthStyleInHeader},
		host:   k.token.Host, client: client, clock: c, turn: make(chan struct{}, 1),
	}
}

// get returns a valid token other than the rejected one.
func (t *tokens) get(ctx context.Context, rejected string) (string, error) {
	if token, ok := t.known(rejected); ok {
		return token, nil
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", wire.CallError(t.host, ctx.Err())
	}
	if token, ok := t.known(rejected); ok { // Another call has fetched it.
		return token, nil
	}
	now := t.clock.Now()
	fetched, err := t.config.Token(context.WithValue(ctx, oauth2.HTTPClient, t.client))
	if err != nil {
		return "", t.class(err)
	}
	// The library computes the expiry with the machine's clock, which may differ from t.clock.
	life := max(shortest, time.Until(fetched.Expiry.Add(-early)))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lockedState.token, t.lockedState.until = fetched.AccessToken, now.Add(life)
	return fetched.AccessToken, nil
}

func (t *tokens) known(rejected string) (string, bool) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.lockedState
	return s.token, s.token != "" && s.token != rejected && now.Before(s.until)
}

// class maps a failed fetch to an Error. It omits the library's error, which quotes the answer.
func (t *tokens) class(err error) error {
	var answered *oauth2.RetrieveError
	if !errors.As(err, &answered) || answered.Response == nil {
		return wire.CallError(t.host, err)
	}
	classed := wire.StatusError(t.host, answered.Response, t.clock)
	if status := answered.Response.StatusCode; status == http.StatusBadRequest || status == http.StatusUnauthorized {
		return sink.Errorf(sink.Unavailable, sink.CodeUnauthorized, "the token endpoint rejects the client in the Secret; check oa2.clientid and oa2.clientsecret: %w", sink.Of(classed).Err)
	}
	if sink.Of(classed).Class == sink.Transient {
		return classed
	}
	return sink.Errorf(sink.Unavailable, "no-token", "the token endpoint returns no token: %w", sink.Of(classed).Err)
}
