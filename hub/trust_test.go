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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/aws/sts"
)

// Names of the forgery. The victim is in another namespace than the tenant.
const (
	forgedTenant, forgedVictim, forgedHub = "forged-tenant", "forged-victim", "forged-hub"
	forgedRegion, forgedAccount           = "eu-west-1", "123456789012"
	forgedRole                            = "arn:aws:iam::123456789012:role/of-another-team"
)

// forger is a tenant with all rights in one namespace of a management cluster, and a queue.
type forger struct {
	*testing.T
	g      *WithT
	config *rest.Config
	// admin of the management cluster, and the tenant.
	admin, tenant client.Client
	cloud         *aws.Server
	queues        *sqs.Service
	machine       *unstructured.Unstructured
	owner         *unstructured.Unstructured
}

func newForger(t *testing.T) *forger {
	t.Helper()
	f := &forger{T: t, g: NewWithT(t), config: withAWS.Get(t).Config()}
	f.g.SetDefaultEventuallyTimeout(eventsLimit)
	var err error
	f.admin, err = client.New(f.config, client.Options{Scheme: hub.Scheme()})
	f.g.Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{forgedTenant, forgedVictim, forgedHub} {
		f.g.Expect(f.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	f.g.Expect(f.admin.Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: forgedTenant, Name: "owner"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	})).To(Succeed())
	f.g.Expect(f.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: forgedTenant, Name: "owner"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "owner"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "mallory"}},
	})).To(Succeed())
	as := rest.CopyConfig(f.config)
	as.Impersonate.UserName = "mallory"
	f.tenant, err = client.New(as, client.Options{Scheme: hub.Scheme()})
	f.g.Expect(err).NotTo(HaveOccurred())

	f.queues = sqs.New(sqs.Options{Seed: 1})
	f.cloud, err = aws.Start(aws.Options{Services: []aws.Service{f.queues, sts.New(sts.Role{ARN: forgedRole})}})
	f.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(f.cloud.Stop)
	for name, value := range f.cloud.Env() {
		t.Setenv(name, value)
	}
	calls := api.New(api.Options{
		Region: forgedRegion, BaseEndpoint: sdk.String(f.cloud.URL()),
		Credentials: credentials.NewStaticCredentialsProvider(aws.AccessKeyID, aws.SecretAccessKey, ""),
	})
	for _, name := range []string{"forged", "sink", "trusted"} {
		_, err = calls.CreateQueue(t.Context(), &api.CreateQueueInput{QueueName: sdk.String(name)})
		f.g.Expect(err).NotTo(HaveOccurred())
	}

	const infrastructure = "infrastructure.cluster.x-k8s.io"
	f.create(forgedVictim, infrastructure+"/v1beta2", "AWSCluster", "c", map[string]any{"region": forgedRegion}, nil)
	f.create(forgedVictim, "cluster.x-k8s.io/v1beta2", "Cluster", "c", map[string]any{"infrastructureRef": map[string]any{"apiGroup": infrastructure, "kind": "AWSCluster", "name": "c"}}, nil)
	f.owner = f.create(forgedVictim, "cluster.x-k8s.io/v1beta2", "Machine", "m", map[string]any{
		"clusterName": "c", "bootstrap": map[string]any{"dataSecretName": "x"}, "infrastructureRef": map[string]any{"apiGroup": infrastructure, "kind": "AWSMachine", "name": "m"},
	}, nil)
	f.machine = f.create(forgedVictim, infrastructure+"/v1beta2", "AWSMachine", "m", map[string]any{"instanceType": "m5.large", "instanceID": "i-00000000000000001"},
		[]metav1.OwnerReference{{APIVersion: f.owner.GetAPIVersion(), Kind: "Machine", Name: "m", UID: f.owner.GetUID()}})
	f.create(forgedVictim, infrastructure+"/v1beta2", "AWSMachine", "other", map[string]any{"instanceType": "m5.large", "instanceID": "i-00000000000000002"}, nil)
	return f
}

func (f *forger) create(namespace, apiVersion, kind, name string, spec map[string]any, owners []metav1.OwnerReference) *unstructured.Unstructured {
	f.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "c"})
	u.SetOwnerReferences(owners)
	f.g.Expect(f.admin.Create(f.Context(), u)).To(Succeed())
	return u
}

// declare an EventingBackend of type sqs.
func (f *forger) declare(as client.Client, namespace, name string, config map[string]any) {
	f.Helper()
	b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: eventingv1.EventingBackendSpec{Type: "sqs"}}
	var err error
	b.Spec.Config, err = eventingv1.NewConfig(config)
	f.g.Expect(err).NotTo(HaveOccurred())
	f.g.Expect(as.Create(f.Context(), b)).To(Succeed())
}

// start a hub, which the returned function stops.
func (f *forger) start(trusted hub.Eventing) (stop func()) {
	f.Helper()
	loaded, err := awsconfig.Load(f.Context(), awsconfig.Options{})
	f.g.Expect(err).NotTo(HaveOccurred())
	trusted.AllowLoopback = true
	h, err := hub.New(hub.Options{
		Config: f.config, AWS: loaded, Registerer: prometheus.NewRegistry(), Logger: logr.Discard(), AllowLoopback: true, Eventing: trusted,
	})
	f.g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Start(ctx) }()
	return func() {
		cancel()
		f.g.Eventually(ended).Should(Receive(BeNil()))
		loaded.Close()
	}
}

// message that an instance was terminated.
func (f *forger) terminated(queue, id string) {
	f.g.Expect(f.queues.Put(forgedRegion, queue, fmt.Sprintf(
		`{"version":"0","id":"e-%s","source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","account":%q,"region":%q,
		"time":"2026-01-10T10:00:00Z","resources":[],"detail":{"instance-id":%q,"state":"terminated"}}`, id, forgedAccount, forgedRegion, id))).To(BeNil())
}

// ready returns the condition Ready of an EventingBackend as "status message".
func (f *forger) ready(namespace, name string) func() string {
	return func() string {
		b := &eventingv1.EventingBackend{}
		f.g.Expect(f.admin.Get(f.Context(), client.ObjectKey{Namespace: namespace, Name: name}, b)).To(Succeed())
		for _, c := range b.Status.Conditions {
			if c.Type == eventingv1.ReadyCondition {
				return string(c.Status) + " " + c.Message
			}
		}
		return ""
	}
}

// seen returns the label of an AWSMachine of the victim, and whether its Machine is annotated.
func (f *forger) seen(name string) func() string {
	return func() string {
		m := f.machine.DeepCopy()
		f.g.Expect(f.admin.Get(f.Context(), client.ObjectKey{Namespace: forgedVictim, Name: name}, m)).To(Succeed())
		f.g.Expect(f.admin.Get(f.Context(), client.ObjectKeyFromObject(f.owner), f.owner)).To(Succeed())
		_, remediated := f.owner.GetAnnotations()[clusterv1.RemediateMachineAnnotation]
		return fmt.Sprintf("%q %t", m.GetLabels()[instancestate.LabelEC2], remediated)
	}
}

// A tenant declares queues in its own namespace: with forged events, and with the role of another
// team. The hub reads none of them, writes to none, and assumes no role, until its administrator
// names the namespace. Then the same objects do all of it.
func TestForgery(t *testing.T) {
	f := newForger(t)
	f.declare(f.tenant, forgedTenant, "forged", map[string]any{
		"role": "source", "queueName": "forged", "region": forgedRegion, "waitTimeSeconds": 1, "accounts": []string{forgedAccount}, "remediate": []string{"terminated"},
	})
	f.declare(f.tenant, forgedTenant, "role", map[string]any{"role": "source", "queueName": "trusted", "region": forgedRegion, "waitTimeSeconds": 1, "roleArn": forgedRole})
	f.declare(f.tenant, forgedTenant, "sink", map[string]any{"queueName": "sink", "region": forgedRegion, "roleArn": forgedRole})
	f.declare(f.admin, forgedHub, "trusted", map[string]any{"role": "source", "queueName": "trusted", "region": forgedRegion, "waitTimeSeconds": 1, "accounts": []string{forgedAccount}})
	f.terminated("forged", "i-00000000000000001")
	ofRole := func() int { return f.cloud.Count(aws.Match{Service: "sts"}) }

	stop := f.start(hub.Eventing{SQSSourceNamespaces: []string{forgedHub}, SQSSinkNamespaces: []string{forgedHub}})
	for _, name := range []string{"forged", "role"} {
		f.g.Eventually(f.ready(forgedTenant, name)).Should(Equal("False role: must not be source in namespace " + forgedTenant +
			": it uses the AWS credentials of the hub, which --sqs-source-namespaces allows only in " + forgedHub))
	}
	f.g.Eventually(f.ready(forgedTenant, "sink")).Should(Equal("False role: must not be sink in namespace " + forgedTenant +
		": it uses the AWS credentials of the hub, which --sqs-sink-namespaces allows only in " + forgedHub))
	// The trusted queue is read meanwhile.
	f.terminated("trusted", "i-00000000000000002")
	f.g.Eventually(f.seen("other")).Should(Equal(`"terminated" false`))
	stop()
	f.g.Expect(f.seen("m")()).To(Equal(`"" false`))
	f.g.Expect(f.queues.Stats(forgedRegion, "forged").Received).To(BeZero())
	f.g.Expect(f.queues.Bodies(forgedRegion, "sink")).To(BeEmpty())
	f.g.Expect(ofRole()).To(BeZero())

	f.g.Expect(f.tenant.Delete(t.Context(), &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: forgedTenant, Name: "role"}})).To(Succeed())
	stop = f.start(hub.Eventing{SQSSourceNamespaces: []string{"*"}, SQSSinkNamespaces: []string{forgedTenant}})
	f.g.Eventually(f.seen("m")).Should(Equal(`"terminated" true`), "the control: the namespace is trusted")
	f.g.Eventually(ofRole).WithPolling(50 * time.Millisecond).ShouldNot(BeZero())
	stop()
}
