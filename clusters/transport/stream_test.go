package transport_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/clusters/transport"
)

// endless responds with bytes until the client stops reading.
func endless(w http.ResponseWriter, r *http.Request) {
	chunk := make([]byte, 1<<20)
	for r.Context().Err() == nil {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// TestAnswersAreBounded: of an answer no more than MaxAnswer, or what its request permits, is
// read; a watch has no limit.
func TestAnswersAreBounded(t *testing.T) {
	s := serve(t, endless)
	read := func(g *WithT, f *fixture, ctx context.Context, path string, most int64) (int64, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := f.client.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		return io.Copy(io.Discard, io.LimitReader(response.Body, most))
	}
	t.Run("a list", func(t *testing.T) {
		g := NewWithT(t)
		n, err := read(g, connect(t, s, s.config(t, "t"), nil), t.Context(), "/list", 2*transport.MaxAnswer)
		g.Expect(err).To(MatchError(transport.ErrTooLarge))
		g.Expect(n).To(BeNumerically("<=", transport.MaxAnswer))
	})
	t.Run("an answer that is read piece by piece", func(t *testing.T) {
		g := NewWithT(t)
		n, err := read(g, connect(t, s, s.config(t, "t"), nil), transport.WithMaxAnswer(t.Context(), 2*transport.MaxAnswer), "/list", 3*transport.MaxAnswer)
		g.Expect(err).To(MatchError(transport.ErrTooLarge))
		g.Expect(n).To(And(BeNumerically(">", transport.MaxAnswer), BeNumerically("<=", 2*transport.MaxAnswer)))
	})
	t.Run("a watch", func(t *testing.T) {
		g := NewWithT(t)
		n, err := read(g, connect(t, s, s.config(t, "t"), nil), t.Context(), "/list?watch=true", 2*transport.MaxAnswer)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(n).To(BeEquivalentTo(2 * transport.MaxAnswer))
	})
}

// TestStreamIsFollowed: what the watches may have missed, when they spoke, and their
// end in the words after which a reflector resumes.
func TestStreamIsFollowed(t *testing.T) {
	g := NewWithT(t)
	lines := make(chan string)
	s := serve(t, streams{lines}.ServeHTTP)
	f := connect(t, s, s.config(t, "t"), nil)
	stream := transport.NewStream(f.clock)
	watch := func() *http.Response {
		request, err := http.NewRequestWithContext(transport.WithStream(t.Context(), stream), http.MethodGet, s.URL+"/watch?watch=true", nil)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := f.client.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		// Read the whole line: the rest would count as contact when it is read later.
		for one := make([]byte, 1); one[0] != '\n'; {
			_, err = response.Body.Read(one)
			g.Expect(err).NotTo(HaveOccurred())
		}
		return response
	}
	f.clock.Step(time.Minute)
	g.Expect(stream.Behind()).To(Equal(time.Minute))
	g.Expect(stream.Silent()).To(BeZero())

	response := watch() //nolint:bodyclose // It is, below.
	defer response.Body.Close()
	g.Expect(stream.Behind()).To(Equal(time.Minute), "it is open, and has brought nothing yet")
	f.clock.Step(time.Second)
	g.Expect(stream.Behind()).To(BeZero())
	f.clock.Step(10 * time.Minute)
	g.Expect(stream.Silent()).To(Equal(10*time.Minute + time.Second))
	g.Expect(stream.Behind()).To(BeZero())

	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, response.Body)
		ended <- err
	}()
	closeOpen := stream.Break()
	g.Expect(stream.Silent()).To(BeZero(), "it is reported silent once, also if the close takes long")
	closeOpen()
	g.Eventually(ended).Should(Receive(MatchError(io.ErrUnexpectedEOF)))
	response.Body.Close()
	f.clock.Step(time.Second)
	g.Expect(stream.Behind()).To(Equal(10*time.Minute+2*time.Second), "since the last contact with the cluster, not since the end was noticed")

	again := watch()
	again.Body.Close()
	g.Expect(stream.Behind()).To(Equal(10*time.Minute+2*time.Second), "it ended before it could catch up")
	again = watch()
	defer again.Body.Close()
	f.clock.Step(time.Second)
	g.Expect(stream.Behind()).To(BeZero())
}

// TestSpread: requests that were held back are let go one after the other.
func TestSpread(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	f := connect(t, s, s.config(t, "t"), func(o *transport.Options) { o.Spread = 2 * time.Second })
	_, _, err := f.do(t.Context(), http.MethodGet, "/")
	g.Expect(err).NotTo(HaveOccurred(), "who was not held back does not wait")

	f.SetOpen(false)
	const requests = 20
	done := make(chan error, requests)
	for range requests {
		go func() { _, _, err := f.do(t.Context(), http.MethodGet, "/"); done <- err }()
	}
	g.Consistently(done, "50ms").ShouldNot(Receive())
	f.SetOpen(true)
	g.Eventually(f.clock.Waiters).Should(BeNumerically(">", requests/2))
	for range requests {
		g.Eventually(func() chan error { f.clock.Step(2 * time.Second); return done }).Should(Receive(BeNil()))
	}
}
