package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/hub/serving"
)

const (
	assetsPath = "/assets/"
	signInPath = "/signin"

	// contentPolicy lets a page load only files of this server, and nothing inline.
	contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	// minCompressed is the smallest body, in bytes, that is compressed.
	minCompressed = 1 << 10
)

// routes of the dashboard.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern, route string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, s.measured(route, s.bounded(h)))
	}
	handle("GET "+assetsPath+"{name}", "/assets", s.asset)
	handle("GET /changes", "/changes", s.changes)
	mux.HandleFunc("GET /stream", s.stream) // It counts its requests itself, and bounds only their beginning.
	if s.Auth == AuthToken {
		handle("GET "+signInPath, signInPath, s.signInForm)
		handle("POST "+signInPath, signInPath, s.signIn)
		handle("POST /signout", "/signout", s.signOut)
		if s.provider != nil {
			handle("GET "+oidcPath, oidcPath, s.beginAtProvider)
			handle("GET "+callbackPath, callbackPath, s.callback)
		}
		handle("GET /session", "/session", s.session)
		for _, kind := range []string{"promotions", "pipelines"} {
			handle("POST /"+kind+"/{namespace}/{name}/{action}", "/act", s.act(kind))
			handle("POST /"+kind+"/{namespace}/{name}/{action}/{part}", "/act", s.act(kind))
		}
	}
	handle("GET /", "", s.page)
	all := http.NewServeMux() // The API answers every method, which a pattern of GET does not permit.
	all.Handle(apiPath, s.api())
	all.Handle("/", mux)
	return all
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if s.Auth == AuthNone && !serving.OwnHost(r.Host) {
		// DNS rebinding: the name of another site resolves to this machine.
		http.Error(w, "this dashboard is only for this machine: open it as localhost or 127.0.0.1", http.StatusMisdirectedRequest)
		return
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		http.Error(w, "the request comes from another site: open the dashboard and try again", http.StatusForbidden)
		return
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	s.handler.ServeHTTP(w, r)
}

// bounded limits concurrent requests to the slots, and the time of each request.
func (s *Server) bounded(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		release, ok := s.enter(w)
		if !ok {
			return
		}
		defer release()
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		s.renew(w, r)
		h(w, r)
	}
}

// enter takes a slot for a request. Without a free slot it answers the request.
func (s *Server) enter(w http.ResponseWriter) (release func(), ok bool) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, true
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many concurrent requests: try again", http.StatusServiceUnavailable)
		return nil, false
	}
}

// measured counts requests; an empty route stands for the route of the requested page.
func (s *Server) measured(route string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began, of := s.Clock.Now(), route
		if of == "" {
			of = "none"
			if a, ok := s.parseAddress(r.URL); ok {
				of = a.route
			}
		}
		counting := &countingWriter{ResponseWriter: w, code: http.StatusOK}
		h(counting, r)
		s.metrics.requests.WithLabelValues(of, strconv.Itoa(counting.code)).Inc()
		s.metrics.requestSeconds.WithLabelValues(of).Observe(s.Clock.Since(began).Seconds())
	}
}

type countingWriter struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (w *countingWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// viewer is the user of a request and what the user may see.
type viewer struct {
	session session
	user    authenticationv1.UserInfo
	scope   view.Scope
	facts   *view.Facts
}

// viewer returns the viewer of a request. The error is errNoSession or
// errNotAuthenticated when the user must sign in, errNotReady before the caches are
// filled, or the API server's.
func (s *Server) viewer(ctx context.Context, r *http.Request) (viewer, error) {
	var v viewer
	var err error
	if s.Auth == AuthToken {
		if v.session, err = s.sessions.read(r); err != nil {
			return v, err
		}
		if v.user, err = s.reviewer.review(ctx, v.session.Token); err != nil {
			return v, err
		}
	}
	if v.facts, err = s.source.facts(ctx); err != nil {
		return v, err
	}
	if s.Auth == AuthNone {
		v.scope = view.Everything()
		return v, nil
	}
	v.scope, err = s.access.scope(ctx, v.user, v.facts)
	return v, err
}

func mustSignIn(err error) bool {
	return errors.Is(err, errNoSession) || errors.Is(err, errNotAuthenticated)
}

// page shows one of the dashboard's pages.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	v, err := s.viewer(r.Context(), r)
	if err != nil {
		s.unseen(w, r, v, err)
		return
	}
	a, known := s.parseAddress(r.URL)
	if !known {
		s.message(w, r, v, http.StatusNotFound, "Not found", "This page does not exist.")
		return
	}
	if s.Auth == AuthNone {
		s.markBrowser(w, r)
	}
	live := a.canonical
	t, leave, err := s.join(a, v)
	if errors.Is(err, errTooManyTopics) {
		// The page is shown without live changes.
		t, leave, live = newTopic(a, v.scope, s.renderer), func() {}, ""
		err = t.refresh(v.facts)
	}
	if errors.Is(err, errAbsent) {
		s.absent(w, r, v)
		return
	}
	if err != nil {
		s.unseen(w, r, v, err)
		return
	}
	seen, there, err := t.shot()
	leave()
	switch {
	case err != nil:
		s.unseen(w, r, v, err)
	case !there:
		s.absent(w, r, v)
	default:
		around := shell{Title: seen.page.Title, Nav: nav(r.URL.Path), Live: live, Version: seen.version, Form: seen.page.Form, Main: template.HTML(seen.main)} // The templates of this package made it.
		if r.URL.Path == view.SearchPath {
			around.Search = view.ParseQuery(r.URL.Query()).Search
		}
		s.write(w, r, http.StatusOK, v, around)
	}
}

// absent answers a request for the page of an object that does not exist for the viewer.
func (s *Server) absent(w http.ResponseWriter, r *http.Request, v viewer) {
	s.message(w, r, v, http.StatusNotFound, "Not found", "This object does not exist, or you may not see it.")
}

// unseen answers a request without a valid session, or when no page can be shown.
func (s *Server) unseen(w http.ResponseWriter, r *http.Request, v viewer, err error) {
	if mustSignIn(err) {
		// Without a cookie in the request there can be one in the browser: it does not send
		// a strict cookie after a link from another site.
		if _, err := r.Cookie(s.sessions.cookieName(0)); err == nil {
			s.sessions.end(w, session{})
		}
		query := url.Values{"next": {r.URL.RequestURI()}}
		if ended := (endedError{}); errors.As(err, &ended) {
			query.Set("ended", ended.code)
		}
		http.Redirect(w, r, signInPath+"?"+query.Encode(), http.StatusSeeOther)
		return
	}
	w.Header().Set("Retry-After", "2")
	if errors.Is(err, errNotReady) {
		s.message(w, r, v, http.StatusServiceUnavailable, "Not available", "The hub cannot show this page at the moment: "+err.Error()+". Try again.")
		return
	}
	s.Logger.Error(err, "showing a page", "path", r.URL.Path)
	s.message(w, r, v, http.StatusServiceUnavailable, "Not available", "The hub cannot show this page at the moment; its log has the reason. Try again.")
}

// message answers with a page that has a title and a short text.
func (s *Server) message(w http.ResponseWriter, r *http.Request, v viewer, code int, title, text string) {
	main, err := s.renderer.execute("message", map[string]string{"Title": title, "Text": text, "Back": "/"})
	if err != nil {
		s.Logger.Error(err, "showing a message")
		http.Error(w, title, code)
		return
	}
	s.write(w, r, code, v, shell{Title: title, Nav: nav(""), Main: template.HTML(main)}) // The templates of this package made it.
}

// write sends a page inside the layout.
func (s *Server) write(w http.ResponseWriter, r *http.Request, code int, v viewer, page shell) {
	page.DryRun = s.DryRun
	page.Now, page.Retry = s.Clock.Now(), code == http.StatusServiceUnavailable && !page.SignIn
	if v.facts != nil {
		page.Standby, page.Connects, page.Leaderless, page.LeaderSeen = !v.facts.Leads, v.facts.Connects, v.facts.Leaderless, v.facts.LeaderSeen
		page.Hub, page.Conflict, page.OtherHubs = v.facts.Hub, v.facts.Conflict, v.facts.OtherHubs
	}
	if v.user.Username != "" {
		page.User, page.CSRF = v.user.Username, s.sessions.csrfToken(v.session)
	}
	html, err := s.renderer.execute("layout", page)
	if err != nil {
		s.Logger.Error(err, "showing a page", "path", r.URL.Path)
		http.Error(w, "the page cannot be shown; the hub's log has the reason", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	send(w, r, code, []byte(html))
}

// compressors are reused: creating one costs more than compressing a page.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// send writes a body, compressed when the browser accepts gzip.
func send(w http.ResponseWriter, r *http.Request, code int, body []byte) {
	w.Header().Add("Vary", "Accept-Encoding")
	if len(body) >= minCompressed && acceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		body = compressed(body)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // It fails only when the client disconnected.
}

func compressed(body []byte) []byte {
	var b bytes.Buffer
	z, _ := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&b)
	_, _ = z.Write(body) // Writing to a buffer does not fail.
	_ = z.Close()
	return b.Bytes()
}

func acceptsGzip(r *http.Request) bool {
	for encoding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(encoding), ";")
		if name == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

// asset sends a file that the browser may cache permanently: its name has a hash of its
// content.
func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	a, ok := s.assets[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("ETag", a.etag)
	h.Set("Content-Type", a.mediaType)
	if r.Header.Get("If-None-Match") == a.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	send(w, r, http.StatusOK, a.content)
}
