package bench

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	api "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

const (
	// instanceRegion and instanceAccount of all instances.
	instanceRegion, instanceAccount = "eu-west-1", "123456789012"
	// labelsAtLeast is the part of the bare rate that labels have to reach.
	labelsAtLeast = 0.8
)

// herd is a management cluster with AWSMachines, and a hub that follows their instances.
type herd struct {
	*testing.T
	herdOptions
	g        *WithT
	plane    *controlplane.ControlPlane
	c        client.Client
	machines metadata.ResourceInterface
	sqs      *sqs.Service
	// patches of AWSMachines that the hub has sent, if it is in this process.
	patches atomic.Int64
	// events and seconds so far, so that each is newer than the last.
	events, seconds int
}

// herdOptions are what a herd has.
type herdOptions struct {
	// many AWSMachines, each with so many bytes more than it needs.
	many, bytes int
	// groups are MachineDeployments, and queues are read; the events come from the first one.
	groups, queues int
}

func newHerd(t *testing.T, o herdOptions) *herd {
	t.Helper()
	h := &herd{T: t, g: NewWithT(t), herdOptions: o}
	h.g.SetDefaultEventuallyTimeout(10 * time.Minute)
	h.g.SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	var err error
	h.plane, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan", "cluster-api", "cluster-api-provider-aws")})
	h.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = h.plane.Stop() })
	config := h.plane.Config()
	config.QPS = -1
	h.c, err = client.New(config, client.Options{})
	h.g.Expect(err).NotTo(HaveOccurred())
	all, err := metadata.NewForConfig(config)
	h.g.Expect(err).NotTo(HaveOccurred())
	h.machines = all.Resource(schema.GroupVersionResource{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "awsmachines"}).Namespace(metav1.NamespaceDefault)

	h.sqs = sqs.New(sqs.Options{Seed: 1})
	cloud, err := aws.Start(aws.Options{Services: []aws.Service{h.sqs, ec2.New(instanceRegion)}})
	h.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(cloud.Stop)
	for name, value := range cloud.Env() {
		t.Setenv(name, value)
	}
	queues := api.New(api.Options{
		Region: instanceRegion, BaseEndpoint: sdk.String(cloud.URL()),
		Credentials: credentials.NewStaticCredentialsProvider(aws.AccessKeyID, aws.SecretAccessKey, ""),
	})
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	h.create(infrastructure+"/v1beta2", "AWSCluster", "c", map[string]any{"region": instanceRegion})
	h.create("cluster.x-k8s.io/v1beta2", "Cluster", "c", map[string]any{"infrastructureRef": map[string]any{"apiGroup": infrastructure, "kind": "AWSCluster", "name": "c"}})
	for i := range o.queues {
		name := queue(i)
		_, err = queues.CreateQueue(t.Context(), &api.CreateQueueInput{QueueName: sdk.String(name)})
		h.g.Expect(err).NotTo(HaveOccurred())
		h.create("eventing.kyma-project.io/v1alpha1", "EventingBackend", name, map[string]any{"type": "sqs", "config": []any{
			map[string]any{"role": "source"}, map[string]any{"queueName": name}, map[string]any{"region": instanceRegion},
			map[string]any{"accounts": []any{instanceAccount}},
		}})
	}
	h.parallel(o.many, func(i int) {
		h.create(infrastructure+"/v1beta2", "AWSMachine", machine(i), map[string]any{"instanceType": "m5.large", "instanceID": instance(i), "providerID": "aws:///eu-west-1a/" + instance(i)})
	})
	if o.groups > 0 {
		h.create(infrastructure+"/v1beta2", "AWSMachineTemplate", "t", map[string]any{"template": map[string]any{"spec": map[string]any{"instanceType": "m5.large"}}})
	}
	h.parallel(o.groups, func(i int) {
		h.create("cluster.x-k8s.io/v1beta2", "MachineDeployment", fmt.Sprintf("md-%d", i), map[string]any{
			"clusterName": "c", "replicas": int64(0), "selector": map[string]any{}, "template": map[string]any{"spec": map[string]any{
				"clusterName": "c", "bootstrap": map[string]any{"dataSecretName": "x"},
				"infrastructureRef": map[string]any{"apiGroup": infrastructure, "kind": "AWSMachineTemplate", "name": "t"},
			}},
		})
	})
	return h
}

// queue is the name of a queue and of its EventingBackend; that of the events is the first.
func queue(i int) string {
	if i == 0 {
		return "events"
	}
	return fmt.Sprintf("events-%d", i)
}

func machine(i int) string { return fmt.Sprintf("m-%d", i) }

func instance(i int) string { return fmt.Sprintf("i-%017x", i+1) }

func (h *herd) create(apiVersion, kind, name string, spec map[string]any) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(metav1.NamespaceDefault)
	u.SetName(name)
	u.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "c"})
	if h.bytes > 0 && kind == "AWSMachine" {
		u.SetAnnotations(map[string]string{"example.org/more": strings.Repeat("x", h.bytes)})
	}
	h.g.Expect(h.c.Create(h.Context(), u)).To(Succeed())
}

// parallel does something n times, so many at once as labels have workers.
func (*herd) parallel(n int, do func(int)) {
	var group sync.WaitGroup
	for p := range patchers {
		group.Go(func() {
			for i := p; i < n; i += patchers {
				do(i)
			}
		})
	}
	group.Wait()
}

// counted is the way of the hub's calls, whose patches of AWSMachines are counted.
type counted struct {
	h    *herd
	next http.RoundTripper
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && labelled(r.URL.Path) {
		c.h.patches.Add(1)
	}
	return c.next.RoundTrip(r)
}

func labelled(path string) bool {
	const machines = "/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/default/awsmachines/"
	return len(path) > len(machines) && path[:len(machines)] == machines
}

// start the whole hub, and wait until it reads the queue.
func (h *herd) start() {
	loaded, err := awsconfig.Load(h.Context(), awsconfig.Options{})
	h.g.Expect(err).NotTo(HaveOccurred())
	h.Cleanup(loaded.Close)
	config := h.plane.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{h, next} })
	made, err := hub.New(hub.Options{Config: config, Registerer: prometheus.NewRegistry(), Logger: logr.Discard(), AWS: loaded, AllowLoopback: true,
		Eventing: hub.Eventing{SQSSourceNamespaces: []string{metav1.NamespaceDefault}}})
	h.g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- made.Start(ctx) }()
	h.Cleanup(func() {
		cancel()
		h.g.Eventually(ended).Should(Receive(BeNil()))
	})
	h.change(0, "pending")
	h.drained(1)
}

// put messages into the queue, all newer than those before.
func (h *herd) put(bodies ...string) {
	h.g.Expect(h.sqs.Put(instanceRegion, "events", bodies...)).To(BeNil())
}

func (h *herd) change(i int, state string) { h.put(h.body(i, 2, state)) }

// body of a message on an instance: of Health, spot or a change of state, by kind.
func (h *herd) body(i, kind int, state string) string {
	h.events++
	at := time.Date(2026, 1, 10, 10, 0, h.seconds, 0, time.UTC).Format(time.RFC3339)
	envelope := `{"version":"0","id":"e-%d","source":%q,"detail-type":%q,"account":%q,"region":%q,"time":%q,"resources":[],"detail":%s}`
	id := instance(i)
	source, detailType, detail := "aws.ec2", "EC2 Instance State-change Notification", fmt.Sprintf(`{"instance-id":%q,"state":%q}`, id, state)
	switch kind {
	case 0:
		source, detailType = "aws.health", "AWS Health Event"
		detail = fmt.Sprintf(`{"service":"EC2","eventTypeCategory":"scheduledChange","eventTypeCode":"AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED",
			"communicationId":"c-%d","eventRegion":%q,"affectedAccount":%q,"startTime":"Wed, 21 Jan 2026 02:00:00 GMT","affectedEntities":[{"entityValue":%q}]}`,
			h.events, instanceRegion, instanceAccount, id)
	case 1:
		detailType, detail = "EC2 Spot Instance Interruption Warning", fmt.Sprintf(`{"instance-id":%q,"instance-action":"terminate"}`, id)
	}
	return fmt.Sprintf(envelope, h.events, source, detailType, instanceAccount, instanceRegion, at, detail)
}

// drained waits until so many messages were deleted since the start.
func (h *herd) drained(deleted int) {
	h.Helper()
	// Each look counts all that is in the queue, on the cores that are measured.
	pause := max(5*time.Millisecond, time.Duration(deleted-h.deleted())*10*time.Microsecond)
	h.g.Eventually(h.deleted).WithPolling(pause).Should(BeNumerically(">=", deleted))
}

func (h *herd) deleted() int { return h.sqs.Stats(instanceRegion, "events").Deleted }

// bare is the rate, in patches a second, of the least patch of the first n AWSMachines,
// by a client as labels are written by.
func (h *herd) bare(n int) float64 {
	began := time.Now()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench":"%d"}}}`, began.UnixNano())
	h.parallel(n, func(i int) {
		_, err := h.machines.Patch(h.Context(), machine(i), types.MergePatchType, patch, metav1.PatchOptions{})
		h.g.Expect(err).NotTo(HaveOccurred())
	})
	return float64(n) / time.Since(began).Seconds()
}

// TestInstances: bursts of messages over 5,000 AWSMachines, a third each of Health, spot
// and changes of state, beside the bare patches of the same objects before and after; a
// spot notice behind 5,000 changes of state; and labels at 100 messages a second.
func TestInstances(t *testing.T) {
	h := newHerd(t, herdOptions{many: count(60, 5000), queues: 1})
	h.start()
	h.burst(count(20, 100), 5)
	h.burst(count(40, 1000), 3)
	h.burst(count(60, 5000), 5)
	h.burst(count(180, 15_000), 1)
	h.notice(h.many)
	h.steady()
}

// TestManyMachines: a hub process with all its parts, in a management cluster with 50,000
// AWSMachines of 4 KiB and more, 5,000 MachineDeployments and 20 queues: its start, labels, a spot
// notice, and its memory.
func TestManyMachines(t *testing.T) {
	h := newHerd(t, herdOptions{many: count(300, 50_000), bytes: 3 << 10, groups: count(20, 5000), queues: count(3, 20)})
	raw, err := h.plane.Kubeconfig("")
	h.g.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(t.TempDir(), "kubeconfig")
	h.g.Expect(os.WriteFile(file, raw, 0o600)).To(Succeed())
	start := func() *hubProcess { return startHubOf(t, file, "default", "--sqs-source-namespaces=*") }

	p := start()
	h.g.Eventually(h.annotated).WithPolling(time.Second).Should(Equal(h.groups))
	deleted := h.deleted()
	h.change(0, "pending")
	h.drained(deleted + 1)
	p.stop()
	// Now all is annotated, as at most starts.
	h.seconds++
	h.change(0, "running")
	p = start()
	h.drained(deleted + 2)
	report(fmt.Sprintf("start with %d AWSMachines, %d MachineDeployments and %d queues, to the first label", h.many, h.groups, h.queues), time.Since(p.began).Seconds(), 30, "s")
	report("resident after the start", float64(p.cost().Resident)/(1<<20), 600, "MiB")
	h.burst(count(100, 15_000), 1)
	h.notice(count(100, 5000))
	c := p.cost()
	report("resident after the bursts", float64(c.Resident)/(1<<20), 600, "MiB")
	report("live heap and stacks for an AWSMachine", float64(c.Live)/float64(h.many)/1024, 8, "KiB")
}

// annotated is the number of MachineDeployments with capacity annotations.
func (h *herd) annotated() int {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachineDeploymentList"})
	h.g.Expect(h.c.List(h.Context(), list)).To(Succeed())
	n := 0
	for i := range list.Items {
		if _, has := list.Items[i].Annotations["capacity.cluster-autoscaler.kubernetes.io/cpu"]; has {
			n++
		}
	}
	return n
}

// burst of messages, so many times; the median counts.
func (h *herd) burst(messages, times int) {
	h.Helper()
	inProcess := h.patches.Load() > 0
	type run struct{ rate, patches, bare float64 }
	objects := min(messages, h.many)
	all := make([]run, times)
	before := h.bare(objects)
	for n := range all {
		bodies := make([]string, messages)
		for i := range bodies {
			if i%h.many == 0 {
				h.seconds++
			}
			bodies[i] = h.body(i%h.many, i%3, "running")
		}
		deleted, patched, began := h.deleted(), h.patches.Load(), time.Now()
		h.put(bodies...)
		h.drained(deleted + messages)
		took := time.Since(began).Seconds()
		patched = h.patches.Load() - patched
		if inProcess {
			h.g.Expect(patched).To(BeNumerically(">=", objects))
		}
		after := h.bare(objects)
		all[n] = run{float64(messages) / took, float64(patched) / took, (before + after) / 2}
		before = after
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Compare(a.rate/a.bare, b.rate/b.bare) })
	r, verdict := all[len(all)/2], "ok"
	if r.rate < labelsAtLeast*r.bare {
		verdict = "MISSED"
	}
	patches := ""
	if inProcess {
		patches = fmt.Sprintf(" %.0f patches/s,", r.patches)
	}
	fmt.Fprintf(os.Stderr, "| %d messages over %d machines, of the bare PATCH rate, median of %d (%.0f messages/s,%s of %.0f/s) | %.2f | ≥ %.1f | %s |\n",
		messages, objects, times, r.rate, patches, r.bare, r.rate/r.bare, labelsAtLeast, verdict)
}

// notice behind changes of state; both together are so many.
func (h *herd) notice(many int) {
	h.Helper()
	var took []time.Duration
	for range count(1, 5) {
		h.seconds++
		bodies := make([]string, many)
		for i := range bodies {
			bodies[i] = h.body(i, 2, "running")
		}
		bodies[many-1] = h.body(many-1, 1, "")
		deleted, began := h.deleted(), time.Now()
		h.put(bodies...)
		h.g.Eventually(func() string {
			m, err := h.machines.Get(h.Context(), machine(many-1), metav1.GetOptions{})
			h.g.Expect(err).NotTo(HaveOccurred())
			event, err := instancestate.GetEventFromSQS(h.Context(), m)
			h.g.Expect(err).NotTo(HaveOccurred())
			return event.ID
		}).Should(Equal(fmt.Sprintf("e-%d", h.events)))
		took = append(took, time.Since(began))
		h.drained(deleted + many)
	}
	slices.Sort(took)
	report(fmt.Sprintf("spot notice behind %d changes of state, median of %d", many-1, len(took)), took[len(took)/2].Seconds(), 1, "s")
	report("the same, slowest", took[len(took)-1].Seconds(), 1, "s")
}

// steady messages, each with a machine of its own, from the queue to the watch.
func (h *herd) steady() {
	h.Helper()
	const each = 10 * time.Millisecond
	n := count(60, 3000)
	h.seconds++
	list, err := h.machines.List(h.Context(), metav1.ListOptions{Limit: 1})
	h.g.Expect(err).NotTo(HaveOccurred())
	// From now on: to be sent all machines first would count as delay.
	watch, err := h.machines.Watch(h.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	h.g.Expect(err).NotTo(HaveOccurred())
	h.Cleanup(watch.Stop)
	deleted, first := h.deleted(), h.events+1
	var mu sync.Mutex
	sent := map[string]time.Time{}
	var took []float64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watch.ResultChan() {
			m, ok := e.Object.(*metav1.PartialObjectMetadata)
			if !ok {
				continue
			}
			event, err := instancestate.GetEventFromSQS(h.Context(), m)
			if err != nil {
				continue
			}
			mu.Lock()
			if at, waits := sent[event.ID]; waits {
				took = append(took, time.Since(at).Seconds()*1000)
				delete(sent, event.ID)
			}
			over := len(took) == n
			mu.Unlock()
			if over {
				return
			}
		}
	}()
	ticker := time.NewTicker(each)
	defer ticker.Stop()
	for i := range n {
		<-ticker.C
		body := h.body(i, 2, "stopping")
		mu.Lock()
		sent[fmt.Sprintf("e-%d", first+i)] = time.Now()
		mu.Unlock()
		h.put(body)
	}
	h.g.Eventually(done).Should(BeClosed())
	h.drained(deleted + n)
	slices.Sort(took)
	report("event → label at 100 messages/s, p50", took[len(took)/2], 250, "ms")
	report("the same, p99", took[len(took)*99/100], 250, "ms")
}
