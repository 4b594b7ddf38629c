package backend_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/aws/aws-sdk-go-v2/service/sqs"
	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/eventing/backend"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/aws/sts"
	"github.com/capstan-hub/capstan/playground/generated"
	"github.com/capstan-hub/capstan/playground/nats"
)

//go:generate go test . -run TestNothingIsLostOnTheWayIsDocumented -update

var update = flag.Bool("update", false, "write the table of sinks in docs/losses.md")

func soaks() bool { return os.Getenv("CAPSTAN_SOAK") != "" }

// wayRegion and wayRole of the queue.
const wayRegion, wayRole = "eu-west-1", "arn:aws:iam::111122223333:role/events"

// way is a publisher, a sink and what takes its events.
type way struct {
	*testing.T
	g     *WithT
	clock *testclock.FakeClock
	*publisher.Publisher
	settings func() publisher.Settings
	// got returns the ids of all events that were taken.
	got func() []string
	hub event.Hub
	// What the tests let fail: only those of the type are set.
	http    *receiver
	line    *line
	cloud   *aws.Server
	streams *nats.Server

	mu sync.Mutex
	// givenUp are the ids of events that were given up.
	givenUp []string
}

const wayBackend = "team/way"

func newWay(t *testing.T, kind string) *way {
	t.Helper()
	w := &way{T: t, g: NewWithT(t), clock: testclock.NewFakeClock(time.Now()), hub: event.Hub{Name: "test", UID: "uid"}}
	w.g.SetDefaultEventuallyTimeout(time.Minute)
	w.Publisher = publisher.New(publisher.Options{Clock: w.clock, Logger: logr.Discard(), Drain: time.Second, GivenUp: func(_ string, e ce.Event, _ string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.givenUp = append(w.givenUp, e.ID())
	}})
	var spec map[string]any
	options := backend.SinkOptions{Hub: "test", HubID: "uid", AllowLoopback: true, Clock: w.clock}
	switch kind {
	case "http":
		w.http = (&world{T: t, g: w.g}).receiver()
		w.line = newLine(t, strings.TrimPrefix(w.http.URL, "http://"))
		spec, w.got = map[string]any{"url": "http://" + w.line.address, "insecureHttp": true}, w.http.got
	case "nats":
		var err error
		w.streams, err = nats.Start(t.TempDir())
		w.g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(w.streams.Stop)
		w.limit(-1)
		w.line = newLine(t, strings.TrimPrefix(w.streams.URL(), "nats://"))
		spec, w.got = map[string]any{"url": "nats://" + w.line.address, "streamDiscard": "new", "reconnectWait": "100ms", "requestTimeout": "300ms"}, w.stored
	case "sqs":
		queues := sqs.New(sqs.Options{Seed: 1})
		var err error
		w.cloud, err = aws.Start(aws.Options{Services: []aws.Service{queues, sts.New(sts.Role{ARN: wayRole})}})
		w.g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(w.cloud.Stop)
		options.AWS, err = awsconfig.Load(t.Context(), awsconfig.Options{Attempts: 1, LoadOptions: w.cloud.LoadOptions()})
		w.g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(options.AWS.Close)
		name := "way"
		_, err = api.NewFromConfig(options.AWS.In(wayRegion, awsconfig.Role{})).CreateQueue(t.Context(), &api.CreateQueueInput{QueueName: &name})
		w.g.Expect(err).NotTo(HaveOccurred())
		spec = map[string]any{"queueName": name, "region": wayRegion, "roleArn": wayRole}
		w.got = func() []string {
			var ids []string
			for _, body := range queues.Bodies(wayRegion, name) {
				ids = append(ids, idOf([]byte(body)))
			}
			return ids
		}
	}
	entries, err := eventingv1.NewConfig(spec)
	w.g.Expect(err).NotTo(HaveOccurred())
	types, err := schema.Types(schema.Options{SQSSinkNamespaces: schema.Namespaces{"team"}})
	w.g.Expect(err).NotTo(HaveOccurred())
	b := &eventingv1.EventingBackend{Spec: eventingv1.EventingBackendSpec{Type: kind, Config: entries}}
	b.Namespace, b.Name = "team", "way"
	config, invalid := types.Resolve(b)
	w.g.Expect(invalid).To(BeEmpty())
	w.settings = func() publisher.Settings {
		var opened sink.Sink
		opened, err := backend.Openers(options)[kind](backend.Opening{Config: config, Name: wayBackend, Changed: func() {}})
		w.g.Expect(err).NotTo(HaveOccurred())
		return publisher.Settings{Type: kind, Sink: opened, Timeout: 300 * time.Millisecond}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	stepping := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		go func() { // What waits for the clock at the end ends, too.
			for {
				select {
				case <-stepping:
					return
				default:
					w.passes(time.Second)
				}
			}
		}()
		w.g.Eventually(ended).Should(Receive(BeNil()))
		close(stepping)
	})
	return w
}

// idOf an event in JSON.
func idOf(raw []byte) string {
	var e struct{ ID string }
	_ = json.Unmarshal(raw, &e)
	return e.ID
}

// stored returns the ids in the stream.
func (w *way) stored() []string {
	all, err := w.streams.Messages(context.Background(), "capstan")
	if err != nil {
		return nil // The server does not run now.
	}
	var ids []string
	for _, m := range all {
		if id := idOf(m.Data); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// stream does something with JetStream.
func (w *way) stream(do func(jetstream.JetStream) error) {
	w.Helper()
	client, closed, err := w.streams.Inside()
	w.g.Expect(err).NotTo(HaveOccurred())
	defer closed()
	w.g.Expect(do(client)).To(Succeed())
}

// limit sets the number of messages that the stream takes. No hub has created it, so none changes
// that.
func (w *way) limit(messages int64) {
	w.Helper()
	w.stream(func(js jetstream.JetStream) error {
		_, err := js.CreateOrUpdateStream(w.Context(), jetstream.StreamConfig{
			Name: "capstan", Subjects: []string{"capstan.>"}, Discard: jetstream.DiscardNew, MaxMsgs: messages,
		})
		return err
	})
}

// passes lets simulated time pass, so slowly that calls end in between.
func (w *way) passes(d time.Duration) {
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
		w.clock.Step(time.Second)
		timer := time.NewTimer(2 * time.Millisecond)
		<-timer.C
	}
}

// line is a TCP connection to a server, which can fail.
type line struct {
	address string
	// cut closes all connections, and hangs passes nothing on.
	cut, hangs atomic.Bool
	// open connections.
	open atomic.Int64
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	l := &line{address: listener.Addr().String()}
	var open sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		open.Wait()
	})
	open.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { l.serve(ctx, from, to) })
		}
	})
	return l
}

// serve one connection until it ends, the line is cut, or the context ends.
func (l *line) serve(ctx context.Context, from net.Conn, address string) {
	l.open.Add(1)
	defer l.open.Add(-1)
	defer from.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	pass := func(into, out net.Conn) {
		both.Go(func() {
			buffer := make([]byte, 32<<10)
			for ctx.Err() == nil && !l.cut.Load() {
				_ = out.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
				n, err := out.Read(buffer)
				if n > 0 && !l.hangs.Load() {
					if _, err := into.Write(buffer[:n]); err != nil {
						break
					}
				}
				if e, timeout := err.(net.Error); err != nil && (!timeout || !e.Timeout()) { //nolint:errorlint // Reads of a connection do not wrap.
					break
				}
			}
			_ = from.Close()
			_ = to.Close()
		})
	}
	pass(to, from)
	pass(from, to)
	both.Wait()
}

// trouble is a failure of what a sink depends on.
type trouble struct {
	kind, name string
	// does is what the hub does with the events meanwhile, and shows where it shows.
	does, shows string
	// permanent: the events are given up.
	permanent bool
	// anew: the sink must be opened again.
	anew bool
	// begin lets it fail, and returns how it ends.
	begin func(w *way) (end func())
}

func answering(code int64) func(*way) func() {
	return func(w *way) func() {
		w.http.answer.Store(code)
		return func() { w.http.answer.Store(http.StatusNoContent) }
	}
}

// changed returns how the NATS server fails with other options.
func changed(begin, end func(*server.Options)) func(*way) func() {
	return func(w *way) func() {
		change := func(to func(*server.Options)) { // Another test may have its port for a moment.
			w.g.Eventually(func() error { return w.streams.Change(to) }).Should(Succeed())
		}
		change(begin)
		return func() { change(end) }
	}
}

func calls(rules ...aws.Rule) func(*way) func() {
	return func(w *way) func() {
		var ends []func()
		for _, r := range rules {
			ends = append(ends, w.cloud.Inject(r))
		}
		return func() {
			for _, end := range ends {
				end()
			}
		}
	}
}

func severed(w *way) func() {
	w.line.cut.Store(true)
	w.g.Eventually(w.line.open.Load).Should(BeZero()) // What is sent before that arrives.
	return func() { w.line.cut.Store(false) }
}

func silent(w *way) func() {
	w.line.hangs.Store(true)
	return func() {
		w.line.cut.Store(true) // What was sent meanwhile is lost: begin with other connections.
		w.line.hangs.Store(false)
		w.passes(time.Second)
		w.line.cut.Store(false)
	}
}

const (
	waits   = "waits, and is sent again after `retryBackoff`, doubled up to `retryBackoffMax`"
	probed  = "waits; one event at a time tests whether the broker accepts it"
	goesOff = "given up, or a dead letter"

	showsHeld = "`Ready` and `Publisher Proxy Ready` False, with the error; `taking`, `oldest_seconds`, `status.delivery`; alert `CapstanBackendNotReady`"
	showsLost = "`dropped_total`, `status.delivery.givenUp` and `lastGivenUp`, the message of `Publisher Proxy Ready`, Event `EventsDropped`"
)

func troubles() []trouble {
	queue, tokens := aws.Match{Service: "sqs"}, aws.Match{Service: "sts"}
	// The session that was assumed before ends as well.
	over := aws.Rule{Match: queue, Fault: sqs.Expired}
	return []trouble{
		{kind: "http", name: "the receiver cuts every connection", does: waits, shows: showsHeld, begin: severed},
		{kind: "http", name: "the receiver does not answer", does: waits, shows: showsHeld, begin: silent},
		{kind: "http", name: "the receiver answers 500", does: waits, shows: showsHeld, begin: answering(500)},
		{kind: "http", name: "the receiver answers 503", does: waits + ", or after `Retry-After`", shows: showsHeld, begin: answering(503)},
		{kind: "http", name: "the receiver answers 429", does: waits + ", or after `Retry-After`", shows: showsHeld, begin: answering(429)},
		{kind: "http", name: "the receiver answers 404", does: waits, shows: showsHeld, begin: answering(404)},
		{kind: "http", name: "the receiver answers 401 or 403", does: probed, shows: showsHeld, begin: answering(401)},
		{kind: "http", name: "the receiver answers 302 or 405", does: probed, shows: showsHeld, begin: answering(302)},
		{kind: "http", name: "the receiver answers 410", does: "waits until the configuration or the Secret is changed", shows: showsHeld, anew: true, begin: answering(410)},
		{kind: "http", name: "the receiver answers 400 to some events", does: goesOff, shows: showsLost, permanent: true, begin: answering(400)},
		{kind: "http", name: "the receiver answers 413", does: goesOff, shows: showsLost, permanent: true, begin: answering(413)},
		{kind: "nats", name: "the server cuts every connection", does: waits, shows: showsHeld, begin: severed},
		{kind: "nats", name: "the server does not answer", does: waits, shows: showsHeld, begin: silent},
		{kind: "nats", name: "the server restarts", does: waits, shows: showsHeld, begin: func(w *way) func() {
			w.streams.Stop()
			return func() { w.g.Eventually(w.streams.Restart).Should(Succeed()) } // Another test may have its port for a moment.
		}},
		{kind: "nats", name: "JetStream is off", does: probed, shows: showsHeld, begin: changed(
			func(o *server.Options) { o.JetStream = false }, func(o *server.Options) { o.JetStream = true })},
		{kind: "nats", name: "the user may not publish to the subjects", does: probed, shows: showsHeld, begin: changed(func(o *server.Options) {
			denied := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"capstan.>"}}}
			o.Users, o.NoAuthUser = []*server.User{{Username: "hub", Password: "hub", Permissions: denied}}, "hub"
		}, func(o *server.Options) { o.Users, o.NoAuthUser = nil, "" })},
		{kind: "nats", name: "the stream is full (`streamDiscard: new`)", does: probed, shows: showsHeld, begin: func(w *way) func() {
			w.stream(func(js jetstream.JetStream) error {
				_, err := js.Publish(w.Context(), "capstan.other", nil)
				return err
			})
			w.limit(int64(len(w.got())) + 1)
			return func() { w.limit(-1) }
		}},
		{kind: "sqs", name: "SQS denies `SendMessage`", does: probed, shows: showsHeld, begin: calls(aws.Rule{Match: aws.Match{Service: "sqs", Action: "SendMessage"}, Fault: sqs.Denied})},
		{kind: "sqs", name: "SQS throttles", does: waits, shows: showsHeld, begin: calls(aws.Rule{Match: queue, Fault: sqs.Throttled})},
		{kind: "sqs", name: "SQS answers with 500", does: waits, shows: showsHeld, begin: calls(aws.Rule{Match: queue, Fault: &aws.InternalError})},
		{kind: "sqs", name: "SQS cuts every connection", does: waits, shows: showsHeld, begin: calls(aws.Rule{Match: queue, Cut: true})},
		{kind: "sqs", name: "the queue does not exist", does: probed, shows: showsHeld, begin: calls(aws.Rule{Match: queue, Fault: sqs.Missing})},
		{kind: "sqs", name: "STS denies the role", does: probed, shows: showsHeld, begin: calls(aws.Rule{Match: tokens, Fault: &aws.Denied}, over)},
		{kind: "sqs", name: "STS answers with 500", does: probed, shows: showsHeld, begin: calls(aws.Rule{Match: tokens, Fault: &aws.InternalError}, over)},
		{kind: "sqs", name: "STS cuts every connection", does: probed, shows: showsHeld, begin: calls(aws.Rule{Match: tokens, Cut: true}, over)},
	}
}

// wayTimes are when a trouble lasts.
var wayTimes = []string{"at start", "in flight", "for 5 s", "for an hour"}

// Whatever fails, before the first event, while events are in flight, for 5 s or for an hour of
// simulated time: every event is delivered, or it is given up for a permanent reason and counted.
// `make test` tries one time of each trouble, and `make soak` all.
func TestNothingIsLostOnTheWay(t *testing.T) {
	t.Parallel()
	for i, c := range troubles() {
		for j, when := range wayTimes {
			if !soaks() && i%len(wayTimes) != j {
				continue
			}
			t.Run(c.kind+": "+c.name+", "+when, func(t *testing.T) {
				t.Parallel()
				c.lasts(t, when)
			})
		}
	}
}

// lasts lets a trouble last for a time, with events before it, during it and after it.
func (c trouble) lasts(t *testing.T, when string) {
	w := newWay(t, c.kind)
	all := map[string]bool{}
	publish := func(n int) (ids []string) {
		for range n {
			e := w.hub.Backends(types.UID(fmt.Sprint(len(all))), true, event.Backend{Namespace: "x", Name: fmt.Sprint(len(all)), BackendType: "http"}, w.clock.Now())
			all[e.ID()] = true
			ids = append(ids, e.ID())
			w.Publish(e, nil)
		}
		return ids
	}
	var during []string
	var end func()
	if when == "at start" {
		end = c.begin(w)
		w.g.Expect(w.Set(wayBackend, w.settings())).To(Succeed())
		during = publish(7)
		w.passes(10 * time.Second)
	} else {
		w.g.Expect(w.Set(wayBackend, w.settings())).To(Succeed())
		before := publish(3)
		if when != "in flight" {
			w.g.Eventually(func() []string { w.passes(time.Second); return w.got() }).Should(ContainElements(before))
		}
		end = c.begin(w)
		during = publish(4)
		switch when {
		case "in flight":
			w.passes(10 * time.Second)
		case "for 5 s":
			w.passes(5 * time.Second)
		default:
			w.passes(time.Hour)
			status, _ := w.Status(wayBackend)
			w.g.Expect(status.Taking).To(Equal(c.permanent), "the breaker is open, which Publisher Proxy Ready shows")
		}
	}
	if c.permanent { // The receiver refuses each of them before the trouble ends.
		w.g.Eventually(func() []string {
			w.passes(time.Second)
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Clone(w.givenUp)
		}).WithPolling(5 * time.Millisecond).Should(ContainElements(during))
	}
	end()
	if c.anew {
		w.g.Expect(w.Set(wayBackend, w.settings())).To(Succeed())
	}
	publish(3)
	done := func() []string {
		w.passes(2 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Concat(w.got(), w.givenUp)
	}
	w.g.Eventually(done).WithPolling(5 * time.Millisecond).Should(ContainElements(slices.Collect(maps.Keys(all))))
	w.mu.Lock()
	givenUp := slices.Clone(w.givenUp)
	w.mu.Unlock()
	status, known := w.Status(wayBackend)
	w.g.Expect(known).To(BeTrue())
	w.g.Expect(status.Dropped).To(Equal(len(givenUp)), "each is counted")
	if !c.permanent {
		w.g.Expect(givenUp).To(BeEmpty())
		return
	}
	w.g.Expect(givenUp).To(ContainElements(during))
	w.g.Expect(status.LastDrop.Reason).NotTo(BeEmpty())
}

// The table in docs/losses.md has the troubles that are tried.
func TestNothingIsLostOnTheWayIsDocumented(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "| type | cause | an event | where it shows | %s |\n|---|---|---|---|%s\n", strings.Join(wayTimes, " | "), strings.Repeat("---|", len(wayTimes)))
	for _, c := range troubles() {
		cell := " none lost |"
		if c.permanent {
			cell = " given up, counted |"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |%s\n", c.kind, c.name, c.does, c.shows, strings.Repeat(cell, len(wayTimes)))
	}
	generated.Section(t, "../../../docs/losses.md", "losses of sinks", strings.TrimSuffix(b.String(), "\n"), *update)
}
