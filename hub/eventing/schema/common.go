package schema

import "time"

// Patterns of several types. The defaults of 10 events in flight and 10 attempts are
// those of Kyma.
const (
	secretName = `^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`
	prefix     = `^[A-Za-z0-9]+(\.[A-Za-z0-9]+){0,3}$`
)

// publishing returns the keys of all types that can be published to.
func publishing(only ...string) []Key {
	return []Key{
		{
			Name: "maxInFlightMessages", Type: Int, Default: "10", Only: only,
			Description: "How many events may be sent and not yet acknowledged.",
			Constraints: []Constraint{Between(1, 4000)},
		},
		{
			Name: "eventTypes", Type: List, Default: `["*"]`, Example: `["promotion.*"]`, Only: only,
			Description: "Which events are sent: patterns of the type without its prefix, where * matches any text.",
			Constraints: eventTypes(),
		},
		{
			Name: "eventTypePrefix", Type: String, Default: "dev.capstan", Only: only,
			Description: "First part of the type of every event.",
			// Event Mesh allows seven segments of letters and digits; the kind has three.
			Constraints: []Constraint{Matching(prefix, "must be one to four words of letters and digits, separated by dots")},
		},
		{
			Name: "requestTimeout", Type: Duration, Default: "5s", Only: only,
			Description: "Timeout of one attempt to send an event.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, time.Minute)},
		},
		{
			Name: "retryMaxAttempts", Type: Int, Default: "10", Only: only,
			Description: "Number of retries of an event before it goes to the dead letter backend.",
			Constraints: []Constraint{Between(0, 100)},
		},
		{
			Name: "retryBackoff", Type: Duration, Default: "1s", Only: only,
			Description: "Time before the first retry; it doubles with each retry.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, time.Hour)},
		},
		{
			Name: "retryBackoffMax", Type: Duration, Default: "5m", Only: only,
			Description: "Longest time between two retries.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, time.Hour)},
		},
		{
			Name: "deadLetterBackend", Type: String, Only: only, Example: "spare",
			Description: "Name of the EventingBackend, in the same namespace, that receives events that could not be sent.",
			Constraints: []Constraint{Matching(secretName, "must be the name of an EventingBackend")},
		},
	}
}

// eventTypes returns the constraints of the key eventTypes.
func eventTypes() []Constraint {
	return []Constraint{NotEmpty(), Matching(`^[A-Za-z0-9.*]{1,128}$`, "entries must hold letters, digits, dots and * only")}
}

// backoffGrows: retryBackoffMax is not less than retryBackoff.
func backoffGrows(c Config) (key, text string) {
	if c.Duration("retryBackoffMax") < c.Duration("retryBackoff") {
		return "retryBackoffMax", "must not be less than retryBackoff"
	}
	return "", ""
}

// secretKey is the reference to a Secret; holds describes its keys.
func secretKey(required bool, holds string) Key {
	return Key{
		Name: "secretRef", Type: SecretRef, Required: required, Example: "some-secret",
		Description: "Name of a Secret in the same namespace, with " + holds + ".",
		Constraints: []Constraint{Matching(secretName, "must be the name of a Secret in the same namespace")},
	}
}
