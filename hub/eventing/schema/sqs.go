package schema

import (
	"net"
	"net/url"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// Roles of an sqs backend.
const (
	// RoleSource: the hub reads the events of AWS instances from the queue.
	RoleSource = eventingv1.RoleSource
	// RoleSink: the hub publishes its own events to the queue.
	RoleSink = "sink"
)

// Kinds of notices, for the key remediate.
const (
	RemediateSpot        = "spot-interruption"
	RemediateReservation = "capacity-reservation-interruption"
	RemediateMaintenance = "scheduled-maintenance"
	RemediateRebalance   = "rebalance-recommended"
	RemediateTerminated  = "terminated"
)

// TypeSQS is the type of Amazon SQS, the only one that may be a source.
const TypeSQS = "sqs"

const fifo = ".fifo"

// SQS returns the schema of type sqs: one queue of Amazon SQS, to read from or to publish
// to.
func SQS() Schema {
	keys := []Key{
		{
			Name: RoleKey, Type: Enum, Required: true, Default: RoleSink,
			Description: "Whether the hub reads events of instances from the queue (source) or publishes its own to it (sink).",
			Constraints: []Constraint{OneOf(RoleSource, RoleSink)},
		},
		{
			Name: "queueUrl", Type: URL, Example: "https://sqs.eu-west-1.amazonaws.com/111122223333/capstan",
			Description: "URL of the queue. Either this or queueName is set.",
			Constraints: []Constraint{secureURL},
		},
		{
			Name: "queueName", Type: String, Example: "capstan",
			Description: "Name of the queue. Either this or queueUrl is set.",
			Constraints: []Constraint{Matching(`^([A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo)$`,
				"must be at most 80 letters, digits, hyphens and underscores, where a FIFO queue ends with .fifo")},
		},
		{
			Name: "region", Type: String, Example: "eu-west-1",
			Description: "Region of the queue; by default that in queueUrl, else that of the hub.",
			Constraints: []Constraint{Matching(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`, "must be an AWS region, such as eu-west-1")},
		},
		{
			Name: "queueOwnerAccountId", Type: String, Example: `"111122223333"`,
			Description: "Account that owns the queue of queueName; by default that of the credentials.",
			Constraints: []Constraint{account},
		},
		{
			Name: "roleArn", Type: String, Example: "arn:aws:iam::111122223333:role/capstan",
			Description: "Role to assume for all calls of the queue; by default the hub's own credentials are used.",
			Constraints: []Constraint{Matching(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/.{1,512}$`, "must be the ARN of an IAM role")},
		},
		{
			Name: "externalId", Type: String, Example: "capstan",
			Description: "External id that the role's trust policy requires.",
			Constraints: []Constraint{Matching(`^[A-Za-z0-9_+=,.@:/-]{2,1000}$`, "must be 2 to 1000 letters, digits and _+=,.@:/-")},
		},
		{
			Name: "endpoint", Type: URL, Example: "https://vpce-0a1b.sqs.eu-west-1.vpce.amazonaws.com",
			Description: "Endpoint of SQS, such as an interface endpoint of a VPC; by default that of the region.",
			Constraints: []Constraint{secureURL},
		},
	}
	keys = append(keys, sourceKeys()...)
	keys = append(keys, sinkKeys()...)
	return Schema{
		Type: TypeSQS, Title: "Amazon SQS", Keys: append(keys, publishing(RoleSink)...),
		Rules: []Rule{oneQueue, noFIFOSource, externalIDNeedsRole, ownerNeedsName, pollersGrow, otherDeadLetters, sinkBackoff},
	}
}

func sourceKeys() []Key {
	only := []string{RoleSource}
	return []Key{
		{
			Name: "accounts", Type: List, Only: only, Example: `["111122223333"]`,
			Description: "Accounts whose events the hub accepts; by default those of the clusters of the hub.",
			Constraints: []Constraint{NotEmpty(), account},
		},
		{
			Name: "waitTimeSeconds", Type: Int, Default: "10", Only: only,
			Description: "Seconds for which a receive call waits for a message.",
			Constraints: []Constraint{Between(1, 20)},
		},
		{
			Name: "visibilityTimeout", Type: Int, Default: "60", Only: only,
			Description: "Seconds for which a received message is hidden from other readers. The hub extends it while it processes the message.",
			Constraints: []Constraint{Between(10, 43200)},
		},
		{
			Name: "pollersMin", Type: Int, Default: "2", Only: only,
			Description: "Least number of concurrent receive calls.",
			Constraints: []Constraint{Between(1, 32)},
		},
		{
			Name: "pollersMax", Type: Int, Default: "8", Only: only,
			Description: "Largest number of concurrent receive calls, used while the queue has many messages.",
			Constraints: []Constraint{Between(1, 32)},
		},
		{
			Name: "deadLetterQueueUrl", Type: URL, Only: only, Example: "https://sqs.eu-west-1.amazonaws.com/111122223333/capstan-dead",
			Description: "Queue for messages that the hub cannot parse, when the queue has no redrive policy.",
			Constraints: []Constraint{secureURL},
		},
		{
			Name: "remediate", Type: List, Only: only, Example: `["` + RemediateSpot + `"]`,
			Description: "Notices for which the owner Machine is annotated " + clusterv1.RemediateMachineAnnotation + "; by default none.",
			Constraints: []Constraint{NotEmpty(), OneOf(RemediateSpot, RemediateReservation, RemediateMaintenance, RemediateRebalance, RemediateTerminated)},
		},
		{
			Name: "handlers", Type: List, Only: only, Example: `["drainer"]`,
			Description: "Handlers in other processes. The message of an event is deleted only when each of them has reported it by its annotation on the object.",
			Constraints: []Constraint{NotEmpty(), AtMost(8), Matching(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`, "must be at most 32 lower case letters, digits and hyphens, and begin and end with a letter or digit")},
		},
		{
			Name: "handlerTimeout", Type: Duration, Default: "5m", Only: only,
			Description: "How long the message of an event waits for handlers.",
			Constraints: []Constraint{DurationBetween(10*time.Second, time.Hour)},
		},
	}
}

func sinkKeys() []Key {
	only := []string{RoleSink}
	return []Key{
		{
			Name: "delaySeconds", Type: Int, Default: "0", Only: only,
			Description: "Seconds for which a new event is hidden from readers.",
			Constraints: []Constraint{Between(0, 900)},
		},
		{
			Name: "messageGroupId", Type: String, Only: only, Example: "capstan",
			Description: "Message group of a FIFO queue; by default the cluster of the event.",
			Constraints: []Constraint{Matching("^[!-~]{1,128}$", "must be 1 to 128 visible ASCII characters")},
		},
		{
			Name: "maxMessageBytes", Type: Quantity, Default: "1Mi", Only: only,
			Description: "Size of the largest event that the queue accepts.",
			Constraints: []Constraint{QuantityBetween("1Ki", "1Mi")},
		},
	}
}

var account = Matching("^[0-9]{12}$", "must be an account id of 12 digits, in quotes")

// secureURL requires https, so that messages and signatures are encrypted. A URL of this
// machine, such as a simulator, may be plain http.
var secureURL = Constraint{
	Text: "must be an https URL without user and password; http only to the machine itself",
	ok: func(v any) bool {
		text := v.(string)
		if !plainURL(text, []string{"https", "http"}) {
			return false
		}
		u, err := url.Parse(text)
		return err == nil && (u.Scheme == "https" || loopback(u.Hostname()))
	},
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func oneQueue(c Config) (key, text string) {
	switch byURL, byName := c.String("queueUrl") != "", c.String("queueName") != ""; {
	case byURL && byName:
		return "queueName", "must not be set together with queueUrl"
	case !byURL && !byName:
		return "queueUrl", "must be set: one of queueUrl and queueName is required for backend type sqs"
	}
	return "", ""
}

// noFIFOSource: SQS delivers no message of a group while one of the group is in flight or is
// retried, so one event of an unknown instance would delay all events after it. EventBridge, Auto
// Scaling and SNS send to standard queues.
func noFIFOSource(c Config) (key, text string) {
	if c.String(RoleKey) != RoleSource {
		return "", ""
	}
	for _, key := range []string{"queueUrl", "queueName"} {
		if strings.HasSuffix(c.String(key), fifo) {
			return key, "must not be a FIFO queue for role source: one message that is retried would delay all later ones of its group"
		}
	}
	if strings.HasSuffix(c.String("deadLetterQueueUrl"), fifo) {
		return "deadLetterQueueUrl", "must not be a FIFO queue, because the queue is none"
	}
	return "", ""
}

func externalIDNeedsRole(c Config) (key, text string) {
	if c.String("externalId") != "" && c.String("roleArn") == "" {
		return "externalId", "may only be set together with roleArn"
	}
	return "", ""
}

func ownerNeedsName(c Config) (key, text string) {
	if c.String("queueOwnerAccountId") != "" && c.String("queueName") == "" {
		return "queueOwnerAccountId", "may only be set together with queueName"
	}
	return "", ""
}

func pollersGrow(c Config) (key, text string) {
	if c.Int("pollersMax") < c.Int("pollersMin") {
		return "pollersMax", "must not be less than pollersMin"
	}
	return "", ""
}

// otherDeadLetters: a dead letter in the queue itself would be read again.
func otherDeadLetters(c Config) (key, text string) {
	if dead := c.String("deadLetterQueueUrl"); dead != "" && dead == c.String("queueUrl") {
		return "deadLetterQueueUrl", "must not be the queue itself"
	}
	return "", ""
}

func sinkBackoff(c Config) (key, text string) {
	if c.String(RoleKey) != RoleSink {
		return "", ""
	}
	return backoffGrows(c)
}
