package dashboard

import (
	"html/template"
	"net/http"
	"net/url"
	"strings"
)

// local returns next when it is an address of this server, otherwise "/".
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") ||
		strings.ContainsRune(next, '\\') || strings.HasPrefix(u.Path, signInPath) || len(next) > maxAddress {
		return "/"
	}
	return next
}

func (s *Server) signInForm(w http.ResponseWriter, r *http.Request) {
	s.askForToken(w, r, http.StatusOK, local(r.URL.Query().Get("next")), endTexts[r.URL.Query().Get("ended")])
}

// Methods to sign in, for logs and metrics.
const (
	methodToken = "token"
	methodOIDC  = "oidc"
)

// signInData is the data of the sign-in page.
type signInData struct {
	// Next is the page after the sign-in; Refused says why the last attempt was refused, or why
	// the session ended.
	Next, Refused string
	// Provider is the host of the OpenID Connect provider, and ProviderLink begins a sign-in
	// there; empty without one.
	Provider, ProviderLink string
}

// askForToken shows the form, and why the last attempt was refused.
func (s *Server) askForToken(w http.ResponseWriter, r *http.Request, code int, next, refused string) {
	data := signInData{Next: next, Refused: refused}
	if s.provider != nil {
		data.Provider, data.ProviderLink = s.provider.Host(), s.OIDC.address(oidcPath)+"?"+url.Values{"next": {next}}.Encode()
	}
	main, err := s.renderer.execute("signin", data)
	if err != nil {
		s.Logger.Error(err, "showing the sign-in form")
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	if refused != "" {
		next = "" // The page stays, also when there is a session.
	}
	s.write(w, r, code, viewer{}, shell{Title: "Sign in", SignIn: true, Next: next, Main: template.HTML(main)}) // It was made by the templates here.
}

// signIn begins a session when the API server accepts the token.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	if !s.limiter.allow(r.RemoteAddr, s.Clock.Now()) {
		s.metrics.signIns.WithLabelValues(methodToken, "limited").Inc()
		w.Header().Set("Retry-After", "6")
		s.askForToken(w, r, http.StatusTooManyRequests, "/", "Too many sign-in attempts. Wait a moment and try again.")
		return
	}
	if err := r.ParseForm(); err != nil {
		s.askForToken(w, r, http.StatusBadRequest, "/", "The form could not be read. Try again.")
		return
	}
	next, token := local(r.PostForm.Get("next")), strings.TrimSpace(r.PostForm.Get("token"))
	if token == "" || len(token) > MaxToken {
		s.metrics.signIns.WithLabelValues(methodToken, "refused").Inc()
		s.askForToken(w, r, http.StatusUnprocessableEntity, next, "The token is empty or too long.")
		return
	}
	user, err := s.reviewer.review(r.Context(), token)
	switch {
	case mustSignIn(err):
		s.metrics.signIns.WithLabelValues(methodToken, "refused").Inc()
		s.Logger.V(1).Info("sign-in refused", "client", r.RemoteAddr)
		s.askForToken(w, r, http.StatusUnauthorized, next, "The "+tokenRejected+".")
		return
	case err == nil:
		if err = s.access.forget(user); err == nil {
			err = s.sessions.begin(w, token)
		}
	}
	if err != nil {
		s.metrics.signIns.WithLabelValues(methodToken, "error").Inc()
		s.Logger.Error(err, "signing in")
		s.askForToken(w, r, http.StatusServiceUnavailable, next, "The API server could not check the token; the hub's log has the reason. Try again.")
		return
	}
	s.metrics.signIns.WithLabelValues(methodToken, "ok").Inc()
	s.Logger.Info("signed in", "user", user.Username, "method", methodToken, "client", r.RemoteAddr)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// signOut ends the session, and that at the provider.
func (s *Server) signOut(w http.ResponseWriter, r *http.Request) {
	of, err := s.sessions.open(r)
	if err == nil && !s.sessions.genuine(of, r.PostFormValue("csrf")) {
		http.Error(w, "the form belongs to another session: go back, reload the page and try again", http.StatusForbidden)
		return
	}
	of = s.sessions.newest(of)
	s.sessions.end(w, of)
	if of.OIDC == nil || s.provider == nil || !s.signOutAtProvider(w, r, of) {
		http.Redirect(w, r, signInPath, http.StatusSeeOther)
	}
}

// session reports whether the request has a session. The sign-in page calls it, because
// the browser does not send a strict cookie after a link from another site.
func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	of, err := s.sessions.read(r)
	if err == nil {
		_, err = s.reviewer.review(r.Context(), of.Token)
	}
	if err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
