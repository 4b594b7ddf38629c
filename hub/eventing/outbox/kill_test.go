package outbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/outbox"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/nats"
	"github.com/capstan-hub/capstan/hub/eventing/sink/webhook"
	playnats "github.com/capstan-hub/capstan/playground/nats"
)

// doomedEnv, if set, makes this program the process that is killed: its value is a doomed
// as JSON.
const doomedEnv = "CAPSTAN_OUTBOX_DOOMED"

// doomed is the configuration of the process that is killed.
type doomed struct {
	Kubeconfig, Namespace, NATS, Hook string
}

// child returns false unless this program is the process that is killed: then it runs until
// it is killed.
func child() bool {
	raw := os.Getenv(doomedEnv)
	if raw == "" {
		return false
	}
	var d doomed
	if err := json.Unmarshal([]byte(raw), &d); err != nil {
		panic(err)
	}
	if err := d.run(context.Background()); err != nil {
		panic(err)
	}
	return true
}

// run starts the parts of eventing that the hub runs.
func (d doomed) run(ctx context.Context) error {
	ctrl.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", d.Kubeconfig)
	if err != nil {
		return err
	}
	writer, err := client.New(unlimited(config), client.Options{Scheme: scheme()})
	if err != nil {
		return err
	}
	informers, err := cache.New(config, cache.Options{Scheme: scheme(), DefaultNamespaces: map[string]cache.Config{d.Namespace: {}}})
	if err != nil {
		return err
	}
	box := outbox.New(outbox.Options{Hub: hub, Cache: informers, Client: writer, RecordDelay: 100 * time.Millisecond, Clock: clock.RealClock{}, Logger: logr.Discard()})
	p := publisher.New(publisher.Options{Clock: clock.RealClock{}, Logger: logr.Discard(), Sources: []publisher.Source{box}})
	box.PublishTo(p)
	bus, err := nats.Open(nats.Options{Config: configOf(schema.NATS(d.NATS), nil), AllowLoopback: true})
	if err != nil {
		return err
	}
	hook, err := webhook.Open(webhook.Options{
		Config: configOf(schema.HTTP(), map[string]any{"url": d.Hook, "insecureHttp": true}), Origin: "fleet", Clock: clock.RealClock{}, AllowLoopback: true,
	})
	if err != nil {
		return err
	}
	for name, s := range map[string]sink.Sink{"bus": bus, "hook": hook} {
		if err := p.Set(d.Namespace+"/"+name, publisher.Settings{Sink: s, MaxAttempts: 100, Backoff: 50 * time.Millisecond, BackoffMax: time.Second}); err != nil {
			return err
		}
	}
	ended := make(chan error, 3)
	for _, start := range []func(context.Context) error{informers.Start, p.Start, box.Start} {
		go func() { ended <- start(ctx) }()
	}
	return <-ended
}

func configOf(of schema.Schema, values map[string]any) schema.Config {
	entries, err := eventingv1.NewConfig(values)
	if err != nil {
		panic(err)
	}
	c, problems := of.Resolve(entries)
	if len(problems) > 0 {
		panic(fmt.Sprint(problems))
	}
	return c
}

// receiver of webhooks counts what it gets, by id.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string]int
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{got: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var e ce.Event
		body, err := io.ReadAll(q.Body)
		if err == nil {
			err = e.UnmarshalJSON(body)
		}
		if err != nil {
			http.Error(w, "no event", http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		r.got[e.ID()]++
		r.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) distinct() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// soaks returns whether tests run with their full counts.
func soaks() bool { return os.Getenv("CAPSTAN_SOAK") != "" }

// TestKilledAtRandom: the process is killed at random moments of a burst of 1,000 edges.
// JetStream holds each exactly once, in the order of each promotion; the receiver of
// webhooks gets each at least once, under the same id; none is missing.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	kills, edges := 3, 1000
	if soaks() {
		kills, edges = 100, 20_000
	}
	w := newWorld(t)
	w.backend("bus")
	w.backend("hook")
	broker, err := playnats.Start(t.TempDir())
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(broker.Stop)
	hook := newReceiver(t)
	kubeconfig, err := shared.Get(t).Kubeconfig("")
	w.g.Expect(err).NotTo(HaveOccurred())
	d := doomed{Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), Namespace: w.ns, NATS: broker.URL(), Hook: hook.URL}
	w.g.Expect(os.WriteFile(d.Kubeconfig, kubeconfig, 0o600)).To(Succeed())

	const each = 5 // detected, waiting, approved, started, succeeded
	promotions := make([]*capstanv1.Promotion, edges/each)
	done := make(chan struct{})
	go func() { // Ends before the test: done is waited for.
		defer close(done)
		for i := range promotions {
			promotions[i] = w.whole(i)
		}
	}()
	process := d.start(w)
	random := rand.New(rand.NewPCG(1, 2))
	for range kills {
		// Kill it only after it has published an event, otherwise the test proves nothing.
		before := hook.distinct()
		w.g.Eventually(hook.distinct).Should(Or(BeNumerically(">", before), Equal(edges)))
		w.lasts(time.Duration(random.IntN(1000)) * time.Millisecond)
		w.g.Expect(process.Process.Kill()).To(Succeed())
		_ = process.Wait() // The error is that it was killed.
		process = d.start(w)
	}
	<-done
	w.g.Eventually(hook.distinct, 2*patience).Should(Equal(edges))
	var messages int
	w.g.Eventually(func() int {
		all, err := broker.Messages(t.Context(), "capstan")
		w.g.Expect(err).NotTo(HaveOccurred())
		messages = len(all)
		return messages
	}, 2*patience, "500ms").Should(Equal(edges))
	w.g.Expect(process.Process.Kill()).To(Succeed())
	_ = process.Wait()

	at, all := map[string]int{}, must(broker.Messages(t.Context(), "capstan"))
	for n, m := range all {
		var e ce.Event
		w.g.Expect(e.UnmarshalJSON(m.Data)).To(Succeed())
		_, twice := at[e.ID()]
		w.g.Expect(twice).To(BeFalse(), e.ID())
		at[e.ID()] = n
	}
	hook.mu.Lock() // A request of the killed process may still be served.
	defer hook.mu.Unlock()
	again := 0
	for _, p := range promotions {
		want := hub.Promotions(p)
		w.g.Expect(want).To(HaveLen(each))
		last := -1
		for _, e := range want {
			place, there := at[e.ID()]
			w.g.Expect(there).To(BeTrue(), "%s of %s", e.Type(), p.Name)
			w.g.Expect(place).To(BeNumerically(">", last), "%s of %s comes after what was before it", e.Type(), p.Name)
			last = place
			w.g.Expect(hook.got[e.ID()]).To(BeNumerically(">=", 1))
			again += hook.got[e.ID()] - 1
		}
	}
	t.Logf("%d kills, %d edges; the receiver of webhooks got %d of them again", kills, edges, again)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// start the process that is to be killed.
func (d doomed) start(w *world) *exec.Cmd {
	w.Helper()
	raw, err := json.Marshal(d)
	w.g.Expect(err).NotTo(HaveOccurred())
	process := exec.Command(os.Args[0], "-test.run=^$")
	process.Env = append(os.Environ(), doomedEnv+"="+string(raw))
	said := &bytes.Buffer{}
	process.Stderr, process.Stdout = said, said
	w.g.Expect(process.Start()).To(Succeed())
	w.Cleanup(func() {
		_ = process.Process.Kill() // Most are dead by now.
		if w.Failed() {
			w.Logf("process %d: %s", process.Process.Pid, said)
		}
	})
	return process
}

// lasts waits for a time on the real clock.
func (w *world) lasts(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// whole writes the complete lifecycle of the i-th manual promotion, of one of twenty
// Pipelines. It may be called from any goroutine.
func (w *world) whole(i int) *capstanv1.Promotion {
	ctx := w.Context()
	p := newPromotion(w.ns, fmt.Sprintf("web-%d", i), int64(i+1), true)
	p.Spec.Pipeline.Name = fmt.Sprint("web-", i%20)
	err := w.c.Create(ctx, p)
	for _, change := range []func(*capstanv1.PromotionStatus, metav1.Time){
		func(s *capstanv1.PromotionStatus, now metav1.Time) {
			s.Phase, s.StartTime = capstanv1.PhaseAwaitingApproval, &now
		},
		func(s *capstanv1.PromotionStatus, now metav1.Time) {
			s.Phase = capstanv1.PhasePromoting
			s.Approval = &capstanv1.ApprovalRecord{By: "jo", ApprovalTime: now, Method: capstanv1.ApprovalByKubernetes}
			s.Attempt = &capstanv1.Attempt{Number: 1, StartTime: metav1.NewMicroTime(now.Time), NextAttemptTime: metav1.NewMicroTime(now.Time), Holder: "hub"}
		},
		func(s *capstanv1.PromotionStatus, now metav1.Time) {
			s.Phase, s.FinishTime, s.Reason = capstanv1.PhaseSucceeded, &now, "Done"
		},
	} {
		before := p.DeepCopy()
		change(&p.Status, metav1.Now().Rfc3339Copy())
		if err == nil {
			err = w.c.Status().Patch(ctx, p, client.MergeFrom(before))
		}
	}
	if err != nil && ctx.Err() == nil {
		w.Error(err)
	}
	return p
}
