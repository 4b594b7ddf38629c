package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/cmd/capstan/awsset"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/aws"
)

// readyWithin is how long a hub may take to read a queue, on a busy machine.
const readyWithin = 2 * time.Minute

// withHub starts a management cluster and a hub for the cloud, and returns the client and the
// namespace of its EventingBackends.
func (c *cloud) withHub() (client.Client, string) {
	c.t.Helper()
	const namespace = "capstan-aws"
	plane := management.Get(c.t)
	raw, err := plane.Kubeconfig("")
	c.Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(c.t.TempDir(), "kubeconfig")
	c.Expect(os.WriteFile(kubeconfig, raw, 0o600)).To(Succeed())
	c.t.Setenv("KUBECONFIG", kubeconfig)
	k, err := client.New(plane.Config(), client.Options{Scheme: hub.Scheme()})
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(client.IgnoreAlreadyExists(k.Create(c.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))).To(Succeed())
	p := start(c.t, kubeconfig, "--namespace="+namespace, "--sqs-source-namespaces="+namespace)
	c.Eventually(p.ready, time.Minute, 50*time.Millisecond).Should(Succeed())
	return k, namespace
}

// reads creates the EventingBackend of a queue, and waits until the hub reads it.
func (c *cloud) reads(k client.Client, namespace, region string, more ...eventingv1.ConfigEntry) *eventingv1.EventingBackend {
	c.t.Helper()
	value := func(text string) eventingv1.ConfigValue {
		return eventingv1.ConfigValue{Raw: fmt.Appendf(nil, "%q", text)}
	}
	b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "instances-" + region}}
	b.Spec.Type = "sqs"
	b.Spec.Config = append([]eventingv1.ConfigEntry{
		{"role": value("source")}, {"queueName": value("capstan")}, {"region": value(region)}, {"queueOwnerAccountId": value(queueAccount)},
		{"waitTimeSeconds": eventingv1.ConfigValue{Raw: []byte("1")}},
	}, more...)
	c.Expect(k.Create(c.t.Context(), b)).To(Succeed())
	c.t.Cleanup(func() { _ = k.Delete(context.Background(), b) })
	c.Eventually(func() string {
		c.Expect(k.Get(c.t.Context(), client.ObjectKeyFromObject(b), b)).To(Succeed())
		if ready := b.Status.EventingReady; ready != nil && *ready {
			return ""
		}
		return fmt.Sprintf("%v %v", b.Status.Conditions, b.Status.ValidationErrors)
	}, readyWithin, 100*time.Millisecond).Should(BeEmpty())
	return b
}

// The test events of two accounts and two regions reach the hub, through rules, roles and policies
// that apply has created.
func TestAWSEventingSeenByTheHub(t *testing.T) {
	c := newCloud(t)
	k, namespace := c.withHub()
	set := []string{"--regions=" + twoRegions, "--hub-role=capstan-hub", "--members=" + memberAccount, "--member-role=admin"}
	c.succeeds(append([]string{"apply", "--yes"}, set...)...)

	out := c.fails(append([]string{"check"}, set...)...)
	c.Expect(out).To(And(MatchRegexp("test event +missing +no EventingBackend of the management cluster reads the queue"),
		ContainSubstring("- queueUrl: https://sqs.us-east-1.amazonaws.com/"+queueAccount+"/capstan"), ContainSubstring("Error: 4 of 58 items are not ok")))
	for _, region := range strings.Split(twoRegions, ",") {
		c.reads(k, namespace, region)
	}
	out = c.succeeds(append([]string{"check"}, set...)...)
	c.Expect(strings.Count(out, "by EventingBackend "+namespace+"/instances-")).To(Equal(4), out)
	c.Expect(out).To(MatchRegexp(memberAccount + ` +us-east-1 +test event +ok +received after [0-9.m]+s`))

	c.Expect(c.fails(append([]string{"delete", "--yes"}, set...)...)).To(ContainSubstring("EventingBackend " + namespace + "/instances-us-east-1 reads the queue"))
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(HaveLen(1))
	c.succeeds(append([]string{"delete", "--yes", "--force"}, set...)...)
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(BeEmpty())
}

// Where a test event stops.
func TestAWSEventingNotSeenByTheHub(t *testing.T) {
	c := newCloud(t)
	k, namespace := c.withHub()
	set := []string{"--regions=" + oneRegion, "--members=" + memberAccount, "--member-role=admin"}
	c.succeeds(append([]string{"apply", "--yes"}, set...)...)
	b := c.reads(k, namespace, oneRegion, eventingv1.ConfigEntry{"accounts": {Raw: []byte(`["` + queueAccount + `"]`)}})

	found := c.bad(set...)
	c.Expect(found).To(HaveLen(1))
	c.Expect(found[awsset.ItemTest]).To(And(HaveField("Account", memberAccount), HaveField("State", awsset.Wrong), HaveField("Problem", ContainSubstring("accounts does not list "+memberAccount))))

	restore := c.server.Inject(aws.Rule{Match: aws.Match{Service: "events", Action: "PutEvents"}, Deny: true})
	c.Expect(c.bad("--regions=" + oneRegion)[awsset.ItemTest]).To(And(HaveField("State", awsset.Refused), HaveField("Fix", ContainSubstring("allow events:PutEvents on "))))
	restore()

	// The policy of the queue is replaced: the events become dead letters.
	queues := sqsapi.NewFromConfig(c.config(aws.Root(), oneRegion))
	url, err := queues.GetQueueUrl(t.Context(), &sqsapi.GetQueueUrlInput{QueueName: sdk.String("capstan")})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = queues.SetQueueAttributes(t.Context(), &sqsapi.SetQueueAttributesInput{QueueUrl: url.QueueUrl, Attributes: map[string]string{
		"Policy": fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Sid":"Other","Effect":"Allow","Principal":{"AWS":"999900001111"},"Action":"sqs:SendMessage","Resource":"arn:aws:sqs:eu-west-1:%s:capstan"}]}`, queueAccount),
	}})
	c.Expect(err).NotTo(HaveOccurred())
	found = c.bad("--regions="+oneRegion, "--wait=3s")
	c.Expect(found).To(HaveKeyWithValue("queue capstan policy", HaveField("State", awsset.Wrong)))
	c.Expect(found[awsset.ItemTest]).To(And(HaveField("State", awsset.Missing), HaveField("Problem", ContainSubstring("it is in capstan-dead, NO_PERMISSIONS"))))
	found = c.bad(append(set, "--wait=3s")...)
	c.Expect(found[awsset.ItemTest].Problem).To(ContainSubstring("it is in capstan-undelivered, NO_PERMISSIONS"))
	c.Expect(found).To(HaveKeyWithValue("queue capstan-dead messages", HaveField("Problem", ContainSubstring("dead letters"))))

	// A backend that the hub does not read.
	c.Expect(k.Delete(t.Context(), b)).To(Succeed())
	other := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "elsewhere"}}
	other.Spec.Type, other.Spec.Config = "sqs", b.Spec.Config
	c.Expect(k.Create(t.Context(), other)).To(Succeed())
	t.Cleanup(func() { _ = k.Delete(context.Background(), other) })
	found = c.bad("--regions="+oneRegion, "--wait=1s", "-n="+metav1.NamespaceDefault)
	c.Expect(found[awsset.ItemTest].Fix).NotTo(BeEmpty())
}
