package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/capstan-hub/capstan/hub/dashboard/openid"
)

const (
	// renewAhead is how long before its expiry an ID token is renewed: longer than recheckEvery,
	// so that streams notice it, and long enough for some attempts. A token that is valid for a
	// shorter time is renewed after half of it.
	renewAhead = 2 * time.Minute
	// renewAgain is how long after a failed renewal the next one is tried, while the provider is
	// not available.
	renewAgain = 10 * time.Second
)

// issued is what a session has of an OpenID Connect provider, besides the ID token.
type issued struct {
	// Refresh is the refresh token; empty if the session cannot be renewed.
	Refresh string `json:",omitempty"`
	Subject string
	// From and Until are when the ID token was received and when it expires, in seconds since
	// 1970.
	From, Until int64
	// Renewals counts how often the session was renewed.
	Renewals int `json:",omitempty"`
}

// renewal is the last renewal of a session by this replica. Requests that were sent with the
// former cookies use its token, too.
type renewal struct {
	// of is the renewed session, and value its cookies: all answers set the same ones. They are
	// empty if no renewal succeeded.
	of    session
	value string
	// failed is the reason of a renewal that failed since, at failedAt, when the session had been
	// renewed failedOf times.
	failed   string
	failedAt time.Time
	failedOf int
}

// Reasons why a session ended. They are in the address of the sign-in page.
const (
	endExpired     = "expired"
	endRefused     = "refused"
	endUnavailable = "unavailable"
)

// endTexts are what the sign-in page says for the reasons.
var endTexts = map[string]string{
	endExpired:     "Your sign-in ended: the ID token expired, and the provider issued no refresh token. Sign in again.",
	endRefused:     "Your sign-in ended: the provider did not renew it. Sign in again.",
	endUnavailable: "Your sign-in ended: the provider was not available to renew it. Sign in again.",
}

// endedError is returned for a session whose ID token expired. It is an errNoSession.
type endedError struct{ code string }

// Error implements error.
func (e endedError) Error() string { return "the session ended: " + e.code }

// Unwrap makes it an errNoSession.
func (endedError) Unwrap() error { return errNoSession }

// renewalOf returns the last renewal of a session.
func (s *sealer) renewalOf(of session) renewal {
	known, _ := s.renewals.Get(of.ID)
	last, _ := known.(renewal)
	return last
}

// newest returns a session with the newest tokens that this replica knows.
func (s *sealer) newest(of session) session {
	if of.OIDC == nil {
		return of
	}
	if last := s.renewalOf(of); last.of.OIDC != nil && last.of.OIDC.Renewals > of.OIDC.Renewals {
		return last.of
	}
	return of
}

// endOf returns why the session of an expired ID token ended.
func (s *sealer) endOf(of session) error {
	return endedError{cmp.Or(s.renewalOf(of).failed, endExpired)}
}

// due reports whether a session should be renewed now.
func (s *Server) due(of session) bool {
	if s.provider == nil || of.OIDC == nil || of.OIDC.Refresh == "" {
		return false
	}
	now, until := s.Clock.Now(), time.Unix(of.OIDC.Until, 0)
	if now.Before(until.Add(-min(renewAhead, until.Sub(time.Unix(of.OIDC.From, 0))/2))) { //nolint:mnd // After half of its time.
		return false
	}
	last := s.sessions.renewalOf(of)
	if last.failed == "" || last.failedOf < of.OIDC.Renewals {
		return true
	}
	return last.failed == endUnavailable && now.Sub(last.failedAt) >= renewAgain
}

// renewBefore is renew, with the time limit of a request.
func (s *Server) renewBefore(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	s.renew(w, r.WithContext(ctx))
}

// renew renews the session of a request if its ID token expires soon or has expired, and sets
// the cookies if the browser has not the newest ones. If it fails, the session lasts until its
// token expires.
func (s *Server) renew(w http.ResponseWriter, r *http.Request) {
	// Assets are cached for all users. Signing in and out replaces the cookies.
	if s.provider == nil || strings.HasPrefix(r.URL.Path, assetsPath) || strings.HasPrefix(r.URL.Path, signInPath) || r.URL.Path == "/signout" {
		return
	}
	sent, err := s.sessions.open(r)
	if err != nil || sent.OIDC == nil {
		return
	}
	if of := s.sessions.newest(sent); s.due(of) {
		// Requests of many tabs wait for one renewal.
		_, _, _ = s.renewing.Do(of.ID, func() (any, error) {
			if of := s.sessions.newest(of); s.due(of) {
				s.renewNow(r.Context(), of)
			}
			return nil, nil
		})
	}
	if last := s.sessions.renewalOf(sent); last.of.OIDC != nil && last.of.OIDC.Renewals > sent.OIDC.Renewals {
		s.sessions.put(w, last.value)
	}
}

// renewNow gets a new ID token for a session and remembers it, or why that failed.
func (s *Server) renewNow(ctx context.Context, of session) {
	// The request may end before the others that wait for the same renewal.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	next := renewal{}
	tokens, err := s.provider.Renew(ctx, of.OIDC.Refresh, of.OIDC.Subject)
	if err == nil {
		now := issued{Refresh: cmp.Or(tokens.Refresh, of.OIDC.Refresh), Subject: of.OIDC.Subject, From: s.Clock.Now().Unix(), Until: tokens.Expires.Unix(), Renewals: of.OIDC.Renewals + 1}
		renewed := session{ID: of.ID, Token: tokens.ID, At: of.At, OIDC: &now}
		next.of, next.value, err = s.sessions.fit(renewed)
	}
	if err != nil {
		next = s.sessions.renewalOf(of)
		next.failed, next.failedAt, next.failedOf = endRefused, s.Clock.Now(), of.OIDC.Renewals
		if errors.Is(err, openid.ErrUnavailable) {
			next.failed = endUnavailable
		}
		s.Logger.Info("a sign-in is not renewed", "issuer", s.provider.Issuer(), "until", time.Unix(of.OIDC.Until, 0), "error", err.Error())
	}
	s.sessions.renewals.Add(of.ID, next)
}
