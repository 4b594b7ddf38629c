package dashboard

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/hub/serving"
)

// Invalid session cookies are no session. Requests that are too large, or have another
// method, are refused.
func TestMisuse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	b := w.browser()
	w.Expect(b.signIn(w.account("ada")).Code).To(Equal(303))
	at, err := url.Parse(w.url)
	w.Expect(err).NotTo(HaveOccurred())
	cookie := func(values ...string) http.Header {
		var all []string
		for i, value := range values {
			all = append(all, fmt.Sprintf("%s%d=%s", cookiePlain, i, value))
		}
		return http.Header{"Cookie": {strings.Join(all, "; ")}}
	}
	var good []string
	for _, c := range b.client.Jar.Cookies(at) {
		good = append(good, c.Value)
	}
	stranger := w.browser()
	w.Expect(stranger.do("GET", "/about", nil, cookie(good...)).Code).To(Equal(200), "the session itself")
	whole := strings.Join(good, "")
	other := "A"
	if strings.HasPrefix(whole, other) {
		other = "B"
	}
	for name, header := range map[string]http.Header{
		"empty": cookie(""), "no base64": cookie("%%%"), "short": cookie("AAAA"), "cut": cookie(whole[:len(whole)-4]), "turned": cookie(other + whole[1:]),
		"longer": cookie(whole, "AAAA"), "long": cookie(strings.Repeat("A", maxCookie), strings.Repeat("A", maxCookie), strings.Repeat("A", maxCookie), strings.Repeat("A", maxCookie)),
		"of TLS": {"Cookie": {cookieSecure + "0=" + whole}}, "as a bearer": {"Authorization": {"Bearer " + whole}},
	} {
		for path, code := range map[string]int{"/": 303, "/stream?page=/": 401, "/changes?page=/": 401, "/session": 401, "/promotions/a/b/approve": 303} {
			w.Expect(stranger.do("GET", path, nil, header).Code).To(Equal(code), name+" "+path)
		}
		w.Expect(stranger.do("POST", "/promotions/a/b/approve", url.Values{}, header).Code).To(Equal(303), name)
	}

	long := strings.Repeat("x", maxAddress)
	for path, code := range map[string]int{
		"/pipelines?q=" + long: 404, "/pipelines/a/" + long: 404, "/changes?page=" + url.QueryEscape("/pipelines?q="+long): 400, "/changes?page=%25zz": 400, "/changes": 400,
		"/stream?page=" + url.QueryEscape("/signin"): 400, "/pipelines?q=%ff%00&page=-1&page=99999999999999999999&state=%3Cscript%3E": 200,
		"/clusters/Cluster/%00/%2e%2e": 404, "/assets/": 404, "/signout": 404, "/changes?page=/pipelines&from=" + long: 200,
	} {
		answer := b.get(path)
		w.Expect(answer.Code).To(Equal(code), path[:min(len(path), 80)])
		w.Expect(answer.Body).NotTo(ContainSubstring("<script>"))
	}
	for _, tc := range []struct {
		method, path string
		code         int
	}{
		{"POST", "/", 405}, {"PUT", "/pipelines", 405}, {"DELETE", "/pipelines/a/b", 405}, {"PATCH", "/promotions/a/b/approve", 405}, {"POST", "/stream", 405}, {"POST", "/changes", 405},
		{"OPTIONS", "/", 405}, {"TRACE", "/", 405}, {"PUT", "/signin", 405}, {"HEAD", "/about", 200}, {"POST", "/assets/x", 405},
	} {
		w.Expect(b.do(tc.method, tc.path, nil, nil).Code).To(Equal(tc.code), tc.method+" "+tc.path)
	}
	w.Expect(w.browser().signIn(strings.Repeat("x", 2*maxBody)).Code).To(Equal(400), "a body that is larger than a form with a token")
	w.Expect(b.get("/about").Code).To(Equal(200), "it is well after all that")
}

// A topic is kept while it has viewers, and for topicLinger after. When the board is full,
// the topic that was left longest ago is evicted.
func TestBoard(t *testing.T) {
	g := NewWithT(t)
	b, now := newBoard(largeRenderer(t)), time.Now()
	join := func(name string) (*topic, func(time.Time)) {
		t, leave, err := b.join(address{canonical: name}, view.Everything())
		g.Expect(err).NotTo(HaveOccurred())
		return t, leave
	}
	kept, leave := join("/a")
	again, leaveAgain := join("/a")
	g.Expect(again).To(BeIdenticalTo(kept))
	_, _, err := b.join(address{canonical: "/a"}, view.Scope{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.lockedSeats).To(HaveLen(2), "who may see something else shares nothing")
	leaveAgain(now)
	g.Expect(b.watched(now.Add(time.Hour))).To(ContainElement(BeIdenticalTo(kept)), "one still looks")
	leave(now)
	g.Expect(b.watched(now.Add(topicLinger))).To(HaveLen(1))
	back, leave := join("/a")
	g.Expect(back).To(BeIdenticalTo(kept), "who comes back in time")
	g.Expect(b.watched(now.Add(time.Hour))).To(ContainElement(BeIdenticalTo(kept)), "it is not forgotten while it is joined")
	leave(now)
	g.Expect(b.watched(now.Add(topicLinger + 1))).To(HaveLen(1))
	g.Expect(b.lockedSeats).To(HaveLen(1))

	_, leaveFirst := join("/0")
	_, leaveSecond := join("/1")
	for i := 2; len(b.lockedSeats) < maxTopics; i++ {
		join(fmt.Sprint("/", i))
	}
	_, _, err = b.join(address{canonical: "/more"}, view.Everything())
	g.Expect(errors.Is(err, errTooManyTopics)).To(BeTrue())
	leaveSecond(now)
	leaveFirst(now.Add(time.Second))
	join("/more")
	g.Expect(b.lockedSeats).To(And(HaveLen(maxTopics), HaveKey("/0\n"+view.Everything().Key()), Not(HaveKey("/1\n"+view.Everything().Key()))))
}

// While maxTopics pages have viewers, further pages are shown without live changes. As soon
// as a viewer leaves, they are live.
func TestFullBoard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var leave func(time.Time)
	for i := range maxTopics {
		var err error
		_, leave, err = w.server.board.join(address{canonical: fmt.Sprint("/", i), build: always(func(*view.Facts, view.Scope) view.Page { return view.Page{Template: "about"} })}, view.Everything())
		w.Expect(err).NotTo(HaveOccurred())
	}
	b := w.browser()
	w.Expect(b.get("/about")).To(And(HaveField("Code", 200), HaveField("Body", And(ContainSubstring("v1.2.3"), Not(ContainSubstring("data-live"))))))
	w.Expect(b.get("/pipelines/a/b").Code).To(Equal(404))
	w.Expect(b.get("/stream?page=/about").Code).To(Equal(503))
	w.Expect(b.get("/changes?page=/about").Code).To(Equal(503))
	leave(w.clock.Now())
	w.Expect(b.get("/about").Body).To(ContainSubstring(`data-live="/about"`))
}

// The streams of one browser and of all browsers are limited.
func TestStreamSlots(t *testing.T) {
	g := NewWithT(t)
	s := newStreamSlots()
	var all []func()
	for i := range maxStreams {
		release, err := s.take(fmt.Sprint("browser-", i/2), 2)
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, release)
	}
	_, err := s.take("another", 2)
	g.Expect(errors.Is(err, errTooManyStreams)).To(BeTrue())
	for _, release := range all {
		release()
	}
	g.Expect(s.lockedOwn).To(BeEmpty())
	g.Expect(s.lockedAll).To(BeZero())
	_, err = s.take("one", 1)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = s.take("one", 1)
	g.Expect(errors.Is(err, errTooManyStreams)).To(BeTrue())
}

// oneConnection is a listener of one connection without buffer: a write waits until it is
// read.
type oneConnection struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *oneConnection) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *oneConnection) Close() error   { close(l.closed); return nil }
func (l *oneConnection) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// A viewer that does not read loses its stream, and does not block other viewers.
func TestSlowViewer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.cluster("dev")
	p := w.pipeline("shop", "1.0.0", "dev")
	b := w.browser()
	events, _ := b.listen("/pipelines", b.get("/pipelines").version(), nil)
	theirs, ours := net.Pipe()
	l := &oneConnection{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conns <- ours
	server := &http.Server{Handler: w.server, ReadHeaderTimeout: serving.HeaderTimeout}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		w.Expect(theirs.Close()).To(Succeed())
		w.Expect(server.Close()).To(Succeed())
		w.Expect(<-ended).To(MatchError(http.ErrServerClosed))
	})
	open := func() int {
		w.server.streams.mu.Lock()
		defer w.server.streams.mu.Unlock()
		return w.server.streams.lockedAll
	}
	_, err := theirs.Write([]byte("GET /stream?page=/pipelines HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	w.Expect(err).NotTo(HaveOccurred())
	w.Eventually(open, patience).Should(Equal(2))
	w.runs(p, "dev", "1.1.0")
	w.Eventually(events, patience).Should(Receive(HaveField("Data", ContainSubstring("1.1.0"))))
	w.Eventually(open, patience).Should(Equal(1))
	w.runs(p, "dev", "1.2.0")
	w.Eventually(events, patience).Should(Receive(HaveField("Data", ContainSubstring("1.2.0"))))
}
