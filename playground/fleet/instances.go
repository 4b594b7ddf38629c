package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
)

const (
	// instanceQueue has what AWS says of instances; in its place `capstan aws-eventing
	// print` would make one, and rules that fill it.
	instanceQueue = "capstan"
	// spotMachine is a spot instance of dev.
	spotMachine  = "spot"
	spotInstance = "i-0123456789abcdef0"
	// stateLabel is what the hub writes.
	stateLabel = "ec2-instance-state"

	spotWord   = "spot-interruption-terminate"
	spotReason = "SpotInterruption"
)

// spotNotice has a spot instance start, and EC2 take it away.
func (f *Fleet) spotNotice(ctx context.Context, s *stage) error {
	for _, obj := range []client.Object{f.instanceSource(), awsMachine(spotMachine, spotInstance)} {
		if err := f.client.Create(ctx, obj); err != nil {
			return fmt.Errorf("declaring %s: %w", obj.GetName(), err)
		}
	}
	s.note("AWSMachine %s of %s stands for %s; EventingBackend %s names the queue", spotMachine, dev, spotInstance, instanceQueue)
	if err := s.await(ctx, "the EventingBackend is ready: the queue is read", f.sourceReady); err != nil {
		return err
	}
	if err := f.happens(ctx, "EC2 Instance State-change Notification", map[string]string{"state": "running"}); err != nil {
		return err
	}
	if err := s.await(ctx, "the AWSMachine bears "+stateLabel+"=running", f.machineSays("running")); err != nil {
		return err
	}
	if err := f.happens(ctx, "EC2 Spot Instance Interruption Warning", map[string]string{"instance-action": "terminate"}); err != nil {
		return err
	}
	s.note("EC2 gives notice of two minutes")
	if err := s.await(ctx, "the AWSMachine bears "+stateLabel+"="+spotWord, f.machineSays(spotWord)); err != nil {
		return err
	}
	if err := s.await(ctx, "an Event "+spotReason+" on it tells people", func(ctx context.Context) error {
		event, err := f.spotEvent(ctx)
		if err == nil {
			s.note("%s %s: %s", event.Type, event.Reason, event.Note)
		}
		return err
	}); err != nil {
		return err
	}
	return s.await(ctx, "the queue is empty: each message was deleted, after its label was written", func(context.Context) error {
		stats := f.queues.Stats(region, instanceQueue)
		if stats.Deleted != stats.Sent || stats.Visible+stats.InFlight+stats.Delayed > 0 {
			return fmt.Errorf("of %d messages %d were deleted", stats.Sent, stats.Deleted)
		}
		return nil
	})
}

// instanceSource is the queue, as people declare it.
func (f *Fleet) instanceSource() *eventingv1.EventingBackend {
	text := func(key, value string) eventingv1.ConfigEntry {
		return eventingv1.ConfigEntry{key: {Raw: fmt.Appendf(nil, "%q", value)}}
	}
	return &eventingv1.EventingBackend{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: hubNamespace, Name: instanceQueue,
			Labels: map[string]string{eventingv1.BackendLabel: eventingv1.BackendLabelValue},
		},
		Spec: eventingv1.EventingBackendSpec{Type: "sqs", Config: []eventingv1.ConfigEntry{
			text("role", "source"), text("queueUrl", sqs.URL(f.aws, instanceQueue)), text("region", region),
		}},
	}
}

// awsMachine of dev, as Cluster API Provider AWS leaves it when the instance is there.
func awsMachine(name, instance string) client.Object {
	machine := infrastructure("AWSMachine", name, map[string]any{
		"instanceType": "m5.large", "instanceID": instance, "providerID": "aws:///" + region + "a/" + instance,
	})
	machine.SetLabels(map[string]string{clusterv1.ClusterNameLabel: dev})
	return machine
}

// happens is EC2: it has EventBridge put an event of the instance into the queue.
func (f *Fleet) happens(ctx context.Context, detailType string, detail map[string]string) error {
	now := time.Now().UTC()
	detail["instance-id"] = spotInstance
	body, err := json.Marshal(map[string]any{
		"version": "0", "id": fmt.Sprintf("playground-%d", now.UnixNano()), "source": "aws.ec2", "detail-type": detailType,
		"account": aws.Account, "region": region, "time": now.Format(time.RFC3339), "detail": detail,
		"resources": []string{"arn:aws:ec2:" + region + ":" + aws.Account + ":instance/" + spotInstance},
	})
	if err != nil {
		return err
	}
	_, err = f.sqs.SendMessage(ctx, &sdk.SendMessageInput{
		QueueUrl: ptr.To(sqs.URL(f.aws, instanceQueue)), MessageBody: ptr.To(string(body)),
	})
	if err != nil {
		return fmt.Errorf("sending an event: %w", err)
	}
	return nil
}

// createQueue for the events of instances.
func (f *Fleet) createQueue(ctx context.Context, config awssdk.Config) error {
	f.sqs = sdk.NewFromConfig(config)
	if _, err := f.sqs.CreateQueue(ctx, &sdk.CreateQueueInput{QueueName: ptr.To(instanceQueue)}); err != nil {
		return fmt.Errorf("creating queue %s: %w", instanceQueue, err)
	}
	return nil
}

func (f *Fleet) sourceReady(ctx context.Context) error {
	backend := &eventingv1.EventingBackend{}
	if err := f.client.Get(ctx, client.ObjectKey{Namespace: hubNamespace, Name: instanceQueue}, backend); err != nil {
		return err
	}
	if !ptr.Deref(backend.Status.EventingReady, false) {
		return fmt.Errorf("EventingBackend %s is not ready: %+v", instanceQueue, backend.Status.Conditions)
	}
	return nil
}

// machineSays: the label of the AWSMachine is the word.
func (f *Fleet) machineSays(word string) check {
	return func(ctx context.Context) error {
		machine := infrastructure("AWSMachine", spotMachine, nil)
		if err := f.client.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
			return err
		}
		if got := machine.GetLabels()[stateLabel]; got != word {
			return fmt.Errorf("AWSMachine %s bears %s=%q", spotMachine, stateLabel, got)
		}
		return nil
	}
}

// spotEvent on the AWSMachine.
func (f *Fleet) spotEvent(ctx context.Context) (*eventsv1.Event, error) {
	events := &eventsv1.EventList{}
	if err := f.client.List(ctx, events, client.InNamespace(fleetNamespace)); err != nil {
		return nil, err
	}
	var others []string
	for i := range events.Items {
		e := &events.Items[i]
		if e.Regarding.Kind != "AWSMachine" || e.Regarding.Name != spotMachine {
			continue
		}
		if e.Reason == spotReason {
			return e, nil
		}
		others = append(others, e.Reason)
	}
	return nil, fmt.Errorf("the Events on AWSMachine %s are: %s", spotMachine, strings.Join(others, ", "))
}
