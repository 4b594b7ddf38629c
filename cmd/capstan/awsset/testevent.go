package awsset

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// ItemTest is the item of the test event.
const ItemTest = "test event"

// Hub is the management cluster, in which the status of EventingBackends shows what the hub received.
type Hub struct {
	// Reader of EventingBackends; nil if there is none, with the Reason.
	Reader client.Reader
	Reason string
	// Namespace of the EventingBackends; all when empty.
	Namespace string
}

// Reading is a Target or an Inventory.
type Reading interface {
	Reads(b *eventingv1.EventingBackend) bool
}

// Backends returns the EventingBackends that read a queue of a Target or of an Inventory.
func (h Hub) Backends(ctx context.Context, of Reading) ([]eventingv1.EventingBackend, error) {
	if h.Reader == nil {
		return nil, errors.New(h.Reason)
	}
	var list eventingv1.EventingBackendList
	if err := h.Reader.List(ctx, &list, client.InNamespace(h.Namespace)); err != nil {
		return nil, fmt.Errorf("listing EventingBackends: %w", err)
	}
	var found []eventingv1.EventingBackend
	for i := range list.Items {
		if of.Reads(&list.Items[i]) {
			found = append(found, list.Items[i])
		}
	}
	return found, nil
}

// pollStatus is the interval at which the status of an EventingBackend is read.
const pollStatus = 500 * time.Millisecond

// TestEvent sends an event through EventBridge, and waits until the hub has received it.
func (t *Target) TestEvent(ctx context.Context, hub Hub, wait time.Duration) Row {
	row := Row{Account: t.Account, Region: t.Region, Item: ItemTest}
	backends, err := hub.Backends(ctx, t)
	if err != nil {
		row.State, row.Problem, row.Fix = Skipped, "the management cluster cannot be read: "+err.Error(), "set --kubeconfig or --context to those of the management cluster"
		return row
	}
	if len(backends) == 0 {
		row.State, row.Problem, row.Manifest = Missing, "no EventingBackend of the management cluster reads the queue", t.Manifest()
		row.Fix = "apply the EventingBackend below to the management cluster, with the namespace of the hub"
		return row
	}
	id := strings.ToLower(rand.Text())
	began := time.Now()
	if err := t.send(ctx, id); err != nil {
		var f *Failure
		if errors.As(err, &f) {
			return f.row(t, ItemTest)
		}
		row.State, row.Problem, row.Fix = Wrong, err.Error(), "check again"
		return row
	}
	deadline := began.Add(wait)
	for {
		for i := range backends {
			b := &backends[i]
			if d := b.Status.Delivery; d != nil && d.LastTest != nil && d.LastTest.ID == id {
				row.State, row.Problem = OK, fmt.Sprintf("received after %s by EventingBackend %s/%s", time.Since(began).Round(100*time.Millisecond), b.Namespace, b.Name)
				if d.LastTest.Note != "" {
					row.State, row.Problem, row.Fix = Wrong, row.Problem+"; "+d.LastTest.Note, "add "+t.Account+" to the key accounts of the EventingBackend"
				}
				return row
			}
		}
		select {
		case <-time.After(pollStatus):
		case <-ctx.Done():
			row.State, row.Problem, row.Fix = Skipped, "interrupted: "+ctx.Err().Error(), ""
			return row
		}
		if again, err := hub.Backends(ctx, t); err == nil {
			backends = again
		}
		if time.Now().After(deadline) {
			row.State = Missing
			row.Problem, row.Fix = t.lost(ctx, id, backends, wait)
			return row
		}
	}
}

// send puts the test event on the default bus of the account.
func (t *Target) send(ctx context.Context, id string) error {
	detail, err := json.Marshal(message.TestDetail{ID: id})
	if err != nil {
		return fmt.Errorf("encoding the test event: %w", err)
	}
	out, err := t.events.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: []eventtypes.PutEventsRequestEntry{{
		Source: aws.String(message.TestSource), DetailType: aws.String(message.TestDetailType), Detail: aws.String(string(detail)),
	}}})
	if err != nil {
		return t.failed(err, "events:PutEvents", "arn:"+t.Partition+":events:"+t.Region+":"+t.Account+":event-bus/default")
	}
	for _, entry := range out.Entries {
		if code := aws.ToString(entry.ErrorCode); code != "" {
			return fmt.Errorf("EventBridge did not accept the event: %s: %s", code, aws.ToString(entry.ErrorMessage))
		}
	}
	return nil
}

// lost says where a test event stopped, as far as it can be seen.
func (t *Target) lost(ctx context.Context, id string, backends []eventingv1.EventingBackend, wait time.Duration) (problem, fix string) {
	problem = fmt.Sprintf("the hub did not receive it within %s", wait)
	if set, err := t.set(nil); err == nil {
		for _, q := range set.Of(provision.TypeQueue) {
			if q.Name == t.options.name() {
				continue
			}
			if why := t.buried(ctx, q.Name, id); why != "" {
				return problem + ": it is in " + q.Name + ", " + why, t.options.command("apply", t)
			}
		}
	}
	for i := range backends {
		b := &backends[i]
		if ready := b.Status.EventingReady; ready == nil || !*ready {
			text := "it has no status: does the hub run, and does it serve the namespace?"
			for _, c := range b.Status.Conditions {
				if c.Status != "True" && c.Message != "" {
					text = c.Message
					break
				}
			}
			return fmt.Sprintf("%s: EventingBackend %s/%s is not ready: %s", problem, b.Namespace, b.Name, text), fmt.Sprintf("capstan explain eventingbackend %s -n %s", b.Name, b.Namespace)
		}
	}
	return problem + ": see the rows of the rules; the hub must be as new as this program", "capstan explain eventingbackend " + backends[0].Name + " -n " + backends[0].Namespace
}

// buried returns why EventBridge put an event into a dead-letter queue; empty if it is not there, or
// the queue cannot be read. The messages are hidden for a second.
func (t *Target) buried(ctx context.Context, queue, id string) string {
	url, err := t.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return ""
	}
	// The SDK does not send 0.
	const most, receives, hidden = 10, 5, 1
	for range receives {
		out, err := t.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url.QueueUrl, MaxNumberOfMessages: most, MessageAttributeNames: []string{"All"}, VisibilityTimeout: hidden})
		if err != nil {
			return ""
		}
		for _, m := range out.Messages {
			if strings.Contains(aws.ToString(m.Body), id) {
				code := m.MessageAttributes["ERROR_CODE"]
				text := m.MessageAttributes["ERROR_MESSAGE"]
				return strings.TrimSuffix(aws.ToString(code.StringValue)+": "+aws.ToString(text.StringValue), ": ")
			}
		}
	}
	return ""
}
