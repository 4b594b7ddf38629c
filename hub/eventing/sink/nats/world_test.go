package nats

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/ports"
)

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	m.Run()
}

// broker is a real NATS server that can be stopped and started.
type broker struct {
	t       testing.TB
	options server.Options
	running *server.Server
}

// newBroker returns a broker that is not started. JetStream's files last until the test ends.
func newBroker(t testing.TB, change func(*server.Options)) *broker {
	t.Helper()
	verifyNone(t)
	o := server.Options{
		Host: "127.0.0.1", Port: freePort(t), NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(),
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 4 << 30,
	}
	if change != nil {
		change(&o)
	}
	b := &broker{t: t, options: o}
	t.Cleanup(b.stop)
	return b
}

func freePort(t testing.TB) int {
	t.Helper()
	address, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return int(netip.MustParseAddrPort(address).Port())
}

func (b *broker) start() *broker {
	b.t.Helper()
	o := b.options
	running, err := server.NewServer(&o)
	if err != nil {
		b.t.Fatal(err)
	}
	running.Start()
	b.running = running
	if !running.ReadyForConnections(10 * time.Second) {
		b.t.Fatal("the NATS server does not start")
	}
	return b
}

func (b *broker) stop() {
	if b.running != nil {
		b.running.Shutdown()
		b.running.WaitForShutdown()
		b.running = nil
	}
}

func (b *broker) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", b.options.Port) }

// admin returns a JetStream client through an in-process connection.
func (b *broker) admin() jetstream.JetStream {
	b.t.Helper()
	conn, err := nats.Connect(b.url(), nats.InProcessServer(b.running))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		b.t.Fatal(err)
	}
	return js
}

// messages returns the messages in the stream.
func messages(t testing.TB, js jetstream.JetStream, stream string) []*jetstream.RawStreamMsg {
	t.Helper()
	s, err := js.Stream(context.Background(), stream)
	if err != nil {
		t.Fatal(err)
	}
	info := s.CachedInfo().State
	var all []*jetstream.RawStreamMsg
	for n := info.FirstSeq; n <= info.LastSeq; n++ {
		m, err := s.GetMsg(context.Background(), n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

type keys map[string]any

// config returns a configuration of type nats.
func config(t testing.TB, url string, more keys) schema.Config {
	t.Helper()
	for name, value := range (keys{"requestTimeout": "2s", "reconnectWait": "100ms"}) {
		if _, set := more[name]; !set {
			if more == nil {
				more = keys{}
			}
			more[name] = value
		}
	}
	entries, err := eventingv1.NewConfig(more)
	if err != nil {
		t.Fatal(err)
	}
	c, problems := schema.NATS(url).Resolve(entries)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return c
}

// verifyNone checks that no goroutine is left after the test and its server have ended.
func verifyNone(t testing.TB) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if err := leaks.Find(before); err != nil {
			t.Error(err)
		}
	})
}

// open a sink that is closed when the test ends.
func open(t testing.TB, o Options) *Sink {
	t.Helper()
	o.AllowLoopback = true
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func news(n int) ce.Event {
	e := ce.New()
	e.SetID(fmt.Sprintf("id-%d", n))
	e.SetType(event.DefaultPrefix + "." + string(event.PromotionSucceeded))
	e.SetSource("/hubs/test")
	e.SetSubject(fmt.Sprint("pipelines/shop/", n%50))
	e.SetTime(time.Unix(1_700_000_000, 0))
	if err := e.SetData(ce.ApplicationJSON, map[string]int{"n": n}); err != nil {
		panic(err)
	}
	return e
}

// is returns a matcher for the class and code of an error.
func is(class sink.Class, code string) func(error) bool {
	return func(err error) bool {
		e := sink.Of(err)
		return err != nil && e.Class == class && e.Code == code
	}
}

type counter struct{ atomic.Int64 }

func (c *counter) count() { c.Add(1) }
