package backend

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// Keys of spec.config that are read here; sinks read the rest.
const (
	keySecret      = "secretRef"
	keyInFlight    = "maxInFlightMessages"
	keyEventTypes  = "eventTypes"
	keyPrefix      = "eventTypePrefix"
	keyTimeout     = "requestTimeout"
	keyMaxAttempts = "retryMaxAttempts"
	keyBackoff     = "retryBackoff"
	keyBackoffMax  = "retryBackoffMax"
	keyDeadLetter  = "deadLetterBackend"
)

// secretOf returns the name of the Secret of a configuration; empty when it has none.
func secretOf(c schema.Config) string {
	if c.Type == schema.TypeSQS { // It uses the hub's own credentials.
		return ""
	}
	if !c.Has(keySecret) {
		return "" // Flux' own receiver takes no credentials.
	}
	return c.String(keySecret)
}

// settings of the publisher for a connection.
func settings(name types.NamespacedName, c *connection) publisher.Settings {
	s := publisher.Settings{
		Type: c.config.Type, Sink: c.sink, EventTypes: c.config.List(keyEventTypes), Prefix: c.config.String(keyPrefix),
		MaxInFlight: int(c.config.Int(keyInFlight)), Timeout: c.config.Duration(keyTimeout), MaxAttempts: attempts(c.config.Int(keyMaxAttempts)),
		Backoff: c.config.Duration(keyBackoff), BackoffMax: c.config.Duration(keyBackoffMax),
	}
	if other := c.config.String(keyDeadLetter); other != "" {
		s.DeadLetter = types.NamespacedName{Namespace: name.Namespace, Name: other}.String()
	}
	return s
}

// attempts converts retryMaxAttempts, where 0 disables retries.
func attempts(configured int64) int {
	if configured == 0 {
		return publisher.NoRetry
	}
	return int(configured)
}
