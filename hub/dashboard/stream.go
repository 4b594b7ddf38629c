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
	// beatEvery keeps proxies from ending a stream, and tells the browser that it lives.
	beatEvery = 15 * time.Second
	// recheckEvery is how often it is looked whether a viewer may still see this.
	recheckEvery = accessFor
	// eventTimeout bounds one write to a stream: a browser that takes none for so long
	// is gone.
	eventTimeout = 10 * time.Second
	// retryAfter is when a browser tries again that lost its stream, in ms.
	retryAfter = 2000

	// maxStreams at a time, of all viewers.
	maxStreams = 256
	// maxOwnStreams of one browser by HTTP/1.1, which has six connections for
	// everything: further tabs ask for changes every few seconds instead.
	maxOwnStreams = 4
	// maxOwnStreamsShared of one browser, where they share a connection.
	maxOwnStreamsShared = 32

	// browserCookie tells browsers from each other where nobody signs in.
	browserCookie = "capstan-browser"
)

// errTooManyStreams is returned where there is no room for another.
var errTooManyStreams = errors.New("too many streams")

// streamSlots count the streams of each browser, and of all.
type streamSlots struct {
	// mu guards the fields that follow.
	mu        sync.Mutex
	lockedAll int
	lockedOwn map[string]int
}

func newStreamSlots() *streamSlots { return &streamSlots{lockedOwn: map[string]int{}} }

// take a slot for a browser; one that cannot be told from others has an empty name.
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

// browser of a request, by its session.
func (s *Server) browser(r *http.Request, v viewer) string {
	if s.Auth == AuthToken {
		return v.session.ID
	}
	if cookie, err := r.Cookie(browserCookie); err == nil {
		return cookie.Value
	}
	return ""
}

// markBrowser gives one a name, where it has no session.
func (s *Server) markBrowser(w http.ResponseWriter, r *http.Request) {
	if _, err := r.Cookie(browserCookie); err != nil {
		http.SetCookie(w, &http.Cookie{Name: browserCookie, Value: rand.Text(), Path: "/", Secure: s.CertFile != "", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	}
}

// followed is the page that a request wants the changes of.
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
		return v, address{}, http.StatusBadRequest, fmt.Errorf("there is no page %q", u.Path)
	}
	return v, a, http.StatusOK, nil
}

// join those who look at a page, brought up to what the viewer knows.
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

// version that a browser has: the stream's own memory goes before the address'.
func versionOf(r *http.Request) string {
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		return last
	}
	return r.URL.Query().Get("from")
}

// stream sends the changes of a page as they come.
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
		w.WriteHeader(http.StatusNoContent) // Which tells a browser not to try again.
		return
	}
	defer release()
	s.metrics.requests.WithLabelValues("/stream", "200").Inc()
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // For proxies that gather answers.
	out := &eventWriter{w: w, control: http.NewResponseController(w), clock: s.Clock}
	s.follow(r, v, t, out)
}

// follow a topic until the browser, its right to look, or the hub ends.
func (s *Server) follow(r *http.Request, v viewer, t *topic, out *eventWriter) {
	beat, recheck := s.Clock.NewTicker(beatEvery), s.Clock.NewTicker(recheckEvery)
	defer beat.Stop()
	defer recheck.Stop()
	out.begin()
	out.beat()
	version := versionOf(r)
	for out.err == nil {
		news := t.since(version)
		if news.lost {
			s.metrics.resyncs.Inc()
			out.event("", "resync", "{}")
			return
		}
		for i, p := range news.patches {
			out.event(news.versions[i], "patch", string(p.json))
			version = news.versions[i]
		}
		select {
		case <-news.changed:
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
			// Where the API server cannot be asked, what was so a moment ago stays.
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

// eventWriter writes server-sent events, until one cannot be written.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	clock   interface{ Now() time.Time }
	err     error
}

// begin ends the deadlines that a request has.
func (e *eventWriter) begin() {
	e.err = e.control.SetReadDeadline(time.Time{})
	e.write(fmt.Sprintf("retry: %d\n\n", retryAfter))
}

// beat tells the hub's time.
func (e *eventWriter) beat() { e.event("", "beat", e.clock.Now().UTC().Format(time.RFC3339Nano)) }

// event of one line of data.
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
	// A deadline is the machine's, whatever clock the states go by.
	if e.err = e.control.SetWriteDeadline(time.Now().Add(eventTimeout)); e.err != nil {
		return
	}
	if _, e.err = e.w.Write([]byte(text)); e.err == nil {
		e.err = e.control.Flush()
	}
}

// changes answers with what a stream would have sent by now.
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
	news := t.since(versionOf(r))
	answer := struct {
		Version string            `json:"version"`
		Patches []json.RawMessage `json:"patches"`
		Resync  bool              `json:"resync,omitempty"`
		Now     time.Time         `json:"now"`
	}{Version: news.version, Patches: []json.RawMessage{}, Resync: news.lost, Now: s.Clock.Now().UTC()}
	for _, p := range news.patches {
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
