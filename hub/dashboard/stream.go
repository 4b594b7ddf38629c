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

	// browserCookie identifies a browser when sign-in is disabled.
	browserCookie = "capstan-browser"
)

// errTooManyStreams is returned when there is no slot for another stream.
var errTooManyStreams = errors.New("too many streams")

// streamSlots count the streams of each browser, and of all.
type streamSlots struct {
	// mu guards the fields that follow.
	mu        sync.Mutex
	lockedAll int
	lockedOwn map[string]int
}

func newStreamSlots() *streamSlots { return &streamSlots{lockedOwn: map[string]int{}} }

// take takes a slot for a browser, which may have most slots. An empty name stands for a
// browser that cannot be identified; it has no limit of its own.
func (s *streamSlots) take(browser string, most int) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockedAll >= maxStreams || (browser != "" && s.lockedOwn[browser] >= most) {
		return nil, errTooManyStreams
	}
	s.lockedAll++
	s.lockedOwn[browser]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lockedAll--
		if s.lockedOwn[browser]--; s.lockedOwn[browser] == 0 {
			delete(s.lockedOwn, browser)
		}
	}, nil
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
func (s *Server) join(a address, v viewer) (t *topic, leave func(), err error) {
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

// stream sends the changes of a page as server-sent events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	refuse := func(code int) {
		s.metrics.requests.WithLabelValues("/stream", strconv.Itoa(code)).Inc()
		http.Error(w, http.StatusText(code), code)
	}
	v, a, code, err := s.followed(r)
	if err != nil {
		refuse(code)
		return
	}
	t, leave, err := s.join(a, v)
	if err != nil {
		refuse(http.StatusServiceUnavailable)
		return
	}
	defer leave()
	most := maxOwnStreams
	if r.ProtoMajor > 1 {
		most = maxOwnStreamsShared
	}
	release, err := s.streams.take(s.browser(r, v), most)
	if err != nil {
		s.metrics.requests.WithLabelValues("/stream", "204").Inc()
		w.WriteHeader(http.StatusNoContent) // It makes a browser stop reconnecting.
		return
	}
	defer release()
	s.metrics.requests.WithLabelValues("/stream", "200").Inc()
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // For proxies that buffer responses.
	out := &eventWriter{w: w, control: http.NewResponseController(w), clock: s.Clock}
	s.follow(r, v, t, out)
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
	t, leave, err := s.join(a, v)
	if err != nil {
		http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
		return
	}
	defer leave()
	after := t.since(versionOf(r))
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
