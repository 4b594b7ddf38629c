package nats

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// TestPublish: an event arrives complete and once, however often it is sent.
func TestPublish(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, nil).start()
	js := b.admin()
	s := open(t, Options{Config: config(t, b.url(), nil), Name: "hub/bus"})
	g.Expect(s.Ping(ctx)).To(Succeed())
	for range 3 {
		g.Expect(s.Publish(ctx, news(1))).To(Succeed())
	}
	g.Expect(s.Publish(ctx, news(2))).To(Succeed())
	all := messages(t, js, "capstan")
	g.Expect(all).To(HaveLen(2))
	g.Expect(all[0].Subject).To(Equal("capstan.promotion.succeeded.v1"))
	g.Expect(all[0].Header.Get("Content-Type")).To(Equal("application/cloudevents+json"))
	g.Expect(all[0].Header.Get("Nats-Msg-Id")).To(Equal("id-1"))
	var got ce.Event
	g.Expect(json.Unmarshal(all[0].Data, &got)).To(Succeed())
	g.Expect(got.Validate()).To(Succeed())
	g.Expect(got.ID()).To(Equal("id-1"))
	g.Expect(got.Data()).To(MatchJSON(`{"n":1}`))
	foreign := news(3)
	foreign.SetType("com.example.made")
	g.Expect(s.Publish(ctx, foreign)).To(Succeed())
	g.Expect(messages(t, js, "capstan")[2].Subject).To(Equal("capstan.com.example.made"))
}

// TestServerIsDownAtStart: the server starts after the sink, then restarts with its files.
func TestServerIsDownAtStart(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, nil)
	var changed counter
	s := open(t, Options{Config: config(t, b.url(), nil), Changed: changed.count})
	g.Expect(s.Ping(ctx)).To(Satisfy(is(sink.Transient, sink.CodeUnreachable)))
	g.Expect(s.Publish(ctx, news(1))).To(Satisfy(is(sink.Transient, sink.CodeUnreachable)))
	b.start()
	g.Eventually(func() error { return s.Publish(ctx, news(1)) }).Should(Succeed())
	g.Eventually(changed.Load).Should(BeNumerically(">=", 1))

	b.stop()
	g.Eventually(func() error { return s.Ping(ctx) }).Should(Satisfy(is(sink.Transient, sink.CodeUnreachable)))
	before := changed.Load()
	b.start()
	g.Eventually(func() error { return s.Publish(ctx, news(1)) }).Should(Succeed())
	g.Eventually(changed.Load).Should(BeNumerically(">", before))
	g.Expect(messages(t, b.admin(), "capstan")).To(HaveLen(1), "the window survives the server's restart")
}

// TestFirstBurst: of several concurrent first calls one connects and the others wait for it.
func TestFirstBurst(t *testing.T) {
	b := newBroker(t, nil).start()
	s := open(t, Options{Config: config(t, b.url(), nil)})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := s.Publish(t.Context(), news(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	NewWithT(t).Expect(messages(t, b.admin(), "capstan")).To(HaveLen(20))
}

// TestSilentServers: servers accept a connection and never answer. A call ends with its context,
// and Close does not wait for all their timeouts.
func TestSilentServers(t *testing.T) {
	g := NewWithT(t)
	verifyNone(t)
	var urls []string
	for range 3 {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = silent.Close() })
		urls = append(urls, "nats://"+silent.Addr().String())
	}
	s, err := Open(Options{Config: config(t, strings.Join(urls, ","), keys{"requestTimeout": "1m"}), AllowLoopback: true})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	g.Expect(s.Publish(ctx, news(1))).To(Satisfy(is(sink.Transient, sink.CodeUnreachable)))
	waits := make(chan error, 1)
	go func() { waits <- s.Ping(t.Context()) }()
	closed := make(chan error, 1)
	go func() { closed <- s.Close(t.Context()) }()
	g.Eventually(closed, 10*time.Second).Should(Receive(BeNil()))
	g.Eventually(waits).Should(Receive(Satisfy(is(sink.Transient, sink.CodeUnreachable))))
}

// TestNewConnection: a new connection is made after the client has given up the old one.
func TestNewConnection(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, nil).start()
	s := open(t, Options{Config: config(t, b.url(), keys{"maxReconnects": 1})})
	g.Expect(s.Ping(ctx)).To(Succeed())
	b.stop()
	g.Eventually(func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.lockedState.conn.IsClosed()
	}).Should(BeTrue())
	b.start()
	g.Eventually(func() error { return s.Publish(ctx, news(1)) }).Should(Succeed())
}

// TestStreamIsDeleted: a stream that was deleted by others is created again.
func TestStreamIsDeleted(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, nil).start()
	js := b.admin()
	s := open(t, Options{Config: config(t, b.url(), nil)})
	g.Expect(s.Publish(ctx, news(1))).To(Succeed())
	g.Expect(js.DeleteStream(ctx, "capstan")).To(Succeed())
	g.Expect(s.Publish(ctx, news(2))).To(Satisfy(is(sink.Unavailable, "no-stream")))
	// The server may still be removing the files of the deleted stream: error 10049.
	g.Eventually(func() error { return s.Publish(ctx, news(2)) }).Should(Succeed())
	g.Expect(messages(t, js, "capstan")).To(HaveLen(1))
}

// TestStreamIsFull: with streamDiscard new, the sink is unavailable until there is space.
func TestStreamIsFull(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, nil).start()
	js := b.admin()
	s := open(t, Options{Config: config(t, b.url(), keys{"streamDiscard": "new", "streamMaxMsgs": 2})})
	g.Expect(s.Publish(ctx, news(1))).To(Succeed())
	g.Expect(s.Publish(ctx, news(2))).To(Succeed())
	g.Expect(s.Publish(ctx, news(3))).To(Satisfy(is(sink.Unavailable, "stream-full")))
	stream, err := js.Stream(ctx, "capstan")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stream.Purge(ctx)).To(Succeed())
	g.Expect(s.Publish(ctx, news(3))).To(Succeed())

	big := open(t, Options{Config: config(t, b.url(), keys{"streamDiscard": "new", "streamName": "bytes", "subjectPrefix": "bytes", "streamMaxBytes": "1Mi"})})
	e := news(0)
	e.DataEncoded = []byte(`"` + strings.Repeat("x", 400<<10) + `"`)
	var full error
	for n := range 5 {
		e.SetID(news(n).ID())
		if full = big.Publish(ctx, e); full != nil {
			break
		}
	}
	g.Expect(full).To(Satisfy(is(sink.Unavailable, "stream-full")))
	g.Expect(full.Error()).To(ContainSubstring("maximum bytes exceeded"))
}

// TestTooLarge: an event is too large for the server, or for the stream.
func TestTooLarge(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, func(o *server.Options) { o.MaxPayload = 64 << 10 }).start()
	js := b.admin()
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "small", Subjects: []string{"small.>"}, MaxMsgSize: 1 << 10})
	g.Expect(err).NotTo(HaveOccurred())
	huge, large := news(1), news(2)
	huge.DataEncoded = []byte(`"` + strings.Repeat("x", 64<<10) + `"`)
	large.DataEncoded = []byte(`"` + strings.Repeat("x", 2<<10) + `"`)
	s := open(t, Options{Config: config(t, b.url(), nil)})
	g.Expect(s.Publish(ctx, huge)).To(Satisfy(is(sink.TooLarge, sink.CodeTooLarge)))
	g.Expect(s.Publish(ctx, large)).To(Succeed())
	small := open(t, Options{Config: config(t, b.url(), keys{"streamName": "small", "subjectPrefix": "small"})})
	g.Expect(small.Publish(ctx, large)).To(Satisfy(is(sink.TooLarge, sink.CodeTooLarge)))
}

// TestExistingStreams: a stream of the hub follows the configuration. A difference that cannot
// be changed is an error that names the key. Streams of others are not changed.
func TestExistingStreams(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, nil).start()
	js := b.admin()
	g.Expect(open(t, Options{Config: config(t, b.url(), nil)}).Ping(ctx)).To(Succeed())
	s := open(t, Options{Config: config(t, b.url(), keys{"streamMaxMsgs": 7, "streamMaxAge": "1h", "streamDuplicateWindow": "5m", "subjectPrefix": "second"})})
	g.Expect(s.Publish(ctx, news(1))).To(Succeed())
	stream, err := js.Stream(ctx, "capstan")
	g.Expect(err).NotTo(HaveOccurred())
	found := stream.CachedInfo().Config
	g.Expect(found.MaxMsgs).To(BeEquivalentTo(7))
	g.Expect(found.MaxAge.Hours()).To(Equal(1.0))
	g.Expect(found.Duplicates.Minutes()).To(Equal(5.0))
	g.Expect(found.Subjects).To(ConsistOf("capstan.>", "second.>"), "the subjects before stay")

	for key, value := range map[string]string{"streamStorage": "memory", "streamRetention": "interest"} {
		err := open(t, Options{Config: config(t, b.url(), keys{key: value})}).Ping(ctx)
		g.Expect(err).To(Satisfy(is(sink.Unavailable, "stream-mismatch")))
		g.Expect(err.Error()).To(ContainSubstring(key))
	}

	theirs := jetstream.StreamConfig{Name: "theirs", Subjects: []string{"theirs.>"}, MaxMsgs: 3, Duplicates: 120e9}
	_, err = js.CreateStream(ctx, theirs)
	g.Expect(err).NotTo(HaveOccurred())
	s = open(t, Options{Config: config(t, b.url(), keys{"streamName": "theirs", "subjectPrefix": "theirs"})})
	g.Expect(s.Publish(ctx, news(1))).To(Succeed())
	stream, err = js.Stream(ctx, "theirs")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stream.CachedInfo().Config.MaxMsgs).To(BeEquivalentTo(3))
	s = open(t, Options{Config: config(t, b.url(), keys{"streamName": "theirs", "subjectPrefix": "ours"})})
	g.Expect(s.Ping(ctx)).To(Satisfy(is(sink.Unavailable, "stream-mismatch")))
	// Another stream has the subjects.
	s = open(t, Options{Config: config(t, b.url(), keys{"streamName": "new", "subjectPrefix": "theirs"})})
	err = s.Ping(ctx)
	g.Expect(sink.Of(err).Class).To(Equal(sink.Unavailable))
	g.Expect(err.Error()).To(ContainSubstring("overlap"))
}

// TestStreamsHaveAnOwner: a stream has the settings of one backend. Another one with the same
// settings may publish to it; one with others changes nothing, and its error names the owner and
// the key.
func TestStreamsHaveAnOwner(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, nil).start()
	js := b.admin()
	sinkOf := func(owner string, k keys) *Sink { return open(t, Options{Config: config(t, b.url(), k), Owner: owner}) }
	first := sinkOf("hub/a/first", nil)
	for n := range 5 {
		g.Expect(first.Publish(ctx, news(n))).To(Succeed())
	}
	settings := func() jetstream.StreamConfig {
		stream, err := js.Stream(ctx, "capstan")
		g.Expect(err).NotTo(HaveOccurred())
		return stream.CachedInfo().Config
	}
	before := settings()
	for key, value := range (keys{"streamMaxMsgs": 1, "subjectPrefix": "other", "streamMaxAge": "1h", "streamDiscard": "new"}) {
		err := sinkOf("hub/b/second", keys{key: value}).Ping(ctx)
		g.Expect(err).To(Satisfy(is(sink.Unavailable, "stream-mismatch")))
		g.Expect(err.Error()).To(And(ContainSubstring("hub/a/first"), ContainSubstring(key+" is not the same")))
	}
	g.Expect(settings()).To(Equal(before))
	g.Expect(messages(t, js, "capstan")).To(HaveLen(5))
	g.Expect(sinkOf("hub/b/second", nil).Publish(ctx, news(6))).To(Succeed())
	g.Expect(settings()).To(Equal(before))
	g.Expect(sinkOf("hub/a/first", keys{"streamMaxMsgs": 3}).Ping(ctx)).To(Succeed())
	g.Expect(messages(t, js, "capstan")).To(HaveLen(3))

	// The first backend that uses a stream of an older hub becomes its owner.
	old := settings()
	delete(old.Metadata, ownedBy)
	_, err := js.UpdateStream(ctx, old)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(sinkOf("hub/b/second", keys{"streamMaxMsgs": 3}).Ping(ctx)).To(Succeed())
	g.Expect(settings().Metadata).To(HaveKeyWithValue(ownedBy, "hub/b/second"))
	g.Expect(first.Ping(ctx)).To(Satisfy(is(sink.Unavailable, "stream-mismatch")))
	g.Expect(first.Publish(ctx, news(7))).To(Satisfy(is(sink.Unavailable, "stream-mismatch")), "it published before")
}

// TestReplicasNeedACluster: the error has the description of the server.
func TestReplicasNeedACluster(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, nil).start()
	err := open(t, Options{Config: config(t, b.url(), keys{"streamReplicas": 3})}).Ping(ctx)
	g.Expect(err).To(HaveOccurred())
	g.Expect(err.Error()).To(ContainSubstring("replicas"))
}

// TestNoJetStream: a server without JetStream is unavailable.
func TestNoJetStream(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, func(o *server.Options) { o.JetStream = false }).start()
	s := open(t, Options{Config: config(t, b.url(), nil)})
	g.Expect(s.Ping(ctx)).To(Satisfy(is(sink.Unavailable, "no-jetstream")))
}

// TestForbiddenAddresses are not dialled.
func TestForbiddenAddresses(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	verifyNone(t)
	s := open(t, Options{Config: config(t, "nats://169.254.169.254:4222", nil)})
	err := s.Ping(ctx)
	g.Expect(err).To(HaveOccurred())
	g.Expect(err.Error()).To(ContainSubstring("link-local"))
	g.Expect(sink.Of(err).Class).To(Equal(sink.Unavailable))
}

// TestClosed: nothing is sent after Close.
func TestClosed(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, nil).start()
	s := open(t, Options{Config: config(t, b.url(), nil)})
	g.Expect(s.Ping(ctx)).To(Succeed())
	g.Expect(s.Close(ctx)).To(Succeed())
	g.Expect(s.Publish(ctx, news(1))).NotTo(Succeed())
}

// TestContext ends a call.
func TestContext(t *testing.T) {
	g := NewWithT(t)
	b := newBroker(t, nil).start()
	s := open(t, Options{Config: config(t, b.url(), nil)})
	g.Expect(s.Ping(t.Context())).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Publish(ctx, news(1))
	g.Expect(errors.Is(err, context.Canceled)).To(BeTrue(), "%v", err)
}
