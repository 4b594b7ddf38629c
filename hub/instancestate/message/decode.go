package message

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Disposition is what to do with a message.
type Disposition string

// Dispositions.
const (
	// Apply the facts, then delete the message.
	Apply Disposition = "delete-after-apply"
	// Ignore and delete the message.
	Ignore Disposition = "delete-ignored"
	// DeadLetter a malformed message.
	DeadLetter Disposition = "dead-letter"
)

// Message is a decoded body.
type Message struct {
	Kind        Kind
	Disposition Disposition
	// Reason why a message is ignored: a short key.
	Reason string
	// Event behind the facts. An event that is not from EventBridge is converted to its format.
	Event EventBridgeEvent
	// Facts to apply; at least one when the disposition is Apply.
	Facts []Fact
	// Test is set for Auto Scaling's test of a new notification target.
	Test bool
	// TestID is the id of a test event of `capstan aws-eventing check`; empty for other messages.
	TestID string
}

// ErrMalformed is wrapped by every error of Decode: the body can never be decoded.
var ErrMalformed = errors.New("malformed message")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMalformed, fmt.Errorf(format, args...))
}

const (
	// maxWraps is how many SNS envelopes may be around an event: a topic may feed one.
	maxWraps = 2
	// fromFuture is how far an event's time may be after its receipt by SQS: clocks differ.
	fromFuture = 5 * time.Minute
	// firstYear of EC2.
	firstYear = 2006
	// Names of AWS are short: ids have 36 bytes, names of groups at most 255 and ARNs at most
	// 2,048. All of them are kept in memory and in annotations.
	maxName, maxARN = 512, 2048
)

// Decode decodes the body of a message that SQS received at a time. Errors: of class
// ErrMalformed.
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
		return Message{}, malformed("not a JSON object: %w", err)
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

// unwrap decodes the message in an envelope of SNS.
func (d decoder) unwrap(keys map[string]json.RawMessage, wraps int) (Message, error) {
	var kind, inner string
	if err := json.Unmarshal(keys["Type"], &kind); err != nil {
		return Message{}, malformed("Type of SNS: %w", err)
	}
	switch kind {
	case "Notification":
	case "SubscriptionConfirmation", "UnsubscribeConfirmation":
		return ignore(Ignored, "sns-"+kind), nil
	default: // Reasons are values of a metric's label: senders must not choose them.
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

// event decodes an event of EventBridge.
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

// digest returns an id for an event without one.
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

// short returns an error if a name or id is longer than those of AWS.
func short(names ...string) error {
	for _, name := range names {
		if len(name) > maxName {
			return malformed("a name or id of %d bytes", len(name))
		}
	}
	return nil
}

// readers decode details, by source and detail-type.
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
	TestSource: {
		TestDetailType: decoder.test,
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

// fact returns a fact with the fields that all events have.
func (d decoder) fact(e EventBridgeEvent, kind Kind, label string, rank int) Fact {
	f := Fact{ID: e.ID, Kind: kind, Label: label, Rank: rank, Account: e.Account, Region: e.Region}
	f.Time, f.Guessed = d.time(e.Time)
	return f
}

// time parses the time of an event; it returns that of SQS, and true, when the time is
// missing, wrong, or in the future.
func (d decoder) time(text string) (at time.Time, guessed bool) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Year() < firstYear || !d.sent.IsZero() && at.After(d.sent.Add(fromFuture)) {
		return d.sent.UTC(), true
	}
	return at.UTC(), false
}
