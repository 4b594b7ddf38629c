package gitrepo_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
)

// silence is the longest time in which the servers of these tests may send nothing. A busy
// machine stays below it.
const silence = 2 * time.Second

// noise returns bytes that no compression makes smaller.
func noise(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return string(b)
}

// A server that sends nothing is reported as such, at the request at which it hangs, before
// or within its response. The end of the caller's context is not the server's silence.
func TestASilentServerIsDistinguishedFromACallerThatLeaves(t *testing.T) {
	t.Parallel()
	hang := func(next http.Handler, at string, after int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method+" "+filepath.Base(r.URL.Path) != at {
				next.ServeHTTP(w, r)
				return
			}
			// Only then does the server notice that the client leaves.
			_, _ = io.Copy(io.Discard, r.Body)
			if after > 0 {
				w.WriteHeader(http.StatusOK)
				_, _ = w.Write([]byte("001e# service=git-upload-pack\n")[:after])
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		})
	}
	for name, tc := range map[string]struct {
		at    string
		after int
		// leave ends the context by cancel or by its deadline, before the silence is noticed.
		leave     string
		timedOut  bool
		outOfTime bool
	}{
		"no list of branches":      {at: "GET refs", timedOut: true},
		"half a list of branches":  {at: "GET refs", after: 20, timedOut: true},
		"no pack":                  {at: "POST git-upload-pack", timedOut: true},
		"half a pack":              {at: "POST git-upload-pack", after: 3, timedOut: true},
		"the push is not answered": {at: "POST git-receive-pack", timedOut: true},
		"the caller leaves":        {at: "POST git-upload-pack", leave: "cancel"},
		"the deadline is earlier":  {at: "POST git-upload-pack", leave: "deadline", outOfTime: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
			s.serve(t, func(git http.Handler) http.Handler { return hang(git, tc.at, tc.after) })
			s.remote.Silence = silence
			ctx, cancel := context.WithCancel(t.Context())
			switch tc.leave {
			case "cancel":
				time.AfterFunc(silence/4, cancel)
			case "deadline":
				ctx, cancel = context.WithTimeout(t.Context(), silence/4)
			}
			defer cancel()
			var made gitrepo.Made
			err := s.workspace.Clone(ctx, s.remote, promote(gittest.Base, "p", "a.yaml", "a: 2\n", &made))
			var e *gitrepo.Error
			g.Expect(errors.As(err, &e)).To(BeTrue())
			g.Expect(e.TimedOut).To(Equal(tc.timedOut), "%v", err)
			g.Expect(e.OutOfTime).To(Equal(tc.outOfTime), "%v", err)
			g.Expect(e.Class).To(Equal(gitrepo.Transient))
			if tc.timedOut {
				g.Expect(err).To(MatchError(ContainSubstring("the server sent nothing for 2s")))
			}
			g.Expect(s.left(g)).To(BeEmpty())
		})
	}
}

// A server, or a proxy, that notices the end of the connection may still complete an empty
// response. That is not a repository without changes: the server was silent.
func TestAnEmptyResponseAfterTheSilenceIsASilentServer(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
	inner := s.remote.Transport
	s.remote.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method+" "+filepath.Base(r.URL.Path) != "POST git-upload-pack" {
			return inner.RoundTrip(r)
		}
		<-r.Context().Done()
		return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{}, Body: http.NoBody}, nil
	})
	s.remote.Silence = silence
	var made gitrepo.Made
	err := s.clone(t, promote(gittest.Base, "p", "a.yaml", "a: 2\n", &made))
	var e *gitrepo.Error
	g.Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
	g.Expect(e.TimedOut).To(BeTrue(), "%v", err)
	g.Expect(err).To(MatchError(ContainSubstring("the server sent nothing for 2s")))
}

// A steady transfer is not silence, however long it is: here it takes twice the time in which
// a server may send nothing.
func TestALongSteadyTransferSucceeds(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n", "media.bin": noise(64 << 10)}, gitrepo.Limits{})
	const pause = 100 * time.Millisecond
	s.serve(t, func(git http.Handler) http.Handler { return gittest.Slow(git, int(2*silence/pause), pause) })
	s.remote.Silence = silence
	var made gitrepo.Made
	began := time.Now()
	g.Expect(s.clone(t, promote(gittest.Base, "p", "a.yaml", "a: 2\n", &made))).To(Succeed())
	g.Expect(time.Since(began)).To(BeNumerically(">", silence))
}

// A server that accepts a push slowly is not silent either.
func TestALongSteadyPushSucceeds(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
	inner := s.remote.Transport
	s.remote.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		if filepath.Base(r.URL.Path) != "git-receive-pack" || r.Method != http.MethodPost {
			return inner.RoundTrip(r)
		}
		var body strings.Builder
		ticker := time.NewTicker(silence / 20)
		defer ticker.Stop()
		piece := make([]byte, r.ContentLength/30)
		for {
			select {
			case <-r.Context().Done():
				return nil, context.Cause(r.Context())
			case <-ticker.C:
			}
			n, err := r.Body.Read(piece)
			body.Write(piece[:n])
			if err != nil {
				break
			}
		}
		sent := r.Clone(r.Context())
		sent.Body = http.NoBody
		if body.Len() > 0 {
			sent.Body = readCloser{strings.NewReader(body.String())}
		}
		return inner.RoundTrip(sent)
	})
	s.remote.Silence = silence
	var made gitrepo.Made
	began := time.Now()
	g.Expect(s.clone(t, promote(gittest.Base, "p", "a.yaml", "a: 2\n", &made))).To(Succeed())
	g.Expect(time.Since(began)).To(BeNumerically(">", silence))
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// A steady transfer that the deadline ends says so, and how much it received.
func TestADeadlineWithinASteadyTransfer(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n", "media.bin": noise(64 << 10)}, gitrepo.Limits{})
	s.serve(t, func(git http.Handler) http.Handler { return gittest.Slow(git, 100, 100*time.Millisecond) })
	s.remote.Silence = silence
	ctx, cancel := context.WithTimeout(t.Context(), 2*silence)
	defer cancel()
	var made gitrepo.Made
	err := s.workspace.Clone(ctx, s.remote, promote(gittest.Base, "p", "a.yaml", "a: 2\n", &made))
	var e *gitrepo.Error
	g.Expect(errors.As(err, &e)).To(BeTrue())
	g.Expect(e.OutOfTime).To(BeTrue(), "%v", err)
	g.Expect(e.TimedOut).To(BeFalse())
	g.Expect(err).To(MatchError(MatchRegexp(`the time of the attempt ended, after [1-9][0-9]* KiB were received`)))
}
