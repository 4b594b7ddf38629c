package openid

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	// defaultLifetime of ID tokens and access tokens.
	defaultLifetime = 10 * time.Minute
	// keyBits of the signing key, for RS256: the only algorithm that an API server accepts by
	// default.
	keyBits = 2048
)

// User is a person who can log in. The subject is the name.
type User struct {
	Name, Email string
	Groups      []string
}

// Client is a program that users sign in to. A client without secret is public.
type Client struct {
	ID, Secret                  string
	RedirectURLs, SignedOutURLs []string
}

// storage implements op.Storage. The methods of the embedded nil interface are those of grants
// that the provider does not offer.
type storage struct {
	op.Storage
	key *rsa.PrivateKey

	// mu guards the fields that follow.
	mu             sync.Mutex
	lockedUsers    map[string]User
	lockedClients  map[string]Client
	lockedAttempts map[string]*attempt
	lockedCodes    map[string]string // the ID of an attempt, by its code
	lockedRefresh  map[string]*grant // by refresh token
	lockedLifetime time.Duration
	lockedAlter    func(claims map[string]any)
	// lockedCounts count what the provider did.
	lockedCounts Counts
}

// Counts of what a provider did.
type Counts struct {
	// Issued ID tokens, Renewed ones among them, and renewals that were Refused.
	Issued, Renewed, Refused int
	// Revoked refresh tokens, and sessions that Ended.
	Revoked, Ended int
}

func newStorage() (*storage, error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, fmt.Errorf("making the signing key: %w", err)
	}
	return &storage{
		key: key, lockedUsers: map[string]User{}, lockedClients: map[string]Client{}, lockedAttempts: map[string]*attempt{},
		lockedCodes: map[string]string{}, lockedRefresh: map[string]*grant{}, lockedLifetime: defaultLifetime,
	}, nil
}

// AddUser adds or replaces a user.
func (s *storage) AddUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedUsers[u.Name] = u
}

// AddClient adds a client, or addresses to one that exists.
func (s *storage) AddClient(c Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.lockedClients[c.ID]
	c.RedirectURLs = slices.Concat(known.RedirectURLs, c.RedirectURLs)
	c.SignedOutURLs = slices.Concat(known.SignedOutURLs, c.SignedOutURLs)
	s.lockedClients[c.ID] = c
}

// SetLifetime sets how long the next ID tokens are valid.
func (s *storage) SetLifetime(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedLifetime = d
}

// Alter sets a function that changes the claims of the next ID tokens before they are signed;
// nil to change nothing. A function that deletes all claims makes the answer have no ID token.
func (s *storage) Alter(change func(claims map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedAlter = change
}

// RevokeAll makes the provider refuse all refresh tokens that it has issued.
func (s *storage) RevokeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.lockedRefresh)
}

// Counts returns what the provider did.
func (s *storage) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lockedCounts
}

// login completes an attempt to sign in.
func (s *storage) login(id, user string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.lockedAttempts[id]
	if a == nil {
		return errors.New("this attempt to sign in does not exist")
	}
	if _, ok := s.lockedUsers[user]; !ok {
		return fmt.Errorf("user %q does not exist", user)
	}
	done := *a
	done.subject = user
	s.lockedAttempts[id] = &done
	return nil
}

// grant is what a user granted to a client. It implements op.RefreshTokenRequest.
type grant struct {
	client, subject string
	scopes          []string
	at              time.Time
}

// GetAMR implements op.RefreshTokenRequest.
func (*grant) GetAMR() []string { return []string{"pwd"} }

// GetAudience implements op.RefreshTokenRequest.
func (g *grant) GetAudience() []string { return []string{g.client} }

// GetAuthTime implements op.RefreshTokenRequest.
func (g *grant) GetAuthTime() time.Time { return g.at }

// GetClientID implements op.RefreshTokenRequest.
func (g *grant) GetClientID() string { return g.client }

// GetScopes implements op.RefreshTokenRequest.
func (g *grant) GetScopes() []string { return g.scopes }

// GetSubject implements op.RefreshTokenRequest.
func (g *grant) GetSubject() string { return g.subject }

// SetCurrentScopes implements op.RefreshTokenRequest.
func (g *grant) SetCurrentScopes(list []string) { g.scopes = list }

// attempt to sign in. It implements op.AuthRequest.
type attempt struct {
	grant
	id      string
	request *oidc.AuthRequest
}

// GetID implements op.AuthRequest.
func (a *attempt) GetID() string { return a.id }

// GetACR implements op.AuthRequest.
func (*attempt) GetACR() string { return "" }

// GetNonce implements op.AuthRequest.
func (a *attempt) GetNonce() string { return a.request.Nonce }

// GetState implements op.AuthRequest.
func (a *attempt) GetState() string { return a.request.State }

// Done implements op.AuthRequest.
func (a *attempt) Done() bool { return a.subject != "" }

// GetRedirectURI implements op.AuthRequest.
func (a *attempt) GetRedirectURI() string {
	return a.request.RedirectURI
}

// GetResponseType implements op.AuthRequest.
func (a *attempt) GetResponseType() oidc.ResponseType { return a.request.ResponseType }

// GetResponseMode implements op.AuthRequest.
func (a *attempt) GetResponseMode() oidc.ResponseMode { return a.request.ResponseMode }

// GetCodeChallenge implements op.AuthRequest.
func (a *attempt) GetCodeChallenge() *oidc.CodeChallenge {
	if a.request.CodeChallenge == "" {
		return nil
	}
	return &oidc.CodeChallenge{Challenge: a.request.CodeChallenge, Method: a.request.CodeChallengeMethod}
}

// CreateAuthRequest implements op.Storage.
func (s *storage) CreateAuthRequest(_ context.Context, r *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	a := &attempt{grant: grant{client: r.ClientID, scopes: r.Scopes, at: time.Now()}, id: rand.Text(), request: r}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedAttempts[a.id] = a
	return a, nil
}

// AuthRequestByID implements op.Storage.
func (s *storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.lockedAttempts[id]; a != nil {
		return a, nil
	}
	return nil, errors.New("this attempt to sign in does not exist")
}

// AuthRequestByCode implements op.Storage.
func (s *storage) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	s.mu.Lock()
	id := s.lockedCodes[code]
	s.mu.Unlock()
	return s.AuthRequestByID(ctx, id)
}

// SaveAuthCode implements op.Storage.
func (s *storage) SaveAuthCode(_ context.Context, id, code string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedCodes[code] = id
	return nil
}

// DeleteAuthRequest implements op.Storage: a code can be used once.
func (s *storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lockedAttempts, id)
	return nil
}

// CreateAccessToken implements op.Storage.
func (s *storage) CreateAccessToken(context.Context, op.TokenRequest) (string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedCounts.Issued++
	return rand.Text(), time.Now().Add(s.lockedLifetime), nil
}

// CreateAccessAndRefreshTokens implements op.Storage. The new refresh token replaces the current
// one.
func (s *storage) CreateAccessAndRefreshTokens(ctx context.Context, r op.TokenRequest, current string) (string, string, time.Time, error) {
	id, expires, err := s.CreateAccessToken(ctx, r)
	if err != nil {
		return "", "", time.Time{}, err
	}
	next := &grant{subject: r.GetSubject(), scopes: r.GetScopes(), at: time.Now()}
	switch from := r.(type) {
	case *attempt:
		next.client = from.client
	case *grant:
		next.client = from.client
	default:
		return "", "", time.Time{}, fmt.Errorf("a refresh token for a %T is not offered", r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if current != "" {
		if s.lockedRefresh[current] == nil {
			return "", "", time.Time{}, op.ErrInvalidRefreshToken
		}
		delete(s.lockedRefresh, current)
		s.lockedCounts.Renewed++
	}
	token := rand.Text()
	s.lockedRefresh[token] = next
	return id, token, expires, nil
}

// TokenRequestByRefreshToken implements op.Storage.
func (s *storage) TokenRequestByRefreshToken(_ context.Context, token string) (op.RefreshTokenRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.lockedRefresh[token]
	if g == nil {
		s.lockedCounts.Refused++
		return nil, op.ErrInvalidRefreshToken
	}
	again := *g
	return &again, nil
}

// TerminateSession implements op.Storage.
func (s *storage) TerminateSession(context.Context, string, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedCounts.Ended++
	return nil
}

// RevokeToken implements op.Storage.
func (s *storage) RevokeToken(_ context.Context, token, _, client string) *oidc.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.lockedRefresh[token]; g != nil && g.client == client {
		delete(s.lockedRefresh, token)
		s.lockedCounts.Revoked++
	}
	return nil
}

// GetRefreshTokenInfo implements op.Storage.
func (s *storage) GetRefreshTokenInfo(_ context.Context, _, token string) (string, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.lockedRefresh[token]
	if g == nil {
		return "", "", op.ErrInvalidRefreshToken
	}
	return g.subject, token, nil
}

// GetClientByClientID implements op.Storage.
func (s *storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.lockedClients[id]
	if !ok {
		return nil, fmt.Errorf("client %q does not exist", id)
	}
	return client{c, s.lockedLifetime}, nil
}

// AuthorizeClientIDSecret implements op.Storage.
func (s *storage) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.lockedClients[id]; !ok || c.Secret == "" || subtle.ConstantTimeCompare([]byte(c.Secret), []byte(secret)) != 1 {
		return fmt.Errorf("the secret of client %q is wrong", id)
	}
	return nil
}

// SetUserinfoFromScopes implements op.Storage; SetUserinfoFromRequest replaced it.
func (*storage) SetUserinfoFromScopes(context.Context, *oidc.UserInfo, string, string, []string) error {
	return nil
}

// SetUserinfoFromRequest implements op.CanSetUserinfoFromRequest: it adds the claims of the
// user to an ID token.
func (s *storage) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, r op.IDTokenRequest, scopes []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.lockedUsers[r.GetSubject()]
	info.Subject = u.Name
	if slices.Contains(scopes, oidc.ScopeProfile) {
		info.PreferredUsername = u.Name
	}
	if slices.Contains(scopes, oidc.ScopeEmail) {
		info.Email, info.EmailVerified = u.Email, true
	}
	info.AppendClaims("groups", slices.Clone(u.Groups))
	return nil
}

// GetPrivateClaimsFromScopes implements op.Storage.
func (*storage) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return map[string]any{}, nil
}

// Health implements op.Storage.
func (*storage) Health(context.Context) error { return nil }

// signingKey implements op.SigningKey and op.Key.
type signingKey struct{ key any }

// ID implements op.SigningKey and op.Key.
func (signingKey) ID() string { return "1" }

// Algorithm implements op.SigningKey and op.Key.
func (signingKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }

// SignatureAlgorithm implements op.SigningKey and op.Key.
func (signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }

// Use implements op.SigningKey and op.Key.
func (signingKey) Use() string { return "sig" }

// Key implements op.SigningKey and op.Key.
func (k signingKey) Key() any { return k.key }

// SigningKey implements op.Storage.
func (s *storage) SigningKey(context.Context) (op.SigningKey, error) { return signingKey{s.key}, nil }

// SignatureAlgorithms implements op.Storage.
func (*storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

// KeySet implements op.Storage.
func (s *storage) KeySet(context.Context) ([]op.Key, error) {
	return []op.Key{signingKey{s.key.Public()}}, nil
}

// client implements op.Client.
type client struct {
	Client
	lifetime time.Duration
}

// GetID implements op.Client.
func (c client) GetID() string { return c.ID }

// RedirectURIs implements op.Client.
func (c client) RedirectURIs() []string { return c.Client.RedirectURLs }

// PostLogoutRedirectURIs implements op.Client.
func (c client) PostLogoutRedirectURIs() []string { return c.SignedOutURLs }

// ApplicationType implements op.Client.
func (client) ApplicationType() op.ApplicationType { return op.ApplicationTypeNative }

// ResponseTypes implements op.Client.
func (client) ResponseTypes() []oidc.ResponseType { return []oidc.ResponseType{oidc.ResponseTypeCode} }

// LoginURL implements op.Client.
func (client) LoginURL(id string) string { return loginURL(id) }

// AccessTokenType implements op.Client.
func (client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeBearer }

// IDTokenLifetime implements op.Client.
func (c client) IDTokenLifetime() time.Duration { return c.lifetime }

// DevMode implements op.Client.
func (client) DevMode() bool { return false }

// IsScopeAllowed implements op.Client.
func (client) IsScopeAllowed(scope string) bool { return scope == "groups" }

// IDTokenUserinfoClaimsAssertion implements op.Client.
func (client) IDTokenUserinfoClaimsAssertion() bool { return true }

// ClockSkew implements op.Client.
func (client) ClockSkew() time.Duration { return 0 }

// RestrictAdditionalIdTokenScopes implements op.Client.
func (client) RestrictAdditionalIdTokenScopes() func([]string) []string { return same } //nolint:revive,staticcheck // The name is that of the interface.

// RestrictAdditionalAccessTokenScopes implements op.Client.
func (client) RestrictAdditionalAccessTokenScopes() func([]string) []string { return same }

// GrantTypes implements op.Client.
func (client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeRefreshToken}
}

// AuthMethod implements op.Client.
func (c client) AuthMethod() oidc.AuthMethod {
	if c.Secret == "" {
		return oidc.AuthMethodNone
	}
	return oidc.AuthMethodBasic
}

func same(scopes []string) []string { return scopes }
