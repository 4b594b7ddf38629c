package dashboard

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	// beatEvery is how often a stream sends a heartbeat, so that proxies keep the
	// connection and the browser knows that it works.
	beatEvery = 15 * time.Second
	// recheckEvery is how often the access of a stream's viewer is checked.
	recheckEvery = accessFor
	// eventTimeout bounds one write to a stream. After it the browser is taken for
	// disconnected.
	eventTimeout = 10 * time.Second
	// retryAfter is how long a browser waits before it reconnects a stream, in ms.
	retryAfter = 2000

	// maxStreams of all viewers at a time.
	maxStreams = 256
	// maxOwnStreams of one browser over HTTP/1.1, where a browser has six connections
	// in total: further tabs poll every few seconds.
	maxOwnStreams = 4
	// maxOwnStreamsShared of one browser over HTTP/2, where streams share a connection.
	maxOwnStreamsShared = 32
	// maxUserStreams of one user who signed in, over all sessions: each sign-in begins another
	// session. Further tabs poll.
	maxUserStreams = 32

	// browserCookie identifies a browser when sign-in is disabled.
	browserCookie = "capstan-browser"
)

// errTooManyStreams is returned when there is no slot for another stream.
var errTooManyStreams = errors.New("too many streams")

// quota is how many streams a browser or a user may have.
type quota struct {
	// of names the browser or the user; empty if it cannot be identified, and has no limit of
	// its own.
	of   string
	most int
}

// streamSlots count the streams of each browser, of each user, and of all.
type streamSlots struct {
	// mu guards the fields that follow.
	mu        sync.Mutex
	lockedAll int
	lockedOwn map[string]int
}

func newStreamSlots() *streamSlots { return &streamSlots{lockedOwn: map[string]int{}} }

// take takes a slot that counts for each of the quotas.
func (s *streamSlots) take(quotas ...quota) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockedAll >= maxStreams {
		return nil, errTooManyStreams
	}
	for _, q := range quotas {
		if q.of != "" && s.lockedOwn[q.of] >= q.most {
			return nil, errTooManyStreams
		}
	}
	s.lockedAll++
	for _, q := range quotas {
		s.lockedOwn[q.of]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lockedAll--
		for _, q := range quotas {
			if s.lockedOwn[q.of]--; s.lockedOwn[q.of] == 0 {
				delete(s.lockedOwn, q.of)
			}
		}
	}, nil
}

// quotas returns those of a request for a stream.
func (s *Server) quotas(r *http.Request, v viewer) []quota {
	most := maxOwnStreams
	if r.ProtoMajor > 1 {
		most = maxOwnStreamsShared
	}
	all := []quota{{of: s.browser(r, v), most: most}}
	if v.user.Username != "" {
		all = append(all, quota{of: "user/" + v.user.Username, most: maxUserStreams})
	}
	return all
}

// browser returns the name of a request's browser: its session, or its cookie without
// sign-in.
func (s *Server) browser(r *http.Request, v viewer) string {
	if s.Auth == AuthToken {
		return v.session.ID
	}
	if cookie, err := r.Cookie(browserCookie); err == nil {
		return cookie.Value
	}
	return ""
}

// markBrowser gives a browser without session a name, by a cookie.
func (s *Server) markBrowser(w http.ResponseWriter, r *http.Request) {
	if _, err := r.Cookie(browserCookie); err != nil {
		http.SetCookie(w, &http.Cookie{Name: browserCookie, Value: rand.Text(), Path: "/", Secure: s.CertFile != "", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	}
}

// followed returns the viewer of a request and the page whose changes it requests, or the
// status code of the error.
func (s *Server) followed(r *http.Request) (viewer, address, int, error) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	v, err := s.viewer(ctx, r)
	switch {
	case mustSignIn(err):
		return v, address{}, http.StatusUnauthorized, err
	case err != nil:
		return v, address{}, http.StatusServiceUnavailable, err
	}
	u, err := url.Parse(r.URL.Query().Get("page"))
	if err != nil {
		return v, address{}, http.StatusBadRequest, err
	}
	a, ok := s.parseAddress(u)
	if !ok {
		return v, address{}, http.StatusBadRequest, fmt.Errorf("page %q does not exist", u.Path)
	}
	return v, a, http.StatusOK, nil
}

// join adds a viewer to the topic of a page and refreshes the topic with the viewer's facts.
//
// The error is errAbsent for a page of an object that does not exist for the viewer, and that no
// other viewer with the same Scope follows: anyone can name such objects, so they get no topic.
func (s *Server) join(a address, v viewer) (t *topic, leave func(), err error) {
	if a.object && !s.board.has(a, v.scope) {
		if _, there := a.build(v.facts, v.scope); !there {
			return nil, nil, errAbsent
		}
	}
	t, left, err := s.board.join(a, v.scope)
	if err != nil {
		return nil, nil, err
	}
	leave = func() { left(s.Clock.Now()) }
	if err := t.refresh(v.facts); err != nil {
		leave()
		return nil, nil, err
	}
	return t, leave, nil
}

// versionOf returns the version that a browser has: Last-Event-ID has priority over the
// query parameter.
func versionOf(r *http.Request) string {
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		return last
	}
	return r.URL.Query().Get("from")
}

// following is a stream that has begun.
type following struct {
	viewer viewer
	topic  *topic
	// leave gives back the stream's slot and its place at the topic.
	leave func()
}

// startFollowing takes the slot of a stream and joins the topic of its page, or returns the
// status code of the error. It counts as a request until it returns, and calls done then.
func (s *Server) startFollowing(r *http.Request, done func()) (following, int) {
	defer done()
	v, a, code, err := s.followed(r)
	if err != nil {
		return following{}, code
	}
	release, err := s.streams.take(s.quotas(r, v)...)
	if err != nil {
		return following{}, http.StatusNoContent // It makes a browser stop reconnecting.
	}
	t, leave, err := s.join(a, v)
	if err != nil {
		release()
		if errors.Is(err, errAbsent) {
			return following{}, http.StatusNotFound
		}
		return following{}, http.StatusServiceUnavailable
	}
	return following{v, t, func() { leave(); release() }}, http.StatusOK
}

// stream sends the changes of a page as server-sent events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	count := func(code int) { s.metrics.requests.WithLabelValues("/stream", strconv.Itoa(code)).Inc() }
	done, ok := s.enter(w)
	if !ok {
		count(http.StatusServiceUnavailable)
		return
	}
	s.renewBefore(w, r)
	f, code := s.startFollowing(r, done)
	count(code)
	switch code {
	case http.StatusOK:
	case http.StatusNoContent:
		w.WriteHeader(code)
		return
	default:
		http.Error(w, http.StatusText(code), code)
		return
	}
	defer f.leave()
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // For proxies that buffer responses.
	out := &eventWriter{w: w, control: http.NewResponseController(w), clock: s.Clock}
	s.follow(r, f.viewer, f.topic, out)
}

// follow sends the changes of a topic until the browser disconnects, its session or access
// changes, or the hub stops.
func (s *Server) follow(r *http.Request, v viewer, t *topic, out *eventWriter) {
	beat, recheck := s.Clock.NewTicker(beatEvery), s.Clock.NewTicker(recheckEvery)
	defer beat.Stop()
	defer recheck.Stop()
	out.begin()
	out.beat()
	version := versionOf(r)
	for out.err == nil {
		changes := t.since(version)
		if changes.lost {
			s.metrics.resyncs.Inc()
			out.event("", "resync", "{}")
			return
		}
		for i, p := range changes.patches {
			out.event(changes.versions[i], "patch", string(p.json))
			version = changes.versions[i]
		}
		select {
		case <-changes.changed:
		case <-beat.C():
			out.beat()
		case <-recheck.C():
			switch now, err := s.recheck(r); {
			case mustSignIn(err):
				out.event("", "signedout", "{}")
				return
			case err == nil && s.due(now.session):
				// The browser reconnects: the answer to that request can set the renewed cookie.
				out.event("", "renew", "{}")
				return
			case err == nil && now.scope.Key() != v.scope.Key():
				s.metrics.resyncs.Inc()
				out.event("", "resync", "{}")
				return
			}
			// While the API server is unreachable, the last result stays valid.
		case <-r.Context().Done():
			return
		case <-s.stopping:
			return
		}
	}
}

func (s *Server) recheck(r *http.Request) (viewer, error) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	return s.viewer(ctx, r)
}

// eventWriter writes server-sent events until a write fails.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	clock   interface{ Now() time.Time }
	err     error
}

// begin removes the read deadline of the request and sends the reconnection time.
func (e *eventWriter) begin() {
	e.err = e.control.SetReadDeadline(time.Time{})
	e.write(fmt.Sprintf("retry: %d\n\n", retryAfter))
}

// beat sends a heartbeat with the hub's time.
func (e *eventWriter) beat() { e.event("", "beat", e.clock.Now().UTC().Format(time.RFC3339Nano)) }

// event writes an event with one line of data.
func (e *eventWriter) event(id, name, data string) {
	if id != "" {
		id = "id: " + id + "\n"
	}
	e.write(id + "event: " + name + "\ndata: " + data + "\n\n")
}

func (e *eventWriter) write(text string) {
	if e.err != nil {
		return
	}
	// Deadlines of connections use the real clock, not the injected one.
	if e.err = e.control.SetWriteDeadline(time.Now().Add(eventTimeout)); e.err != nil {
		return
	}
	if _, e.err = e.w.Write([]byte(text)); e.err == nil {
		e.err = e.control.Flush()
	}
}

// changes answers with the changes after a version, for browsers that poll.
func (s *Server) changes(w http.ResponseWriter, r *http.Request) {
	v, a, code, err := s.followed(r)
	if err != nil {
		http.Error(w, http.StatusText(code), code)
		return
	}
	after := changesSince{lost: true} // A page that does not exist: the browser must fetch it.
	switch t, leave, err := s.join(a, v); {
	case err == nil:
		defer leave()
		after = t.since(versionOf(r))
	case !errors.Is(err, errAbsent):
		http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
		return
	}
	answer := struct {
		Version string            `json:"version"`
		Patches []json.RawMessage `json:"patches"`
		Resync  bool              `json:"resync,omitempty"`
		Now     time.Time         `json:"now"`
	}{Version: after.version, Patches: []json.RawMessage{}, Resync: after.lost, Now: s.Clock.Now().UTC()}
	for _, p := range after.patches {
		answer.Patches = append(answer.Patches, p.json)
	}
	encoded, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	send(w, r, http.StatusOK, encoded)
}
