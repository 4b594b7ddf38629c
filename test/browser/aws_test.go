package browser

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	api "github.com/aws/aws-sdk-go-v2/service/sqs"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/aws/sts"
)

// Names in the simulation from which the hub receives events of instances.
const region, account, queueName, deadName = "us-east-1", "123456789012", "events", "dead"

// startAWS simulates SQS, with a queue and its dead-letter queue.
func startAWS() (stop func(), err error) {
	ctx := context.Background()
	world.sqs = sqs.New(sqs.Options{Seed: 1})
	simulated, err := aws.Start(aws.Options{Services: []aws.Service{world.sqs, sts.New(sts.Role{ARN: "arn:aws:iam::" + account + ":role/hub"})}})
	if err != nil {
		return nil, err
	}
	for name, value := range simulated.Env() {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	if world.aws, err = awsconfig.Load(ctx, awsconfig.Options{Attempts: 1}); err != nil {
		return nil, err
	}
	queues := api.New(api.Options{
		Region: region, BaseEndpoint: sdk.String(simulated.URL()), Credentials: credentials.NewStaticCredentialsProvider(aws.AccessKeyID, aws.SecretAccessKey, ""),
	})
	for _, queue := range []*api.CreateQueueInput{
		{QueueName: sdk.String(deadName)},
		{QueueName: sdk.String(queueName), Attributes: map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":20}`, sqs.ARN(region, deadName))}},
	} {
		made, err := queues.CreateQueue(ctx, queue)
		if err != nil {
			return nil, err
		}
		world.queueURL = *made.QueueUrl
	}
	return func() {
		world.aws.Close()
		simulated.Stop()
	}, nil
}

// infrastructure creates an object of Cluster API Provider AWS in the Cluster prod.
func infrastructure(t *testing.T, kind, name string, spec map[string]any) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	u.SetKind(kind)
	u.SetNamespace(fleetNamespace)
	u.SetName(name)
	u.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "prod"})
	temporary(t, u)
}

// backend creates an EventingBackend with this configuration, for which the hub reads a queue.
func backend(t *testing.T, name string, settings map[string]any) {
	t.Helper()
	g := NewWithT(t)
	b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: name}, Spec: eventingv1.EventingBackendSpec{Type: "sqs"}}
	var err error
	b.Spec.Config, err = eventingv1.NewConfig(settings)
	g.Expect(err).NotTo(HaveOccurred())
	temporary(t, b)
}

// instance is the id of the machine that onAWS creates.
const instance = "i-0123456789abcdef0"

// onAWS makes prod a cluster on AWS: a node group, a machine, the queue of its events, and
// a backend with an invalid configuration.
func onAWS(t *testing.T) {
	t.Helper()
	infrastructure(t, "AWSCluster", "prod", map[string]any{"region": region})
	infrastructure(t, "AWSMachine", "worker", map[string]any{"instanceType": "m5.large", "instanceID": instance, "providerID": "aws:///us-east-1a/" + instance})
	ref := clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AWSMachineTemplate", Name: "workers"}
	group := &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: "workers", Annotations: map[string]string{"capacity.cluster-autoscaler.kubernetes.io/cpu": "8", "machine.openshift.io/vCPU": "8"}},
		Spec: clusterv1.MachineDeploymentSpec{ClusterName: "prod", Replicas: sdk.Int32(3), Selector: metav1.LabelSelector{MatchLabels: map[string]string{"group": "workers"}}, Template: clusterv1.MachineTemplateSpec{
			ObjectMeta: clusterv1.ObjectMeta{Labels: map[string]string{"group": "workers"}},
			Spec:       clusterv1.MachineSpec{ClusterName: "prod", InfrastructureRef: ref, Bootstrap: clusterv1.Bootstrap{DataSecretName: sdk.String("none")}},
		}},
	}
	temporary(t, group)
	backend(t, "instances", map[string]any{"role": "source", "queueUrl": world.queueURL, "region": region, "accounts": []string{account}, "waitTimeSeconds": 1})
	backend(t, "broken", map[string]any{"role": "source", "queueUrl": world.queueURL, "region": region, "waitTimeSeconds": "ten", "foobar": 100})
}

var notices atomic.Int64

// interrupt sends a spot interruption notice for the instance.
func interrupt(t *testing.T) {
	t.Helper()
	notice := fmt.Sprintf(`{"version":"0","id":"e-%d","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","account":%q,"region":%q,"time":%q,"resources":[],"detail":{"instance-id":%q,"instance-action":"terminate"}}`,
		notices.Add(1), account, region, time.Now().UTC().Format(time.RFC3339), instance)
	NewWithT(t).Expect(world.sqs.Put(region, queueName, notice)).To(BeNil())
}

// temporary creates an object, which is deleted at the end of the test.
func temporary(t *testing.T, o client.Object) {
	t.Helper()
	NewWithT(t).Expect(world.admin.Create(t.Context(), o)).To(Succeed())
	t.Cleanup(func() {
		if err := world.admin.Delete(context.Background(), o); err != nil {
			t.Error(err)
		}
	})
}

// An open page shows a notice of AWS without being reloaded: on the machine, among the
// events of instances, and on the cluster. A backend with an invalid configuration shows
// the errors.
func TestInstancesAndBackends(t *testing.T) {
	onAWS(t)
	pipeline(t, "instances", "prod") // So that the hub connects to the cluster.
	b := newTab(t)
	b.signIn("/backends")
	b.Eventually(b.opened, patience).Should(And(
		ContainSubstring("fleet/broken"), ContainSubstring("Invalid"), ContainSubstring("foobar"), ContainSubstring("config does not exist for backend type sqs"),
		ContainSubstring("should be of type int"), ContainSubstring("fleet/instances"), ContainSubstring("Backend Ready")))

	b.open("/clusters/Cluster/fleet/prod")
	b.Eventually(b.main, patience).Should(And(ContainSubstring("worker"), ContainSubstring("No event yet"), ContainSubstring(instance),
		ContainSubstring("workers"), ContainSubstring("0 of 3"), ContainSubstring("cpu: 8")))
	b.do(kept())
	interrupt(t)
	b.Eventually(b.main, patience).Should(And(ContainSubstring("spot-interruption-terminate"), ContainSubstring("SpotInterruption"), ContainSubstring("1 of 1 machine")))
	b.Expect(eval[bool](b, `window.kept === true`)).To(BeTrue(), "it was not reloaded")

	b.open("/instances?state=spot-interruption-terminate")
	b.Eventually(b.main, patience).Should(And(ContainSubstring("fleet/worker"), ContainSubstring("fleet/prod"), ContainSubstring(instance)))
}
