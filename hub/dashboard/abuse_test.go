package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		"/search?q=%ff%00%3Cscript%3E&state=%3Cscript%3E": 200, "/search/x": 404, "/search?q=" + strings.Repeat("%20a", 400): 200,
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
		release, err := s.take(quota{fmt.Sprint("browser-", i/2), 2})
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, release)
	}
	_, err := s.take(quota{"another", 2})
	g.Expect(errors.Is(err, errTooManyStreams)).To(BeTrue())
	for _, release := range all {
		release()
	}
	g.Expect(s.lockedOwn).To(BeEmpty())
	g.Expect(s.lockedAll).To(BeZero())
	_, err = s.take(quota{"one", 1})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = s.take(quota{"one", 1})
	g.Expect(errors.Is(err, errTooManyStreams)).To(BeTrue())
	_, err = s.take(quota{"two", 1}, quota{"user", 1})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = s.take(quota{"three", 1}, quota{"user", 1})
	g.Expect(errors.Is(err, errTooManyStreams)).To(BeTrue(), "the user has another browser")
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

// The quota of streams is that of the user: another sign-in gives no other quota.
func TestStreamsOfOneUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	token := w.account("ada")
	other := w.browser()
	w.Expect(other.signIn(w.account("bob")).Code).To(Equal(303))
	opened := 0
	for range maxUserStreams/maxOwnStreams + 1 {
		b := w.browser()
		w.clock.step(signInEvery)
		w.Expect(b.signIn(token).Code).To(Equal(303))
		version := b.get("/about").version()
		for range maxOwnStreams {
			if opened == maxUserStreams {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/stream?page=/about&from="+version, nil)
				w.Expect(err).NotTo(HaveOccurred())
				response, err := b.client.Do(request)
				w.Expect(err).NotTo(HaveOccurred())
				w.Expect(response.Body.Close()).To(Succeed())
				w.Expect(response.StatusCode).To(Equal(http.StatusNoContent))
				break
			}
			b.listen("/about", version, nil)
			opened++
		}
	}
	other.listen("/about", other.get("/about").version(), nil)
}

// The page of an object that does not exist has no topic, whatever name a viewer invents. All
// forms of the address of one page have the same topic.
func TestNamesOfTopics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.cluster("dev")
	w.pipeline("shop", "1.0.0", "dev")
	b := w.browser()
	topics := func() int {
		w.server.board.mu.Lock()
		defer w.server.board.mu.Unlock()
		return len(w.server.board.lockedSeats)
	}
	for i := range 20 {
		page := fmt.Sprintf("/pipelines/%s/absent-%d", w.apps, i)
		w.Expect(b.get(page).Code).To(Equal(404))
		w.Expect(b.get("/stream?page=" + page).Code).To(Equal(404))
		w.Expect(b.get("/changes?page=" + page)).To(And(HaveField("Code", 200), HaveField("Body", ContainSubstring(`"resync":true`))))
	}
	w.Expect(topics()).To(BeZero())
	for _, page := range []string{"/pipelines/" + w.apps + "/shop", "/pipelines/" + w.apps + "/sh%6Fp", "/pipelines/%61" + w.apps[1:] + "/shop", "/%70ipelines/" + w.apps + "/shop"} {
		w.Expect(b.get(page)).To(And(HaveField("Code", 200), HaveField("Body", ContainSubstring(`data-live="/pipelines/`+w.apps+`/shop"`))), page)
	}
	w.Expect(topics()).To(Equal(1))
}

// The beginning of a stream counts as a request, and its time as a stream does not.
func TestStreamsBeginAsRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	b := w.browser()
	b.listen("/about", b.get("/about").version(), nil)
	w.Eventually(func() int { return len(w.server.slots) }, patience).Should(BeZero())
	for range maxRequests {
		w.server.slots <- struct{}{}
	}
	w.Expect(b.get("/stream?page=/about").Code).To(Equal(503))
	<-w.server.slots
	b.listen("/about", "", nil)
}

// heldReviews holds SubjectAccessReviews back until a test releases them, and counts them.
type heldReviews struct {
	client.Client
	hold    chan struct{}
	reviews atomic.Int32
}

func (h *heldReviews) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	if _, ok := o.(*authorizationv1.SubjectAccessReview); ok {
		h.reviews.Add(1)
		<-h.hold
	}
	return h.Client.Create(ctx, o, options...)
}

// Many tabs of one user that open at once cause one review of each right.
func TestReviewsAreJoined(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	held := &heldReviews{Client: w.options.Client, hold: make(chan struct{})}
	a := newAccess(held, w.clock, false)
	questions := []question{{right: listClusters}, {right: listPipelines}}
	user := authenticationv1.UserInfo{Username: "ada"}
	known, err := a.of(user)
	w.Expect(err).NotTo(HaveOccurred())
	const tabs = 10
	answers := make(chan error, tabs)
	for range tabs {
		go func() { answers <- a.ask(t.Context(), user, known, questions) }()
	}
	w.Eventually(held.reviews.Load, patience).Should(BeNumerically(">=", len(questions)))
	w.Consistently(held.reviews.Load, "300ms").Should(BeEquivalentTo(len(questions)))
	close(held.hold)
	for range tabs {
		w.Eventually(answers, patience).Should(Receive(BeNil()))
	}
}
