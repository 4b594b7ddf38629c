package message

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Disposition of a message.
type Disposition string

// Dispositions.
const (
	// Apply the facts, then delete the message.
	Apply Disposition = "delete-after-apply"
	// Ignore and delete the message.
	Ignore Disposition = "delete-ignored"
	// DeadLetter what is malformed.
	DeadLetter Disposition = "dead-letter"
)

// Message is what a body says.
type Message struct {
	Kind        Kind
	Disposition Disposition
	// Reason, in one word, for a message that is ignored.
	Reason string
	// Event behind the facts. One that did not come from EventBridge is put in its form.
	Event EventBridgeEvent
	// Facts to apply; at least one when the disposition is Apply.
	Facts []Fact
	// Test says that the message is Auto Scaling's test of a new notification target.
	Test bool
}

// ErrMalformed is wrapped by every error of Decode: no reading of the body again will
// help.
var ErrMalformed = errors.New("malformed message")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMalformed, fmt.Errorf(format, args...))
}

const (
	// maxWraps is how many SNS envelopes may be around an event: a topic may feed one.
	maxWraps = 2
	// fromFuture is how far an event's time may be after SQS got it: clocks differ.
	fromFuture = 5 * time.Minute
	// firstYear of EC2.
	firstYear = 2006
	// What AWS names things by is short: ids are of 36 bytes, groups' names of 255 and ARNs
	// of 2,048 at most. All of it is kept in memory and in annotations.
	maxName, maxARN = 512, 2048
)

// Decode the body of a message that SQS got at a time.
func Decode(body []byte, sent time.Time) (Message, error) {
	d := decoder{sent: sent}
	m, err := d.decode(body, 0)
	if err != nil {
		return Message{Kind: Malformed, Disposition: DeadLetter}, err
	}
	if m.Disposition == "" {
		m.Disposition = Apply
	}
	return m, nil
}

type decoder struct {
	sent time.Time
}

func (d decoder) decode(body []byte, wraps int) (Message, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(body, &keys); err != nil {
		return Message{}, malformed("no JSON object: %w", err)
	}
	has := func(key string) bool { _, ok := keys[key]; return ok }
	switch {
	case has("Type") && has("TopicArn"):
		return d.unwrap(keys, wraps)
	case has("detail-type") || has("source"):
		return d.event(body)
	case has("LifecycleTransition") || has("Event"):
		return d.direct(body)
	}
	return Message{}, malformed("neither an event of EventBridge nor a notification of Auto Scaling or SNS")
}

// unwrap what SNS delivered.
func (d decoder) unwrap(keys map[string]json.RawMessage, wraps int) (Message, error) {
	var kind, inner string
	if err := json.Unmarshal(keys["Type"], &kind); err != nil {
		return Message{}, malformed("Type of SNS: %w", err)
	}
	switch kind {
	case "Notification":
	case "SubscriptionConfirmation", "UnsubscribeConfirmation":
		return ignore(Ignored, "sns-"+kind), nil
	default: // Reasons are counted by: they are not for senders to make up.
		return ignore(Ignored, "sns-other"), nil
	}
	if wraps == maxWraps {
		return Message{}, malformed("wrapped by SNS more than %d times", maxWraps)
	}
	if err := json.Unmarshal(keys["Message"], &inner); err != nil {
		return Message{}, malformed("Message of SNS: %w", err)
	}
	return d.decode([]byte(inner), wraps+1)
}

// event of EventBridge.
func (d decoder) event(body []byte) (Message, error) {
	var e EventBridgeEvent
	if err := json.Unmarshal(body, &e); err != nil {
		return Message{}, malformed("event of EventBridge: %w", err)
	}
	if e.Source == "" || e.DetailType == "" {
		return Message{}, malformed("event of EventBridge without source or detail-type")
	}
	if e.ID == "" {
		e.ID = digest(body)
	}
	m, err := d.facts(e)
	m.Event = e
	return m, err
}

// digest stands in for the id of what has none.
func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256-" + hex.EncodeToString(sum[:16])
}

func (d decoder) facts(e EventBridgeEvent) (Message, error) {
	read := readers[e.Source][e.DetailType]
	if read == nil {
		return ignore(Ignored, "detail-type"), nil
	}
	if len(e.Detail) == 0 || string(e.Detail) == "null" {
		return Message{}, malformed("event %s without detail", e.DetailType)
	}
	if err := short(e.Version, e.ID, e.Account, e.Time, e.Region); err != nil {
		return Message{}, err
	}
	for _, resource := range e.Resources {
		if len(resource) > maxARN {
			return Message{}, malformed("a resource of %d bytes", len(resource))
		}
	}
	return read(d, e)
}

// short is whether all of some names and ids are as short as AWS' are.
func short(names ...string) error {
	for _, name := range names {
		if len(name) > maxName {
			return malformed("a name or id of %d bytes", len(name))
		}
	}
	return nil
}

// readers of details, by source and detail-type.
var readers = map[string]map[string]func(decoder, EventBridgeEvent) (Message, error){
	"aws.ec2": {
		"EC2 Instance State-change Notification":                 decoder.stateChange,
		"EC2 Spot Instance Interruption Warning":                 decoder.spot,
		"EC2 Instance Rebalance Recommendation":                  decoder.rebalance,
		"EC2 Capacity Reservation Instance Interruption Warning": decoder.reservation,
	},
	"aws.health": {
		"AWS Health Event": decoder.health,
	},
	"aws.autoscaling": {
		detailLaunchHook:                      decoder.hook,
		detailTerminateHook:                   decoder.hook,
		"EC2 Instance Launch Successful":      decoder.activity,
		"EC2 Instance Launch Unsuccessful":    decoder.activity,
		"EC2 Instance Terminate Successful":   decoder.activity,
		"EC2 Instance Terminate Unsuccessful": decoder.activity,
	},
}

func ignore(kind Kind, reason string) Message {
	return Message{Kind: kind, Disposition: Ignore, Reason: reason}
}

func apply(facts ...Fact) Message {
	return Message{Kind: facts[0].Kind, Disposition: Apply, Facts: facts}
}

// fact of an event, as far as every event says it.
func (d decoder) fact(e EventBridgeEvent, kind Kind, word string, rank int) Fact {
	f := Fact{ID: e.ID, Kind: kind, Word: word, Rank: rank, Account: e.Account, Region: e.Region}
	f.Time, f.Guessed = d.time(e.Time)
	return f
}

// time of an event; that of SQS when it is missing, wrong, or in the future.
func (d decoder) time(text string) (at time.Time, guessed bool) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Year() < firstYear || !d.sent.IsZero() && at.After(d.sent.Add(fromFuture)) {
		return d.sent.UTC(), true
	}
	return at.UTC(), false
}
