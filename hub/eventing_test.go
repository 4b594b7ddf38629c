package hub_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/nats"
)

const (
	eventsRegion = "eu-west-1"
	eventsLimit  = 2 * time.Minute
)

// The whole hub: its flag's NATS makes the proposal's example ready, a queue that is read
// and one that is written to have their status from one writer, discovery answers, and
// what happens arrives.
func TestEventingInTheHub(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(eventsLimit)
	server, err := nats.Start(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Stop)
	queues := sqs.New(sqs.Options{Seed: 1})
	cloud, err := aws.Start(aws.Options{Services: []aws.Service{queues}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(cloud.Stop)
	for name, value := range cloud.Env() {
		t.Setenv(name, value)
	}
	cfg := withAWS.Get(t).Config()
	loaded, err := awsconfig.Load(t.Context(), awsconfig.Options{Attempts: 1})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(loaded.Close)
	c, err := client.New(cfg, client.Options{Scheme: hub.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	const ns = "eventing"
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).To(Succeed())
	for _, name := range []string{"in", "out"} {
		_, err := api.NewFromConfig(loaded.In(eventsRegion, awsconfig.Role{})).CreateQueue(t.Context(), &api.CreateQueueInput{QueueName: &name})
		g.Expect(err).NotTo(HaveOccurred())
	}
	address := freeAddress(g)

	registry := prometheus.NewRegistry()
	startHub(t, hub.Options{
		Config: cfg, Namespaces: []string{ns}, AWS: loaded, Registerer: registry, Logger: logr.Discard(),
		Eventing: hub.Eventing{
			NATSURL: server.URL(), APIBindAddress: address, APIURL: "http://hub.example.com", AllowLoopback: true,
			SQSSourceNamespaces: []string{ns}, SQSSinkNamespaces: []string{ns},
		},
	})

	declare := func(name, spec string) {
		b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		g.Expect(yaml.UnmarshalStrict([]byte(spec), &b.Spec)).To(Succeed())
		g.Expect(c.Create(t.Context(), b)).To(Succeed())
	}
	ready := func(name string) func() string {
		return func() string {
			b := &eventingv1.EventingBackend{}
			g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, b)).To(Succeed())
			if b.Status.EventingReady != nil && *b.Status.EventingReady {
				return "ready"
			}
			return fmt.Sprint(b.Status.Conditions)
		}
	}
	declare("any", "{type: nats, config: [{maxInFlightMessages: 10}]}")
	g.Eventually(ready("any")).Should(Equal("ready"))
	declare("in", `{type: sqs, config: [{role: source}, {queueName: in}, {region: eu-west-1}, {accounts: ["123456789012"]}]}`)
	declare("out", "{type: sqs, config: [{queueName: out}, {region: eu-west-1}]}")
	g.Eventually(ready("in")).Should(Equal("ready"))
	g.Eventually(ready("out")).Should(Equal("ready"))

	// An Event with a note that is too long for the API server is cut and recorded.
	unknown := make([]string, 100)
	for i := range unknown {
		unknown[i] = fmt.Sprintf("{wrong%d: x}", i)
	}
	declare("wrong", "{type: nats, config: ["+strings.Join(unknown, ", ")+"]}")
	g.Eventually(func() (notes []string) {
		var all eventsv1.EventList
		g.Expect(c.List(t.Context(), &all, client.InNamespace(ns))).To(Succeed())
		for _, e := range all.Items {
			if e.Regarding.Name == "wrong" {
				notes = append(notes, e.Note)
			}
		}
		return notes
	}).Should(ConsistOf(And(HavePrefix("wrong0: "), HaveSuffix("…"))))

	// The other backends get events about the readiness of a backend.
	subjects := func() []string {
		stored, err := server.Messages(t.Context(), "capstan")
		if err != nil {
			return nil
		}
		var all []string
		for _, m := range stored {
			var e struct{ Type, Subject, Source, DataSchema string }
			g.Expect(json.Unmarshal(m.Data, &e)).To(Succeed())
			g.Expect(e.Source).To(Equal("/hubs/capstan"))
			g.Expect(e.DataSchema).To(HavePrefix("http://hub.example.com/schemas/"))
			all = append(all, e.Type+" "+e.Subject)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	g.Eventually(subjects).Should(ContainElements(
		"dev.capstan.backend.ready.v1 eventingbackends/eventing/in", "dev.capstan.backend.ready.v1 eventingbackends/eventing/out"))
	g.Expect(subjects()).NotTo(ContainElement(HaveSuffix("eventingbackends/eventing/any")))
	g.Eventually(func() int { return queues.Stats(eventsRegion, "out").Visible }).Should(BeNumerically(">", 0))

	response, err := http.Get("http://" + address + "/backend")
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(body)).To(MatchJSON(`["nats","beb","sqs","http","flux","slack","msteams","commitstatus"]`))

	names := map[string]bool{}
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		names[f.GetName()] = true
	}
	for _, name := range []string{"capstan_eventing_backend_ready", "capstan_eventing_backlog", "capstan_eventing_publish_attempts_total"} {
		g.Expect(names).To(HaveKey(name))
	}
	http.DefaultClient.CloseIdleConnections()
}
