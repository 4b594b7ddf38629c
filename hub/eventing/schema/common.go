package schema

import "time"

// What the types have in common. Numbers that are not explained here are those of
// reference implementations: 10 events in flight and 10 attempts are Kyma's defaults.
const (
	secretName = `^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`
	prefix     = `^[A-Za-z0-9]+(\.[A-Za-z0-9]+){0,3}$`
)

// publishing are the keys of everything that is published to.
func publishing(only ...string) []Key {
	return []Key{
		{
			Name: "maxInFlightMessages", Type: Int, Default: "10", Only: only,
			Description: "How many events may be sent and not yet acknowledged.",
			Constraints: []Constraint{Between(1, 4000)},
		},
		{
			Name: "eventTypes", Type: List, Default: `["*"]`, Example: `["promotion.*"]`, Only: only,
			Description: "Which events are sent: patterns of the type without its prefix, where * stands for anything.",
			Constraints: []Constraint{NotEmpty(), Matching(`^[A-Za-z0-9.*]{1,128}$`, "entries must hold letters, digits, dots and * only")},
		},
		{
			Name: "eventTypePrefix", Type: String, Default: "dev.capstan", Only: only,
			Description: "What the type of every event begins with.",
			// Event Mesh takes seven segments of letters and digits; three are the event's own.
			Constraints: []Constraint{Matching(prefix, "must be one to four words of letters and digits, separated by dots")},
		},
		{
			Name: "requestTimeout", Type: Duration, Default: "5s", Only: only,
			Description: "How long one attempt to send may take.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, time.Minute)},
		},
		{
			Name: "retryMaxAttempts", Type: Int, Default: "10", Only: only,
			Description: "How often an event is tried again before it is dead-lettered.",
			Constraints: []Constraint{Between(0, 100)},
		},
		{
			Name: "retryBackoff", Type: Duration, Default: "1s", Only: only,
			Description: "How long to wait before the first retry; it doubles from there.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, time.Hour)},
		},
		{
			Name: "retryBackoffMax", Type: Duration, Default: "5m", Only: only,
			Description: "What the wait does not grow beyond.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, time.Hour)},
		},
		{
			Name: "deadLetterBackend", Type: String, Only: only, Example: "spare",
			Description: "Name of the EventingBackend, in the same namespace, that gets the events that could not be sent.",
			Constraints: []Constraint{Matching(secretName, "must be the name of an EventingBackend")},
		},
	}
}

// backoffGrows is the rule of the two retry keys.
func backoffGrows(c Config) (key, text string) {
	if c.Duration("retryBackoffMax") < c.Duration("retryBackoff") {
		return "retryBackoffMax", "must not be less than retryBackoff"
	}
	return "", ""
}

// secretKey is a reference to a Secret; holds says what must be in it.
func secretKey(required bool, holds string) Key {
	return Key{
		Name: "secretRef", Type: SecretRef, Required: required, Example: "some-secret",
		Description: "Name of a Secret in the same namespace, with " + holds + ".",
		Constraints: []Constraint{Matching(secretName, "must be the name of a Secret in the same namespace")},
	}
}
