package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/dashboard/openid"
)

const (
	oidcPath     = signInPath + "/oidc"
	callbackPath = oidcPath + "/callback"

	// attemptLife is how long a user may take at the provider.
	attemptLife = 10 * time.Minute
	// maxAttempts is how many sign-ins one browser can have under way, one for each tab. Older
	// ones end, so that another site cannot fill the header of requests with their cookies.
	maxAttempts = 5
	// attemptID is how many characters of the state are in the name of the cookie.
	attemptID = 12
	// maxText is the maximum length, in characters, of a text of the provider that is shown.
	maxText = 200
	// revokeTimeout bounds the revocation of a refresh token while a user waits for the sign-out.
	revokeTimeout = 5 * time.Second

	attemptPlain  = "capstan-signin-"
	attemptSecure = "__Host-capstan-signin-"
)

// OIDC is the OpenID Connect provider at which users can sign in. The API server of the
// management cluster must accept its ID tokens: each is the bearer token of its user.
type OIDC struct {
	// IssuerURL and URL, the address at which browsers open the dashboard, are accepted by
	// openid.CheckURL.
	IssuerURL, URL string
	// ClientID of the dashboard at the provider. ClientSecret is empty for a public client.
	ClientID, ClientSecret string
	// Scopes to request besides openid.
	Scopes []string
	// Roots are the certificate authorities of the provider; nil for those of the system.
	Roots *x509.CertPool
}

// address returns the address of a path of the dashboard.
func (o *OIDC) address(path string) string { return strings.TrimSuffix(o.URL, "/") + path }

func (o *OIDC) provider(clock clock.PassiveClock) *openid.Provider {
	return openid.New(openid.Config{
		Issuer: o.IssuerURL, ClientID: o.ClientID, ClientSecret: o.ClientSecret, Scopes: o.Scopes,
		RedirectURL: o.address(callbackPath), SignedOutURL: o.address(signInPath), Roots: o.Roots, Clock: clock,
	})
}

// attempt is a sign-in at the provider, sealed in a cookie of the browser that began it.
type attempt struct {
	openid.Attempt
	// Next is the page after the sign-in.
	Next string
	At   int64 // when it began, in seconds since 1970
}

func (s *sealer) attemptPrefix() string {
	if s.secure {
		return attemptSecure
	}
	return attemptPlain
}

// beginAttempt sets the cookie of an attempt, and deletes those of the oldest ones.
func (s *sealer) beginAttempt(w http.ResponseWriter, r *http.Request, a attempt) error {
	type pending struct {
		name string
		at   int64
	}
	var others []pending
	for _, cookie := range r.Cookies() {
		if strings.HasPrefix(cookie.Name, s.attemptPrefix()) {
			var other attempt
			_ = s.decrypt(sealedAttempt, cookie.Value, &other) // One that cannot be read is the oldest.
			others = append(others, pending{cookie.Name, other.At})
		}
	}
	slices.SortFunc(others, func(a, b pending) int { return int(a.at - b.at) })
	for len(others) >= maxAttempts {
		s.setAttempt(w, others[0].name, "")
		others = others[1:]
	}
	value, err := s.encrypt(sealedAttempt, a)
	if err == nil {
		s.setAttempt(w, s.attemptPrefix()+a.State[:attemptID], value)
	}
	return err
}

// setAttempt sets the cookie of an attempt; an empty value deletes it. The cookie is not strict,
// because the provider, another site, sends the browser back.
func (s *sealer) setAttempt(w http.ResponseWriter, name, value string) {
	cookie := &http.Cookie{Name: name, Value: value, Path: "/", Secure: s.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: int(attemptLife / time.Second)}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// endAttempt returns the attempt of a state and deletes its cookie. The error is errNoSession
// when this browser has none of this state, or it is too old.
func (s *sealer) endAttempt(w http.ResponseWriter, r *http.Request, state string) (attempt, error) {
	if len(state) < attemptID {
		return attempt{}, errNoSession
	}
	cookie, err := r.Cookie(s.attemptPrefix() + state[:attemptID])
	if err != nil {
		return attempt{}, errNoSession
	}
	s.setAttempt(w, cookie.Name, "")
	var a attempt
	if err := s.decrypt(sealedAttempt, cookie.Value, &a); err != nil {
		return attempt{}, err
	}
	if a.State != state || s.clock.Since(time.Unix(a.At, 0)) > attemptLife {
		return attempt{}, errNoSession
	}
	return a, nil
}

// beginAtProvider sends the browser to the provider.
func (s *Server) beginAtProvider(w http.ResponseWriter, r *http.Request) {
	next := local(r.URL.Query().Get("next"))
	begun, address, err := s.provider.Begin(r.Context())
	if err == nil {
		err = s.sessions.beginAttempt(w, r, attempt{Attempt: begun, Next: next, At: s.Clock.Now().Unix()})
	}
	if err != nil {
		s.notSignedIn(w, r, next, err)
		return
	}
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// errUntrusted is returned when the API server does not accept the ID tokens of the provider.
var errUntrusted = errors.New("the API server does not accept the ID tokens of the provider")

// callback completes a sign-in: the provider sent the browser back.
func (s *Server) callback(w http.ResponseWriter, r *http.Request) {
	refuse := func(code int, result, next, text string) {
		s.metrics.signIns.WithLabelValues(methodOIDC, result).Inc()
		s.askForToken(w, r, code, next, text)
	}
	if !s.limiter.allow(r.RemoteAddr, s.Clock.Now()) {
		w.Header().Set("Retry-After", "6")
		refuse(http.StatusTooManyRequests, "limited", "/", "Too many sign-in attempts. Wait a moment and try again.")
		return
	}
	query := r.URL.Query()
	a, err := s.sessions.endAttempt(w, r, query.Get("state"))
	if err != nil {
		refuse(http.StatusBadRequest, "refused", "/", fmt.Sprintf("This sign-in was not begun in this browser at %s, is completed, or is older than %d minutes. Sign in again.", s.OIDC.address("/"), int(attemptLife.Minutes())))
		return
	}
	if from := query.Get("iss"); from != "" && from != s.provider.Issuer() {
		refuse(http.StatusBadRequest, "refused", a.Next, "The answer comes from another provider. Sign in again.")
		return
	}
	if code := query.Get("error"); code != "" {
		refuse(http.StatusUnauthorized, "refused", a.Next, fmt.Sprintf("%s refused the sign-in: %s", s.provider.Host(), plain(strings.TrimSpace(code+" "+query.Get("error_description")))))
		return
	}
	user, of, err := s.finish(r.Context(), a, query.Get("code"))
	if err != nil {
		s.notSignedIn(w, r, a.Next, err)
		return
	}
	of, value, err := s.sessions.fit(of)
	if err == nil {
		err = s.access.forget(user.user)
	}
	if err != nil {
		s.notSignedIn(w, r, a.Next, err)
		return
	}
	s.sessions.put(w, value)
	s.metrics.signIns.WithLabelValues(methodOIDC, "ok").Inc()
	s.Logger.Info("signed in", "user", user.user.Username, "method", methodOIDC, "renewable", of.OIDC.Refresh != "", "client", r.RemoteAddr)
	// After a redirect from another site, the browser would not send the strict cookies: it
	// opens the next page from this one.
	w.Header().Set("Refresh", "0;url="+a.Next)
	s.interstitial(w, r, user, "Signed in", "signedin", map[string]string{"User": user.user.Username, "Next": a.Next})
}

// finish exchanges the code, and returns the user and the new session.
func (s *Server) finish(ctx context.Context, a attempt, code string) (viewer, session, error) {
	tokens, err := s.provider.Finish(ctx, a.Attempt, code)
	if err != nil {
		return viewer{}, session{}, err
	}
	user, err := s.reviewer.review(ctx, tokens.ID)
	if errors.Is(err, errNotAuthenticated) {
		return viewer{}, session{}, fmt.Errorf("%w: %s accepted you as %s, but the API server of this management cluster does not accept its tokens: configure it with --oidc-issuer-url=%s and --oidc-client-id=%s, or with an AuthenticationConfiguration that names them. Until then sign in with a token",
			errUntrusted, s.provider.Host(), plain(tokens.Name), s.provider.Issuer(), s.provider.ClientID())
	}
	if err != nil {
		return viewer{}, session{}, err
	}
	now := s.Clock.Now().Unix()
	of := session{ID: rand.Text(), Token: tokens.ID, At: now, OIDC: &issued{Refresh: tokens.Refresh, Subject: tokens.Subject, From: now, Until: tokens.Expires.Unix()}}
	return viewer{session: of, user: user}, of, nil
}

// notSignedIn shows the sign-in page with the reason why a sign-in at the provider failed.
func (s *Server) notSignedIn(w http.ResponseWriter, r *http.Request, next string, err error) {
	host := s.provider.Host()
	result, code, text := "refused", http.StatusUnauthorized, fmt.Sprintf("The sign-in with %s failed: %s. Sign in again.", host, plain(err.Error()))
	var refusal *openid.Refusal
	switch {
	case errors.Is(err, openid.ErrUnavailable):
		result, code = "error", http.StatusServiceUnavailable
		text = fmt.Sprintf("%s is not available at the moment; the hub's log has the reason. Try again later, or sign in with a token.", host)
	case errors.Is(err, errUntrusted):
		text = strings.TrimPrefix(err.Error(), errUntrusted.Error()+": ") + "."
	case errors.Is(err, errTooLong):
		text = fmt.Sprintf("The ID token of %s does not fit into the cookies of the dashboard: configure fewer claims for its client %s, for example only the groups that have rights in this cluster.", host, s.provider.ClientID())
	case errors.As(err, &refusal):
		text = fmt.Sprintf("%s refused the sign-in: %s. Sign in again.", host, plain(refusal.Code))
	}
	s.metrics.signIns.WithLabelValues(methodOIDC, result).Inc()
	s.Logger.Info("sign-in failed", "method", methodOIDC, "issuer", s.provider.Issuer(), "client", r.RemoteAddr, "error", err.Error())
	s.askForToken(w, r, code, next, text)
}

// signOutAtProvider revokes the refresh token of an ended session, and shows the page that leads
// to the sign-out at the provider; false if it has none.
func (s *Server) signOutAtProvider(w http.ResponseWriter, r *http.Request, of session) bool {
	ctx, cancel := context.WithTimeout(r.Context(), revokeTimeout)
	defer cancel()
	if of.OIDC.Refresh != "" {
		if err := s.provider.Revoke(ctx, of.OIDC.Refresh); err != nil {
			s.Logger.Info("the refresh token of a session that was signed out is not revoked", "issuer", s.provider.Issuer(), "error", err.Error())
		}
	}
	end := s.provider.EndSession(ctx)
	if end == "" {
		return false
	}
	// Not a redirect: browsers apply the content policy's form-action to redirects of forms.
	w.Header().Set("Refresh", "0;url="+end)
	s.interstitial(w, r, viewer{}, "Signed out", "signedout", map[string]string{"Provider": s.provider.Host(), "End": end})
	return true
}

// interstitial shows a page of the sign-in that the browser leaves at once.
func (s *Server) interstitial(w http.ResponseWriter, r *http.Request, v viewer, title, name string, data map[string]string) {
	main, err := s.renderer.execute(name, data)
	if err != nil {
		s.Logger.Error(err, "showing a page of the sign-in")
		http.Error(w, title, http.StatusInternalServerError)
		return
	}
	s.write(w, r, http.StatusOK, v, shell{Title: title, SignIn: v.user.Username == "", Main: template.HTML(main)}) // It was made by the templates here.
}

// plain returns a text of another party as one short line without control characters.
func plain(text string) string {
	line := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, text))
	if len(line) > maxText {
		return string(line[:maxText]) + "…"
	}
	return string(line)
}
