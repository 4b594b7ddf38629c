package browser

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Budgets of a page of the largest fleet (docs/benchmarks.md).
const (
	// firstByteBudget is the median time to the first byte of requests after the first.
	firstByteBudget = 100 * time.Millisecond * slower
	// compressedBudget is the size of a page as it is sent, in bytes.
	compressedBudget = 150_000
	// heightBudget is the height of a page, in CSS pixels.
	heightBudget = 6000

	// requestsOfAPage are measured, after one that is not.
	requestsOfAPage = 5
)

// Budgets of the stream: what one change of one Pipeline costs for each viewer of a page that shows it.
const (
	fleetViewers = 50
	// streamsOfASession is what the dashboard permits over HTTP/1.1.
	streamsOfASession = 4
	fleetChanges      = 10
	// streamBytesBudget is sent to each viewer, in bytes.
	streamBytesBudget = 40_000
	// streamCPUBudget is the CPU time of the process with the hub and the viewers, for each viewer.
	streamCPUBudget = 5 * time.Millisecond * slower
)

// TestLargeFleet: pages of 1,000 clusters and 300 Pipelines with 20 environments each, with hostile names and texts,
// are fast and small, fit the window, and pass the rules of TestAccessible.
func TestLargeFleet(t *testing.T) {
	axe := axeCore(t)
	f := startFleet(t)
	viewer := f.viewer(t, f.tokens[0])
	pages := f.addresses()
	// The objects of all kinds are in the hub's memory.
	NewWithT(t).Eventually(func() int { return viewer.get(t, pages["cluster"]).status }, patience).Should(Equal(http.StatusOK))
	t.Run("requests", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(pages)) {
			viewer.measure(t, name, pages[name])
		}
	})
	t.Run("stream", f.stream)
	t.Run("pages", func(t *testing.T) {
		b := newTab(t)
		b.do(chromedp.Navigate(f.url+"/about"), chromedp.SendKeys(chromedp.CSS(`input[name="token"]`), f.tokens[0]+kb.Enter), chromedp.WaitVisible(chromedp.CSS(".user button")))
		for _, name := range slices.Sorted(maps.Keys(pages)) {
			t.Run(name, func(t *testing.T) { b.of(t).fits(axe, name, f.url+pages[name]) })
		}
		b.do(chromedp.Click(chromedp.CSS(".user button")), chromedp.WaitVisible(chromedp.CSS(`input[name="token"]`)))
		t.Run("signin", func(t *testing.T) { b.of(t).fits(axe, "signin", f.url+"/signin") })
	})
}

// of returns the tab for a subtest.
func (b *tab) of(t *testing.T) *tab { return &tab{WithT: NewWithT(t), t: t, ctx: b.ctx} }

// fits opens a page at three widths and in both themes. The test continues after a failure, so that one run shows all.
func (b *tab) fits(axe, name, address string) {
	b.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{390, 768, 1440} {
			b.themed(theme, width)
			b.do(chromedp.Navigate(address), chromedp.WaitVisible(chromedp.CSS("main h1")))
			at := fmt.Sprintf("%s, %s, %d px", name, theme, width)
			size := eval[[]int](b, `[document.documentElement.scrollWidth, innerWidth, document.documentElement.scrollHeight]`)
			b.t.Logf("%s: %d px of %d px wide, %d px high", at, size[0], size[1], size[2])
			if size[0] > size[1] {
				b.t.Errorf("%s: %d px are wider than the window of %d px: %v", at, size[0], size[1], eval[[]string](b, widest))
			}
			if size[2] > heightBudget {
				b.t.Errorf("%s: %d px are higher than %d px", at, size[2], heightBudget)
			}
			if eval[bool](b, `document.body.innerHTML === "owned"`) {
				b.t.Errorf("%s: a script of a message ran", at)
			}
			if width == 768 || theme == "dark" && width == 390 {
				continue // Themes differ in colours and widths in layout: not every combination is tested.
			}
			for _, violation := range b.violations(axe) {
				b.t.Errorf("%s: %s", at, violation)
			}
		}
	}
}

// widest are the first elements that are wider than the window.
const widest = `[...document.querySelectorAll("main *, header *, footer *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map(e => e.outerHTML.slice(0, 160))`

// visitor is a client with the session of a user.
type visitor struct {
	client *http.Client
	url    string
}

// viewer signs a user in, from a loopback address of its own: sign-ins from one address are limited.
func (f *fleet) viewer(t *testing.T, token string) *visitor {
	t.Helper()
	g := NewWithT(t)
	jar, err := cookiejar.New(nil)
	g.Expect(err).NotTo(HaveOccurred())
	f.viewers++
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, f.viewers)}}
	transport := &http.Transport{DisableCompression: true, DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	v := &visitor{&http.Client{Jar: jar, Transport: transport}, f.url}
	g.Eventually(func(g Gomega) {
		response, err := v.client.PostForm(f.url+"/signin", url.Values{"token": {token}, "next": {"/about"}})
		g.Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		g.Expect(response.StatusCode).To(Equal(http.StatusOK))
		g.Expect(response.Request.URL.Path).To(Equal("/about"))
	}, patience).Should(Succeed())
	return v
}

// sent is an answer: its time to the first byte, its size as it was sent, and the unpacked body.
type sent struct {
	status int
	first  time.Duration
	size   int
	body   string
}

func (v *visitor) get(t *testing.T, path string) sent {
	t.Helper()
	g := NewWithT(t)
	var s sent
	var begun time.Time
	trace := &httptrace.ClientTrace{
		WroteRequest:         func(httptrace.WroteRequestInfo) { begun = time.Now() },
		GotFirstResponseByte: func() { s.first = time.Since(begun) },
	}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, v.url+path, nil)
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Accept-Encoding", "gzip")
	response, err := v.client.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	s.status, s.size, s.body = response.StatusCode, len(raw), string(raw)
	if response.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(strings.NewReader(s.body))
		g.Expect(err).NotTo(HaveOccurred())
		unpacked, err := io.ReadAll(z)
		g.Expect(err).NotTo(HaveOccurred())
		s.body = string(unpacked)
	}
	return s
}

// measure requests a page some times, and compares the median time and the size with the budgets.
func (v *visitor) measure(t *testing.T, name, path string) {
	t.Helper()
	cold := v.get(t, path)
	var times []time.Duration
	for range requestsOfAPage {
		times = append(times, v.get(t, path).first)
	}
	want := http.StatusOK
	if name == "missing" {
		want = http.StatusNotFound
	}
	if cold.status != want {
		t.Errorf("%s: status %d, not %d", name, cold.status, want)
	}
	slices.Sort(times)
	median := times[len(times)/2]
	t.Logf("%s: first byte %s (of the first request: %s), %.1f kB compressed, %.0f kB", name, median.Round(time.Millisecond/10), cold.first.Round(time.Millisecond/10), float64(cold.size)/1000, float64(len(cold.body))/1000)
	if median > firstByteBudget {
		t.Errorf("%s: the first byte comes after %s, more than %s", name, median, firstByteBudget)
	}
	if cold.size > compressedBudget {
		t.Errorf("%s: %d bytes compressed, more than %d", name, cold.size, compressedBudget)
	}
}

var versionOf = regexp.MustCompile(`data-version="([^"]+)"`)

// stream measures what a change costs for each viewer: 50 viewers, of whom each has one of the two pages that show it.
func (f *fleet) stream(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var bytes atomic.Int64
	patches := make([]atomic.Int64, fleetViewers)
	page := f.addresses()["pipeline"]
	var v *visitor
	for i := range fleetViewers {
		if i%streamsOfASession == 0 {
			v = f.viewer(t, f.tokens[i/streamsOfASession%len(f.tokens)])
		}
		path := []string{page, "/pipelines?q=x0"}[i%2] // The search finds this Pipeline only.
		body := v.get(t, path).body
		found := versionOf.FindStringSubmatch(body)
		g.Expect(found).NotTo(BeNil(), path)
		response, err := v.follow(ctx, t, path, found[1])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.StatusCode).To(Equal(http.StatusOK), "viewer %d", i)
		running.Go(func() {
			defer response.Body.Close()
			lines := bufio.NewScanner(response.Body)
			lines.Buffer(nil, 8<<20)
			for lines.Scan() {
				bytes.Add(int64(len(lines.Bytes()) + 1))
				if strings.HasPrefix(lines.Text(), "event: patch") {
					patches[i].Add(1)
				}
			}
		})
	}
	// changed changes the Pipeline, and waits until each viewer has received it.
	changed := func(n int) {
		least := make([]int64, len(patches))
		for i := range patches {
			least[i] = patches[i].Load()
		}
		f.change(t, n)
		g.Eventually(func() (viewers int) {
			for i := range patches {
				if patches[i].Load() > least[i] {
					viewers++
				}
			}
			return viewers
		}, patience, "20ms").Should(Equal(fleetViewers))
	}
	changed(0)
	before, sentBefore := cpu(t), bytes.Load()
	for n := range fleetChanges {
		changed(n + 1)
	}
	each := float64(fleetViewers * fleetChanges)
	sentEach, cpuEach := float64(bytes.Load()-sentBefore)/each, time.Duration(float64(cpu(t)-before)/each)
	t.Logf("%d viewers: %.1f kB and %s of CPU for each viewer and change", fleetViewers, sentEach/1000, cpuEach.Round(time.Microsecond))
	if sentEach > streamBytesBudget {
		t.Errorf("a change sends %.0f bytes to each viewer, more than %d", sentEach, streamBytesBudget)
	}
	if cpuEach > streamCPUBudget {
		t.Errorf("a change takes %s of CPU for each viewer, more than %s", cpuEach, streamCPUBudget)
	}
}

func (v *visitor) follow(ctx context.Context, t *testing.T, path, version string) (*http.Response, error) {
	t.Helper()
	query := url.Values{"page": {path}, "from": {version}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+"/stream?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	return v.client.Do(request)
}

// change gives the first environment of the Pipeline with the longest name another revision.
func (f *fleet) change(t *testing.T, n int) {
	t.Helper()
	g := NewWithT(t)
	p := &pipelinesv1.Pipeline{}
	g.Expect(f.admin.Get(t.Context(), f.pipeline, p)).To(Succeed())
	targets := p.Status.Environments[environmentName(0)].Targets
	for i := range targets {
		targets[i].Revision, targets[i].Ready, targets[i].Stale, targets[i].Reason, targets[i].Message = fmt.Sprintf("2.0.%d", n), true, false, "", ""
	}
	g.Expect(f.admin.Status().Update(t.Context(), p)).To(Succeed())
}

// cpu is the CPU time of the process so far.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	NewWithT(t).Expect(syscall.Getrusage(syscall.RUSAGE_SELF, &usage)).To(Succeed())
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
