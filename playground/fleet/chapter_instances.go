package fleet

import (
	"context"
	"fmt"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

const (
	// instanceQueue has AWS's events of instances. On AWS, `capstan aws-eventing print` makes
	// the queue and the rules that fill it.
	instanceQueue = "capstan"
	// spotMachine is a spot instance of dev.
	spotMachine  = "spot"
	spotInstance = "i-0123456789abcdef0"
	// stateLabel is the label that the hub writes.
	stateLabel = "ec2-instance-state"

	spotState  = "spot-interruption-terminate"
	spotReason = "SpotInterruption"
)

// instanceChapter starts a spot instance, which then gets an interruption notice.
type instanceChapter struct {
	management *management
	cloud      *cloud
}

func (c instanceChapter) play(ctx context.Context, s *stage) error {
	for _, obj := range []client.Object{c.source(), awsMachine(spotMachine, spotInstance)} {
		if err := c.management.Create(ctx, obj); err != nil {
			return fmt.Errorf("declaring %s: %w", obj.GetName(), err)
		}
	}
	s.note("AWSMachine %s of %s stands for %s; EventingBackend %s names the queue", spotMachine, dev, spotInstance, instanceQueue)
	if err := s.await(ctx, "the EventingBackend is ready: the queue is read", c.sourceReady); err != nil {
		return err
	}
	if err := c.cloud.publish(ctx, "EC2 Instance State-change Notification", map[string]string{"state": "running"}); err != nil {
		return err
	}
	if err := s.await(ctx, "the AWSMachine has "+stateLabel+"=running", c.machineHas("running")); err != nil {
		return err
	}
	if err := c.cloud.publish(ctx, "EC2 Spot Instance Interruption Warning", map[string]string{"instance-action": "terminate"}); err != nil {
		return err
	}
	s.note("EC2 gives a notice of two minutes")
	if err := s.await(ctx, "the AWSMachine has "+stateLabel+"="+spotState, c.machineHas(spotState)); err != nil {
		return err
	}
	if err := s.await(ctx, "an Event "+spotReason+" on it reports the notice", func(ctx context.Context) error {
		event, err := c.spotEvent(ctx)
		if err == nil {
			s.note("%s %s: %s", event.Type, event.Reason, event.Note)
		}
		return err
	}); err != nil {
		return err
	}
	return s.await(ctx, "the queue is empty: each message was deleted, after its label was written", func(context.Context) error {
		stats := c.cloud.queues.Stats(region, instanceQueue)
		if stats.Deleted != stats.Sent || stats.Visible+stats.InFlight+stats.Delayed > 0 {
			return fmt.Errorf("of %d messages %d were deleted", stats.Sent, stats.Deleted)
		}
		return nil
	})
}

// source is the queue, as users declare it.
func (c instanceChapter) source() *eventingv1.EventingBackend {
	text := func(key, value string) eventingv1.ConfigEntry {
		return eventingv1.ConfigEntry{key: {Raw: fmt.Appendf(nil, "%q", value)}}
	}
	return &eventingv1.EventingBackend{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: hubNamespace, Name: instanceQueue,
			Labels: map[string]string{eventingv1.BackendLabel: eventingv1.BackendLabelValue},
		},
		Spec: eventingv1.EventingBackendSpec{Type: "sqs", Config: []eventingv1.ConfigEntry{
			text("role", "source"), text("queueUrl", c.cloud.queueURL()), text("region", region),
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

func (c instanceChapter) sourceReady(ctx context.Context) error {
	backend := &eventingv1.EventingBackend{}
	if err := c.management.Get(ctx, client.ObjectKey{Namespace: hubNamespace, Name: instanceQueue}, backend); err != nil {
		return err
	}
	if !ptr.Deref(backend.Status.EventingReady, false) {
		return fmt.Errorf("EventingBackend %s is not ready: %+v", instanceQueue, backend.Status.Conditions)
	}
	return nil
}

// machineHas: the label of the AWSMachine has the value.
func (c instanceChapter) machineHas(state string) check {
	return func(ctx context.Context) error {
		machine := infrastructure("AWSMachine", spotMachine, nil)
		if err := c.management.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
			return err
		}
		if got := machine.GetLabels()[stateLabel]; got != state {
			return fmt.Errorf("AWSMachine %s has %s=%q", spotMachine, stateLabel, got)
		}
		return nil
	}
}

// spotEvent on the AWSMachine.
func (c instanceChapter) spotEvent(ctx context.Context) (*eventsv1.Event, error) {
	events := &eventsv1.EventList{}
	if err := c.management.List(ctx, events, client.InNamespace(fleetNamespace)); err != nil {
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
