package simulated

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watch streams the changes of a kind from a resource version, or from the streamed
// initial list.
func (c *Cluster) watch(w http.ResponseWriter, r *http.Request, k kind, namespace string) {
	q := r.URL.Query()
	s := &stream{c: c, w: w, kind: k, namespace: namespace, flush: http.NewResponseController(w).Flush}
	life := c.o.MaxWatch
	if asked, _ := strconv.Atoi(q.Get("timeoutSeconds")); asked > 0 && (life == 0 || life > time.Duration(asked)*time.Second) {
		life = time.Duration(asked) * time.Second
	}
	var over <-chan time.Time
	if life > 0 {
		timer := time.NewTimer(life)
		defer timer.Stop()
		over = timer.C
	}
	var bookmarks <-chan time.Time
	if q.Get("allowWatchBookmarks") == "true" {
		ticker := time.NewTicker(c.o.BookmarkEvery)
		defer ticker.Stop()
		bookmarks = ticker.C
	}
	c.count.openWatches.Add(1)
	defer c.count.openWatches.Add(-1)
	w.Header().Set("Content-Type", "application/json")
	resumes := false
	from, err := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	if q.Get("sendInitialEvents") == "true" {
		if mode, _ := c.treatment(); mode == Endless {
			refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
			return
		}
		c.count.watchLists.Add(1)
		from = s.initial()
	} else {
		if err != nil || from == 0 {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "a watch resumes from a resource version, or asks for initial events")
			return
		}
		c.count.watches.Add(1)
		resumes = true
	}
	c.mu.Lock()
	ended, muted := c.lockedState.ended, c.lockedState.muted
	c.mu.Unlock()
	for {
		_ = s.flush()
		changes, mode, changed := c.since(from)
		if changes == nil || resumes && mode == Gone {
			s.expired(from)
			return
		}
		resumes = false
		if mode == Tarpit {
			changes = nil
		}
		for _, ch := range changes {
			if k == helmRelease && (namespace == "" || namespace == Namespace) {
				s.event(ch.verb, ch.application)
			}
			from = ch.version
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-bookmarks:
			if mode != Tarpit {
				s.bookmark(from, "")
			}
		case <-muted:
			<-r.Context().Done()
			return
		case <-ended:
			return
		case <-over:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// since are the changes after a resource version; nil when they are not known any
// more, or not known yet.
func (c *Cluster) since(from uint64) (changes []change, mode Mode, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.lockedState
	if from < s.oldest || from > s.version {
		return nil, s.mode, s.changed
	}
	first := len(s.history)
	for first > 0 && s.history[first-1].version > from {
		first--
	}
	return append([]change{}, s.history[first:]...), s.mode, s.changed
}

// stream is an open watch.
type stream struct {
	c         *Cluster
	w         http.ResponseWriter
	kind      kind
	namespace string
	flush     func() error
	buffer    []byte
}

// initial streams what there is, and returns its resource version.
func (s *stream) initial() uint64 {
	apps, version, uid := s.c.snapshot(s.kind, s.namespace)
	pooled, _ := buffers.Get().(*[]byte)
	b := (*pooled)[:0]
	for _, a := range apps {
		b = append(b, `{"type":"ADDED","object":`...)
		b = a.appendJSON(b, uid, s.c.filler)
		b = append(b, "}\n"...)
	}
	_, _ = s.w.Write(b)
	*pooled = b
	buffers.Put(pooled)
	if mode, _ := s.c.treatment(); mode == Huge {
		for sent, number := 0, len(apps); sent < hugeBytes; number++ {
			b := append(s.buffer[:0], `{"type":"ADDED","object":`...)
			b = application{number: number, revision: s.c.o.Revision, version: version}.appendJSON(b, uid, s.c.filler)
			b = append(b, "}\n"...)
			if _, err := s.w.Write(b); err != nil {
				return version
			}
			sent += len(b)
			s.buffer = b
		}
	}
	s.bookmark(version, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
	return version
}

func (s *stream) event(verb string, a application) {
	b := fmt.Appendf(s.buffer[:0], `{"type":%q,"object":`, verb)
	b = a.appendJSON(b, s.c.uid(), s.c.filler)
	b = append(b, "}\n"...)
	_, _ = s.w.Write(b)
}

func (s *stream) bookmark(version uint64, annotations string) {
	_, _ = fmt.Fprintf(s.w, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":"%s/%s","metadata":{"resourceVersion":"%d","creationTimestamp":null%s}}}`+"\n",
		s.kind.kind, s.kind.group, s.kind.version, version, annotations)
}

// expired says what an API server says in the stream of a watch that cannot resume.
func (s *stream) expired(from uint64) {
	_ = json.NewEncoder(s.w).Encode(map[string]any{"type": "ERROR", "object": status(http.StatusGone, metav1.StatusReasonExpired,
		fmt.Sprintf("too old resource version: %d", from))})
}
