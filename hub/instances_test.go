package hub_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	api "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// A whole hub follows instances: an EventingBackend is declared, a spot notice comes, the
// AWSMachine has its label and its Event. The message waits for a handler of the program that embeds the
// hub. A standby does as much, while no replica leads.
func TestFollowsInstances(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(2 * time.Minute)
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan", "cluster-api", "cluster-api-provider-aws")})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(plane.Stop()).To(Succeed()) })
	c, err := client.New(plane.Config(), client.Options{Scheme: hub.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	const region, account = "eu-west-1", "123456789012"
	queues := sqs.New(sqs.Options{Seed: 1})
	cloud, err := aws.Start(aws.Options{Services: []aws.Service{queues}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(cloud.Stop)
	for name, value := range cloud.Env() {
		t.Setenv(name, value)
	}
	_, err = api.New(api.Options{
		Region: region, BaseEndpoint: sdk.String(cloud.URL()),
		Credentials: credentials.NewStaticCredentialsProvider(aws.AccessKeyID, aws.SecretAccessKey, ""),
	}).CreateQueue(t.Context(), &api.CreateQueueInput{QueueName: sdk.String("events")})
	g.Expect(err).NotTo(HaveOccurred())

	create := func(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
		u.SetNamespace(metav1.NamespaceDefault)
		u.SetName(name)
		u.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "c"})
		g.Expect(c.Create(t.Context(), u)).To(Succeed())
		return u
	}
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	create(infrastructure+"/v1beta2", "AWSCluster", "c", map[string]any{"region": region})
	create("cluster.x-k8s.io/v1beta2", "Cluster", "c", map[string]any{"infrastructureRef": map[string]any{"apiGroup": infrastructure, "kind": "AWSCluster", "name": "c"}})
	create("eventing.kyma-project.io/v1alpha1", "EventingBackend", "events", map[string]any{"type": "sqs", "config": []any{
		map[string]any{"role": "source"}, map[string]any{"queueName": "events"}, map[string]any{"region": region},
		map[string]any{"accounts": []any{account}}, map[string]any{"waitTimeSeconds": 1},
	}})
	const leader, standby = "i-00000000000000001", "i-00000000000000002"
	machines := map[string]*unstructured.Unstructured{}
	for name, id := range map[string]string{"leader": leader, "standby": standby} {
		machines[name] = create(infrastructure+"/v1beta2", "AWSMachine", name, map[string]any{"instanceType": "m5.large", "instanceID": id})
	}
	notice := func(id string) {
		g.Expect(queues.Put(region, "events", fmt.Sprintf(
			`{"version":"0","id":"e-%s","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","account":%q,"region":%q,
			"time":"2026-01-10T10:00:00Z","resources":[],"detail":{"instance-id":%q,"instance-action":"terminate"}}`, id, account, region, id))).To(BeNil())
	}
	start := func(o hub.Options) func() {
		loaded, err := awsconfig.Load(t.Context(), awsconfig.Options{})
		g.Expect(err).NotTo(HaveOccurred())
		o.Config, o.AWS, o.Registerer, o.Logger, o.AllowLoopback = plane.Config(), loaded, prometheus.NewRegistry(), logr.Discard(), true
		o.Eventing.SQSSourceNamespaces = []string{metav1.NamespaceDefault}
		made, err := hub.New(o)
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- made.Start(ctx) }()
		return func() {
			cancel()
			g.Eventually(ended).Should(Receive(BeNil()))
			loaded.Close()
		}
	}
	labelled := func(name string) {
		t.Helper()
		g.Eventually(func() string {
			m := machines[name]
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(m), m)).To(Succeed())
			return m.GetLabels()[instancestate.LabelEC2]
		}).Should(Equal("spot-interruption-terminate"))
		g.Eventually(func() []string {
			var list eventsv1.EventList
			g.Expect(c.List(t.Context(), &list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
			var all []string
			for _, e := range list.Items {
				if e.Regarding.Name == name && e.Regarding.Kind == "AWSMachine" {
					all = append(all, e.Type+" "+e.Reason)
				}
			}
			return all
		}).Should(ConsistOf("Warning SpotInterruption"))
		g.Eventually(func() []string { return queues.Bodies(region, "events") }).Should(BeEmpty())
	}

	woken := make(chan func(), 10)
	stop := start(hub.Options{Handlers: []func(*instancestate.Labeler) error{func(l *instancestate.Labeler) error {
		var handler *instancestate.Handler
		handler = l.Handle("drainer", func(w instancestate.Woken) { woken <- func() { handler.Processed(w, "e-"+leader) } })
		return nil
	}}})
	notice(leader)
	var report func()
	g.Eventually(woken).Should(Receive(&report))
	g.Consistently(func() []string { return queues.Bodies(region, "events") }, "300ms").ShouldNot(BeEmpty())
	report()
	labelled("leader")
	g.Eventually(func() string {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "eventing.kyma-project.io/v1alpha1", "kind": "EventingBackend"}}
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "events"}, u)).To(Succeed())
		ready, _, _ := unstructured.NestedBool(u.Object, "status", "eventingReady")
		return fmt.Sprint(ready)
	}).Should(Equal("true"))
	stop()

	// Another process has the lease, and does nothing.
	holdLease(t, g, c)
	stop = start(hub.Options{LeaderElect: true, LeaderElectionNamespace: metav1.NamespaceDefault})
	notice(standby)
	labelled("standby")
	stop()
}

// holdLease as a leader that is no more.
func holdLease(t *testing.T, g *WithT, c client.Client) {
	t.Helper()
	holder, seconds, now := "somebody", int32(3600), metav1.NowMicro()
	g.Expect(c.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: hub.LeaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	})).To(Succeed())
}
