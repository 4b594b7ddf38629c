package instancestate_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/instancestate"
)

// The process of a handler gets its name, a kubeconfig, a namespace and an AWSMachine by its environment.
const (
	handlerName       = "CAPSTAN_TEST_HANDLER"
	handlerKubeconfig = "CAPSTAN_TEST_HANDLER_KUBECONFIG"
	handlerMachine    = "CAPSTAN_TEST_HANDLER_MACHINE"
)

// handle is a handler in a process of its own: it watches an AWSMachine, prints the id of each event, and reports it
// after a line of its standard input, when its work is done. It returns the exit code.
func handle(name string) int {
	fail := func(err error) int {
		fmt.Println("failed:", err)
		return 1
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(handlerKubeconfig))
	if err != nil {
		return fail(err)
	}
	c, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	machines := &unstructured.UnstructuredList{}
	machines.SetAPIVersion(infra)
	machines.SetKind("AWSMachineList")
	changes, err := c.Watch(ctx, machines, client.InNamespace(os.Getenv("NAMESPACE")), client.MatchingFields{"metadata.name": os.Getenv(handlerMachine)})
	if err != nil {
		return fail(err)
	}
	work := bufio.NewReader(os.Stdin)
	last := ""
	for change := range changes.ResultChan() {
		m, is := change.Object.(*unstructured.Unstructured)
		if !is {
			return fail(fmt.Errorf("%v", change.Object))
		}
		e, err := instancestate.GetEventFromSQS(ctx, m)
		if err != nil || e.ID == last {
			continue
		}
		last = e.ID
		fmt.Println(e.ID)
		if _, err := work.ReadString('\n'); err != nil {
			return fail(err)
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{instancestate.AnnotationProcessed(name): e.ID}}})
		if err != nil {
			return fail(err)
		}
		if err := c.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return fail(err)
		}
	}
	return 0
}

// process of a handler.
type process struct {
	w    *world
	cmd  *exec.Cmd
	work io.Writer
	said *bufio.Reader
}

// handler starts the process of a handler of an AWSMachine.
func (w *world) handler(name string, m client.Object) *process {
	w.Helper()
	kubeconfig, err := w.plane.Get(w.TB).Kubeconfig("")
	w.g.Expect(err).NotTo(HaveOccurred())
	file := w.TempDir() + "/kubeconfig"
	w.g.Expect(os.WriteFile(file, kubeconfig, 0o600)).To(Succeed())
	p := &process{w: w, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), handlerName+"="+name, handlerKubeconfig+"="+file, "NAMESPACE="+w.namespace, handlerMachine+"="+m.GetName())
	in, err := p.cmd.StdinPipe()
	w.g.Expect(err).NotTo(HaveOccurred())
	out, err := p.cmd.StdoutPipe()
	w.g.Expect(err).NotTo(HaveOccurred())
	p.work, p.said = in, bufio.NewReader(out)
	w.g.Expect(p.cmd.Start()).To(Succeed())
	w.Cleanup(p.crash)
	return p
}

// got returns the id of the event that the handler has got next.
func (p *process) got() string {
	p.w.Helper()
	line, err := p.said.ReadString('\n')
	p.w.g.Expect(err).NotTo(HaveOccurred(), line)
	return line[:len(line)-1]
}

// done lets the handler report its event.
func (p *process) done() {
	p.w.Helper()
	_, err := io.WriteString(p.work, "done\n")
	p.w.g.Expect(err).NotTo(HaveOccurred())
}

// crash kills the process.
func (p *process) crash() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (w *world) deleted() int { return w.sqs.Stats(region, "events").Deleted }

// idOf returns the id of an event that was sent.
func idOf(g *WithT, body string) string {
	var e instancestate.EventBridgeEvent
	g.Expect(json.Unmarshal([]byte(body), &e)).To(Succeed())
	return e.ID
}

// Two handlers in processes of their own hold a message until both have done their work. One of them crashes before it
// reports, and begins again after its restart. The hub is killed meanwhile. The label does not wait, nothing is deleted
// early, and nothing is lost. The test steps the clock of SQS, so that messages with a delay are delivered again soon.
func TestHandlersInOtherProcesses(t *testing.T) {
	t.Parallel()
	clock := testclock.NewFakeClock(time.Now())
	w := newWorldAt(t, newest, clock)
	received := func() int {
		clock.Step(time.Second)
		return w.sqs.Stats(region, "events").Received
	}
	left := func() int {
		clock.Step(time.Second)
		s := w.sqs.Stats(region, "events")
		return s.Visible + s.InFlight + s.Delayed
	}
	w.usual()
	m := w.fleet(1)[0]
	w.events("handlers", []string{"dns", "drainer"}, "visibilityTimeout", 10)
	hub := w.start()
	waiting := func(more ...string) func() float64 {
		return func() float64 { return w.metric("handler_waiting_objects", more...) }
	}
	dns, drainer := w.handler("dns", m), w.handler("drainer", m)
	body := spot(instanceID(0), 0)
	w.send("events", body)
	id := idOf(w.g, body)
	w.awaits(m).Should(Equal("spot-interruption-terminate"))
	w.g.Expect(dns.got()).To(Equal(id))
	w.g.Expect(drainer.got()).To(Equal(id))

	var shown instancestate.Declaration
	w.g.Expect(json.Unmarshal([]byte(w.getIn(w.Client, m).GetAnnotations()[instancestate.AnnotationHandlers]), &shown)).To(Succeed())
	w.g.Expect(shown.Event).To(Equal(id))
	w.g.Expect(shown.Handlers).To(Equal([]string{"dns", "drainer"}))
	w.g.Expect(shown.Until).To(BeTemporally("~", time.Now().Add(5*time.Minute), time.Minute))
	w.g.Eventually(waiting()).Should(BeEquivalentTo(2))

	dns.done()
	w.g.Eventually(waiting()).Should(BeEquivalentTo(1))
	w.g.Expect(waiting("handler=drainer")()).To(BeEquivalentTo(1))
	drainer.crash()
	w.patch(m, `{"metadata":{"annotations":{"instancestate.capstan.dev/processed.other":"`+id+`"}}}`)
	before := received()
	w.g.Eventually(received).Should(BeNumerically(">", before+1))
	w.g.Expect(w.deleted()).To(BeZero(), "a handler that is not declared does not count")
	w.kill(hub)
	w.g.Expect(w.deleted()).To(BeZero())

	before = received()
	w.start()
	drainer = w.handler("drainer", m)
	w.g.Expect(drainer.got()).To(Equal(id))
	w.g.Eventually(received).Should(BeNumerically(">", before+1), "it is delivered again, and waits")
	w.g.Expect(w.deleted()).To(BeZero())
	drainer.done()
	w.g.Eventually(left).Should(BeZero())
	w.g.Expect(w.deleted()).To(Equal(1))
	w.g.Expect(w.sqs.Bodies(region, "dead")).To(BeEmpty())

	// A newer event takes the place of one that a handler has not reported: the message of the older one is deleted.
	older, newer := stateChange(instanceID(0), "shutting-down", 10), stateChange(instanceID(0), "terminated", 20)
	w.send("events", older)
	w.g.Expect(dns.got()).To(Equal(idOf(w.g, older)))
	w.send("events", newer)
	w.awaits(m).Should(Equal("terminated"))
	w.g.Eventually(func() int { received(); return w.deleted() }).Should(Equal(2))
	dns.done()
	w.g.Expect(dns.got()).To(Equal(idOf(w.g, newer)))
	w.g.Expect(w.deleted()).To(Equal(2))
	w.g.Expect(drainer.got()).To(BeElementOf(idOf(w.g, older), idOf(w.g, newer)))
	dns.done()
	for range 2 {
		drainer.done() // It may have got the older one first.
	}
	w.g.Eventually(left).Should(BeZero())
	w.g.Expect(w.deleted()).To(Equal(3))
}

// A handler that no process has does not keep a message for ever. The hub says which one did not report.
func TestUnknownHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.fleet(1)[0]
	w.events("handlers", []string{"drainr"}, "handlerTimeout", "10s")
	w.start()
	body := spot(instanceID(0), 0)
	begun := time.Now()
	w.send("events", body)
	w.awaits(m).Should(Equal("spot-interruption-terminate"))
	w.awaitsEmpty("events")
	w.g.Expect(time.Since(begun)).To(BeNumerically(">", 8*time.Second)) // Until is a whole second.
	w.g.Expect(w.metric("handler_timeouts_total", "handler=drainr")).To(BeEquivalentTo(1))
	w.awaitsEvents(m.GetName()).Should(ContainElement(And(
		HavePrefix("Warning HandlerTimeout no report of event "+idOf(w.g, body)+" by "), ContainSubstring("from the handlers drainr, and its message is deleted"))))
	w.g.Expect(w.sqs.Bodies(region, "dead")).To(BeEmpty())

	// The next event of a source without handlers removes the annotation.
	source := w.source("events")
	w.g.Expect(w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "events"}, source)).To(Succeed())
	for i := range source.Spec.Config {
		if _, is := source.Spec.Config[i]["handlers"]; is {
			source.Spec.Config = append(source.Spec.Config[:i], source.Spec.Config[i+1:]...)
			break
		}
	}
	w.g.Expect(w.Update(t.Context(), source)).To(Succeed())
	w.g.Eventually(func() map[string]string {
		w.send("events", stateChange(instanceID(0), "stopping", 10+int(time.Since(begun).Seconds())))
		return w.getIn(w.Client, m).GetAnnotations()
	}, patience, time.Second).ShouldNot(HaveKey(instancestate.AnnotationHandlers))
	w.awaitsEmpty("events")
}

// Handlers of this process and of others are awaited together, also for an object that is being deleted.
func TestHandlersOfBothKinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.machine("m", instanceID(0))
	m.SetFinalizers([]string{"example.org/wait"})
	w.create(m)
	w.events("handlers", []string{"dns"})
	r := w.prepare(false)
	woken := make(chan instancestate.Woken, 10)
	inside := r.Handle("cordoner", func(w instancestate.Woken) { woken <- w })
	r.run(w)
	body := spot(instanceID(0), 0)
	w.send("events", body)
	id := idOf(w.g, body)
	var first instancestate.Woken
	w.g.Eventually(woken).Should(Receive(&first))
	w.g.Expect(first.Object).To(HaveField("ObjectMeta.Name", m.GetName()))
	inside.Processed(first, id)
	w.g.Expect(w.Delete(t.Context(), m)).To(Succeed())
	w.g.Eventually(func() float64 { return w.metric("messages_total", "what=retried") }).Should(BeNumerically(">=", 2))
	w.g.Expect(w.deleted()).To(BeZero())
	w.patch(m, `{"metadata":{"annotations":{"`+instancestate.AnnotationProcessed("dns")+`":"`+id+`"}}}`)
	w.awaitsEmpty("events")
	w.patch(m, `{"metadata":{"finalizers":null}}`)
}
