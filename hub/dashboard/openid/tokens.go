package openid

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Attempt is a sign-in that has begun. The browser keeps it, sealed, until the provider
// sends it back.
type Attempt struct {
	// State ties the answer of the provider to the browser that began the sign-in.
	State string
	// Nonce ties the ID token to the attempt.
	Nonce string
	// Verifier is the secret of PKCE: only its holder can use the code.
	Verifier string
}

// Tokens are what the provider issued, verified.
type Tokens struct {
	// ID is the ID token. It is the bearer token of the user at the API server.
	ID string
	// Expires is when the ID token expires.
	Expires time.Time
	// Refresh is the token for Renew; empty if the provider issued none.
	Refresh string
	// Subject is the user's identifier at the provider.
	Subject string
	// Name is the user's name for texts: e-mail address, user name or subject.
	Name string
}

// Refusal is an answer of the provider with an error code.
type Refusal struct {
	// Code, such as invalid_grant, as the provider sent it.
	Code string
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("the provider answered %q", r.Code) }

// Begin returns a new attempt, and the address at which the user signs in. The error is an
// ErrUnavailable.
func (p *Provider) Begin(ctx context.Context) (Attempt, string, error) {
	f, err := p.discover(ctx)
	if err != nil {
		return Attempt{}, "", err
	}
	a := Attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	return a, f.oauth2.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), nil
}

// Finish exchanges a code for tokens and verifies them.
func (p *Provider) Finish(ctx context.Context, a Attempt, code string) (Tokens, error) {
	f, err := p.discover(ctx)
	if err != nil {
		return Tokens{}, err
	}
	answer, err := f.oauth2.Exchange(p.with(ctx), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Tokens{}, failure("exchanging the code", err)
	}
	t, nonce, err := p.verify(ctx, f, answer)
	if err != nil {
		return Tokens{}, err
	}
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(a.Nonce)) != 1 {
		return Tokens{}, errors.New("the ID token belongs to another sign-in: its nonce differs")
	}
	return t, nil
}

// Renew gets a new ID token for the same subject. The error is a *Refusal when the provider
// does not accept the refresh token any more. Refresh of the result is the token for the next
// call.
func (p *Provider) Renew(ctx context.Context, refresh, subject string) (Tokens, error) {
	f, err := p.discover(ctx)
	if err != nil {
		return Tokens{}, err
	}
	answer, err := f.oauth2.TokenSource(p.with(ctx), &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		return Tokens{}, failure("renewing the ID token", err)
	}
	t, _, err := p.verify(ctx, f, answer)
	if err != nil {
		return Tokens{}, err
	}
	if t.Subject != subject {
		return Tokens{}, errors.New("the renewed ID token is that of another user")
	}
	return t, nil
}

// Revoke revokes a refresh token. It does nothing when the provider has no endpoint for it.
func (p *Provider) Revoke(ctx context.Context, refresh string) error {
	f, err := p.discover(ctx)
	if err != nil || f.Revocation == "" {
		return err
	}
	form := url.Values{"token": {refresh}, "token_type_hint": {"refresh_token"}}
	if f.oauth2.Endpoint.AuthStyle == oauth2.AuthStyleInParams {
		form.Set("client_id", p.config.ClientID)
		if p.config.ClientSecret != "" {
			form.Set("client_secret", p.config.ClientSecret)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.Revocation, strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("revoking the refresh token: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if f.oauth2.Endpoint.AuthStyle == oauth2.AuthStyleInHeader {
		request.SetBasicAuth(url.QueryEscape(p.config.ClientID), url.QueryEscape(p.config.ClientSecret))
	}
	answer, err := p.client.Do(request)
	if err != nil {
		return fmt.Errorf("%w: revoking the refresh token: %w", ErrUnavailable, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("revoking the refresh token: the provider answered %s", answer.Status)
	}
	return nil
}

// EndSession returns the address at which the user ends the session at the provider; empty if
// there is none, or the provider is not available. The address has no ID token, because that
// is a credential of the API server: the provider may ask the user to confirm.
func (p *Provider) EndSession(ctx context.Context) string {
	f, err := p.discover(ctx)
	if err != nil || f.EndSession == "" {
		return ""
	}
	u, err := url.Parse(f.EndSession)
	if err != nil {
		return ""
	}
	q := u.Query()
	q.Set("client_id", p.config.ClientID)
	q.Set("post_logout_redirect_uri", p.config.SignedOutURL)
	u.RawQuery = q.Encode()
	return u.String()
}

// with returns a context with the client of the provider, for oauth2.
func (p *Provider) with(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, p.client)
}

// verify verifies the ID token of an answer, and returns it with its nonce.
func (p *Provider) verify(ctx context.Context, f *found, answer *oauth2.Token) (Tokens, string, error) {
	raw, ok := answer.Extra("id_token").(string)
	if !ok || raw == "" {
		return Tokens{}, "", errors.New("the answer of the provider has no ID token")
	}
	token, err := f.verifier.Verify(p.with(ctx), raw)
	if err != nil {
		return Tokens{}, "", fmt.Errorf("verifying the ID token: %w", err)
	}
	var claims struct {
		AuthorizedParty   string `json:"azp"`
		Email             string `json:"email"`
		PreferredUsername string `json:"preferred_username"`
	}
	if err := token.Claims(&claims); err != nil {
		return Tokens{}, "", fmt.Errorf("reading the claims of the ID token: %w", err)
	}
	if claims.AuthorizedParty != "" && claims.AuthorizedParty != p.config.ClientID {
		return Tokens{}, "", fmt.Errorf("the ID token was issued to client %q, not to %q", claims.AuthorizedParty, p.config.ClientID)
	}
	if token.AccessTokenHash != "" {
		if err := token.VerifyAccessToken(answer.AccessToken); err != nil {
			return Tokens{}, "", fmt.Errorf("verifying at_hash of the ID token: %w", err)
		}
	}
	return Tokens{
		ID: raw, Expires: token.Expiry, Refresh: answer.RefreshToken, Subject: token.Subject,
		Name: cmp.Or(claims.Email, claims.PreferredUsername, token.Subject),
	}, token.Nonce, nil
}

// failure classifies an error of the token endpoint. It drops the body of the answer, which
// could contain a token.
func failure(doing string, err error) error {
	var answered *oauth2.RetrieveError
	if !errors.As(err, &answered) {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, err)
	}
	code, status := answered.ErrorCode, http.StatusOK
	if answered.Response != nil {
		status = answered.Response.StatusCode
	}
	if code == "" {
		code = http.StatusText(status)
	}
	// These answers say nothing about the code or the token: the same request can succeed later.
	temporary := status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || code == "server_error" || code == "temporarily_unavailable"
	if temporary {
		return fmt.Errorf("%w: %s: the provider answered %q", ErrUnavailable, doing, code)
	}
	return fmt.Errorf("%s: %w", doing, &Refusal{Code: code})
}
