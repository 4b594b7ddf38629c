package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// sent is an event of a stream.
type sent struct {
	ID, Name, Data string
}

func (s sent) change(g *WithT) change {
	var c change
	g.Expect(json.Unmarshal([]byte(s.Data), &c)).To(Succeed())
	return c
}

// listen opens a stream and returns its events until the test ends or calls end.
func (b *browser) listen(page, version string, header http.Header) (events <-chan sent, end func()) {
	b.w.t.Helper()
	request, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodGet, b.w.url+"/stream?"+url.Values{"page": {page}, "from": {version}}.Encode(), nil)
	b.w.Expect(err).NotTo(HaveOccurred())
	if header != nil {
		request.Header = header
	}
	response, err := b.client.Do(request) //nolint:bodyclose // The function that is returned closes it.
	b.w.Expect(err).NotTo(HaveOccurred())
	b.w.Expect(response.StatusCode).To(Equal(http.StatusOK))
	b.w.Expect(response.Header.Get("Content-Type")).To(Equal("text/event-stream"))
	all, done := make(chan sent, 100), make(chan struct{})
	go func() {
		defer close(done)
		defer close(all)
		var e sent
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				e.ID = value
			case "event":
				e.Name = value
			case "data":
				e.Data = value
			case "":
				if e.Name != "" && e.Name != "beat" {
					all <- e
				}
				e = sent{}
			}
		}
	}()
	end = func() {
		response.Body.Close()
		<-done
	}
	b.w.t.Cleanup(end)
	return all, end
}

var versionInPage = regexp.MustCompile(`data-version="([^"]+)"`)

func (a answer) version() string {
	if found := versionInPage.FindStringSubmatch(a.Body); found != nil {
		return found[1]
	}
	return ""
}

// A change contains the changed entries. A viewer that reconnects continues from its
// version; when that is not possible, it must fetch the page.
func TestStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.cluster("dev")
	w.cluster("prod")
	p := w.pipeline("shop", "1.0.0", "dev", "prod")
	w.pipeline("other", "1.0.0", "dev", "prod")
	b := w.browser()
	w.Eventually(func() string { return b.get("/pipelines").Body }, patience).Should(MatchRegexp(`(?s)(1\.0\.0.*){4}`))
	version := b.get("/pipelines").version()
	events, end := b.listen("/pipelines", version, nil)

	w.runs(p, "dev", "1.1.0")
	var first sent
	w.Eventually(events, patience).Should(Receive(&first))
	w.Expect(first.Name).To(Equal("patch"))
	c := first.change(w.WithT)
	w.Expect(c.HTML).To(HaveLen(1), "one Pipeline changed, and no count")
	w.Expect(c.HTML["pipeline/"+w.apps+"/shop"]).To(ContainSubstring("1.1.0"))

	// Away: two more changes, and back with the last ID.
	end()
	w.runs(p, "dev", "1.2.0")
	w.Eventually(func() string { return b.get("/pipelines").Body }, patience).Should(ContainSubstring("1.2.0"))
	w.runs(p, "dev", "1.3.0")
	w.Eventually(func() string { return b.get("/pipelines").Body }, patience).Should(ContainSubstring("1.3.0"))
	events, _ = b.listen("/pipelines", version, http.Header{"Last-Event-Id": {first.ID}})
	for _, revision := range []string{"1.2.0", "1.3.0"} {
		var e sent
		w.Eventually(events, patience).Should(Receive(&e))
		w.Expect(e.Data).To(ContainSubstring(revision))
		w.Expect(e.ID).NotTo(Equal(first.ID))
	}
	w.Consistently(events, "300ms").ShouldNot(Receive())

	// What was asked for before a restart, or of another page, leads nowhere.
	for _, unknown := range []string{"", "AAAAAAAA-1", version + "0"} {
		lost, _ := b.listen("/pipelines", unknown, nil)
		w.Eventually(lost, patience).Should(Receive(HaveField("Name", "resync")))
		w.Eventually(lost, patience).Should(BeClosed())
	}
	w.Expect(b.get("/stream?page=/nowhere").Code).To(Equal(http.StatusBadRequest))

	// The same, asked for instead of waited for.
	changes := b.get("/changes?" + url.Values{"page": {"/pipelines"}, "from": {first.ID}}.Encode())
	var polled struct {
		Version string
		Patches []change
		Resync  bool
	}
	w.Expect(json.Unmarshal([]byte(changes.Body), &polled)).To(Succeed())
	w.Expect(polled.Patches).To(HaveLen(2))
	w.Expect(polled.Resync).To(BeFalse())
	w.Expect(polled.Version).To(Equal(b.get("/pipelines").version()))
}

// A cluster that does not respond becomes stale by time alone, in its card and in the cells.
func TestStreamTurnsStale(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.cluster("dev")
	w.pipeline("shop", "1.0.0", "dev")
	b := w.browser()
	w.Eventually(func() string { return b.get("/pipelines").Body }, patience).Should(And(ContainSubstring("1.0.0"), ContainSubstring(`class="mark good"`)))
	events, _ := b.listen("/pipelines", b.get("/pipelines").version(), nil)
	w.clock.step(view.FreshFor - 2*factsFor) // To hear of it was a step, too.
	w.Consistently(events, "1s").ShouldNot(Receive())
	w.clock.step(factsFor)
	var e sent
	w.Eventually(events, patience).Should(Receive(&e))
	row := e.change(w.WithT).HTML["pipeline/"+w.apps+"/shop"]
	w.Expect(row).To(And(ContainSubstring("Stale"), ContainSubstring("1.0.0"), Not(ContainSubstring("good"))))
	w.Expect(b.get("/clusters/Cluster/" + w.fleet + "/dev").Body).To(And(ContainSubstring(`class="card stale`), Not(ContainSubstring(`class="mark good"`))))
}

// An entry is rendered once for all viewers.
func TestViewersShareRendering(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"dev", "prod"} {
		w.cluster(name)
	}
	p := w.pipeline("shop", "1.0.0", "dev", "prod")
	b := w.browser()
	w.Eventually(func() string { return b.get("/pipelines").Body }, patience).Should(MatchRegexp(`(?s)1\.0\.0.*1\.0\.0`))
	version := b.get("/pipelines").version()
	var all []<-chan sent
	for range 50 {
		events, _ := w.browser().listen("/pipelines", version, nil)
		all = append(all, events)
	}
	w.Expect(w.gathered("capstan_dashboard_streams")).To(BeNumerically("==", 50))
	before := w.gathered("capstan_dashboard_blocks_rendered_total")
	w.runs(p, "dev", "1.1.0")
	for _, events := range all {
		w.Eventually(events, patience).Should(Receive(HaveField("Data", ContainSubstring("1.1.0"))))
	}
	w.Expect(w.gathered("capstan_dashboard_blocks_rendered_total") - before).To(BeNumerically("==", 1))
}

// After the last viewer, nothing is kept; the next viewer gets the page.
func TestNothingIsKeptWithoutViewers(t *testing.T) {
	w := newWorld(t, nil)
	w.cluster("dev")
	w.pipeline("shop", "1.0.0", "dev")
	b := w.browser()
	w.Eventually(func() string { return b.get("/pipelines").Body }, patience).Should(ContainSubstring("1.0.0"))
	kept := func() (blocks int, facts bool) {
		w.server.source.mu.Lock()
		defer w.server.source.mu.Unlock()
		return w.server.renderer.stock.blocks.Len(), w.server.source.lockedFacts != nil
	}
	blocks, facts := kept()
	w.Expect(blocks).To(BeNumerically(">", 0))
	w.Expect(facts).To(BeTrue())
	w.clock.step(topicLinger + time.Second)
	w.Eventually(func() bool { blocks, facts := kept(); return blocks > 0 || facts }, patience).Should(BeFalse())
	w.Expect(b.get("/pipelines").Body).To(ContainSubstring("1.0.0"))
}

// A browser has six connections over HTTP/1.1: in place of a fifth stream it must poll.
func TestStreamsOfOneBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	b := w.browser()
	b.get("/about") // Which gives it its name.
	for range maxOwnStreams {
		b.listen("/about", b.get("/about").version(), nil)
	}
	w.Expect(b.get("/stream?page=/about").Code).To(Equal(http.StatusNoContent))
	w.Expect(b.get("/changes?page=/about").Code).To(Equal(http.StatusOK))
	other := w.browser()
	other.get("/about")
	other.listen("/about", "", nil)
}

// Streams end when the hub stops, and a viewer that reconnects must fetch the page.
func TestStreamOverRestart(t *testing.T) {
	management(t)
	verifyNone(t)
	w := newWorld(t, nil)
	stop := w.serve()
	b := w.browser()
	version := b.get("/about").version()
	events, _ := b.listen("/about", version, nil)
	stop()
	w.Eventually(events, patience).Should(BeClosed())
	w.serve()
	events, _ = b.listen("/about", version, nil)
	w.Eventually(events, patience).Should(Receive(HaveField("Name", "resync")))
}

// Entries are added, removed and reordered.
func TestChanges(t *testing.T) {
	g := NewWithT(t)
	page := func(ids ...string) builder {
		return always(func(*view.Facts, view.Scope) view.Page {
			p := view.Page{Template: "about", Blocks: []view.Block{}}
			for _, id := range ids {
				p.Blocks = append(p.Blocks, view.Block{ID: id, List: "cards", Template: "empty-item", Data: view.Empty{Text: id[:1]}})
			}
			return p
		})
	}
	_, addresses, err := loadAssets()
	g.Expect(err).NotTo(HaveOccurred())
	r, err := newRenderer(addresses, newMetrics().blocksRendered)
	g.Expect(err).NotTo(HaveOccurred())
	topic := newTopic(address{build: page("a", "b")}, view.Everything(), r)
	at := time.Now()
	show := func(ids ...string) {
		topic.address.build = page(ids...)
		at = at.Add(time.Second)
		g.Expect(topic.refresh(&view.Facts{Now: at})).To(Succeed())
	}
	show("a", "b")
	from := topic.since("").version
	for _, tc := range []struct {
		to, put []string
	}{{[]string{"b", "a"}, nil}, {[]string{"b", "c", "a"}, []string{"c"}}, {[]string{"c"}, nil}, {[]string{}, nil}} {
		show(tc.to...)
		n := topic.since(from)
		g.Expect(n.patches).To(HaveLen(1))
		var c change
		g.Expect(json.Unmarshal(n.patches[0].json, &c)).To(Succeed())
		g.Expect(c.Lists).To(Equal(map[string][]string{"cards": tc.to}))
		g.Expect(c.HTML).To(HaveLen(len(tc.put)))
		from = n.version
	}
	show()
	g.Expect(topic.since(from).patches).To(BeEmpty(), "nothing changed")

	// What is kept is bounded; whoever has less is lost.
	for i := range maxPatches + 1 {
		show(string(rune('a'+i%2)), "z")
	}
	g.Expect(topic.since(from).lost).To(BeTrue())
	g.Expect(topic.lockedPatches).To(HaveLen(maxPatches))
}

// The page of a deleted object does not exist, and a new object of the name has a new page.
func TestPageThatGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	p := w.pipeline("shop", "1.0.0", "dev")
	b := w.browser()
	path := "/pipelines/" + w.apps + "/shop"
	w.Eventually(func() int { return b.get(path).Code }, patience).Should(Equal(http.StatusOK))
	events, _ := b.listen(path, b.get(path).version(), nil)
	w.Expect(w.c.Delete(t.Context(), p)).To(Succeed())
	w.Eventually(events, patience).Should(Receive(HaveField("Name", "resync")))
	w.Expect(b.get(path)).To(And(HaveField("Code", http.StatusNotFound), HaveField("Body", Not(ContainSubstring("data-live")))))
}

// A hub that shares the management cluster links the dashboards of the others, and says that it does not act while one of
// them serves a namespace of it.
func TestSharing(t *testing.T) {
	t.Parallel()
	var conflict atomic.Pointer[string]
	conflict.Store(new(string))
	w := newWorld(t, func(o *Options) {
		o.Auth = AuthNone
		o.Sharing = &Sharing{
			Name: "east", Conflict: func() string { return *conflict.Load() },
			Others: func(context.Context) ([]view.Hub, error) {
				return []view.Hub{{Name: "north", Dashboard: "javascript:alert(1)"}, {Name: "west", Dashboard: "https://west.example.org"}, {Name: "south"}}, nil
			},
		}
	})
	w.serve()
	b := w.browser()
	w.Eventually(func() string { return b.get("/").Body }, patience).Should(And(
		ContainSubstring("Hub <b>east</b>. Other hubs of this management cluster: "), ContainSubstring(`<a href="https://west.example.org">west</a>, south.`),
		Not(ContainSubstring("javascript:alert")), Not(ContainSubstring("does not act"))))
	why := "namespace team-a is served by hub west"
	conflict.Store(&why)
	w.Eventually(func() string { w.clock.step(factsFor); return b.get("/").Body }, patience).Should(ContainSubstring("<b>Hub east does not act</b>: " + why))
}

// Standby and leader show the same objects; only the leader shows last contacts.
func TestStandby(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.cluster("dev")
	b, dev := w.browser(), "/clusters/Cluster/"+w.fleet+"/dev"
	const banner = "Standby replica: data as last written by the leader."
	w.Eventually(func() string { return b.get(dev).Body }, patience).Should(And(ContainSubstring("within 45 s"), Not(ContainSubstring(banner))))
	events, _ := b.listen(dev, b.get(dev).version(), nil)
	w.lead(false)
	w.Eventually(events, patience).Should(Receive(HaveField("Name", "resync")))
	w.Expect(b.get(dev).Body).To(And(ContainSubstring(banner), ContainSubstring("not known to this replica"), ContainSubstring("Ready")))
}

// While no replica leads, a standby shows nothing as Ready, and when the leader was last seen.
func TestStandbyWithoutALeader(t *testing.T) {
	t.Parallel()
	var lease atomic.Pointer[Lease]
	w := newWorld(t, func(o *Options) {
		lease.Store(&Lease{Renewed: o.Clock.Now(), Duration: 30 * time.Second})
		o.Lease = func(context.Context) (Lease, error) { return *lease.Load(), nil }
	})
	w.cluster("dev")
	w.pipeline("shop", "1.0.0", "dev")
	w.lead(false)
	b := w.browser()
	at := func(by time.Duration) string {
		w.clock.step(by)
		w.server.source.readLease(t.Context())
		w.clock.step(factsFor)
		return b.get("/clusters").Body
	}
	const gone = "No replica leads at present"
	ready := MatchRegexp(`<span class="word">Ready</span>`)
	w.Expect(at(0)).To(And(ready, Not(ContainSubstring(gone))))
	for range 5 { // The leader renews its lease; its clock is behind.
		next := *lease.Load()
		next.Renewed = next.Renewed.Add(10 * time.Second)
		lease.Store(&next)
		w.Expect(at(20 * time.Second)).To(And(ready, Not(ContainSubstring(gone))))
	}
	seen := w.clock.Now()
	events, _ := b.listen("/clusters", b.get("/clusters").version(), nil)
	w.Expect(at(31 * time.Second)).To(And(Not(ready), ContainSubstring(gone), ContainSubstring(seen.Add(-factsFor).UTC().Format(time.RFC3339))))
	w.Eventually(events, patience).Should(Receive(HaveField("Name", "resync")), "open pages show it, too")
	w.Expect(b.get("/pipelines").Body).To(And(Not(ready), ContainSubstring("Stale")))
	next := *lease.Load()
	next.Renewed = next.Renewed.Add(time.Minute)
	lease.Store(&next)
	w.Expect(at(time.Second)).To(And(ready, Not(ContainSubstring(gone))))
}
