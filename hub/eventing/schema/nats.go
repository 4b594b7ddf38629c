package schema

import "time"

// NATS returns the schema of type nats: a stream of NATS JetStream. defaultURL is the
// value of --nats-url; empty when the flag is not set.
func NATS(defaultURL string) Schema {
	keys := []Key{
		{
			Name: "url", Type: URL, Required: defaultURL == "", Default: defaultURL, Example: "nats://nats.nats.svc:4222",
			Description: "Servers to connect to; by default those of --nats-url.",
			Constraints: []Constraint{SeveralOf("nats", "tls", "ws", "wss")},
		},
		secretKey(false, "`creds`, `nkey`, `token` or `username` and `password`; and `ca.crt`, `tls.crt` and `tls.key`"),
		{
			Name: "streamName", Type: String, Default: "capstan", Immutable: true,
			Description: "Name of the stream.",
			Constraints: []Constraint{Matching(`^[^\s.*>\\/]{1,32}$`, `must be at most 32 characters without space, dot, *, >, / and \`)},
		},
		{
			Name: "subjectPrefix", Type: String, Default: "capstan",
			Description: "First part of the subject of every event.",
			Constraints: []Constraint{Matching(`^[^\s.*>]+(\.[^\s.*>]+)*$`, "must be words separated by dots, without space, * and >")},
		},
		{
			Name: "streamStorage", Type: Enum, Default: "file", Immutable: true,
			Description: "Where the stream is kept.",
			Constraints: []Constraint{OneOf("file", "memory")},
		},
		{
			Name: "streamReplicas", Type: Int, Default: "1",
			Description: "Number of replicas of the stream; more than one needs a NATS cluster.",
			Constraints: []Constraint{Between(1, 5)},
		},
		{
			Name: "streamRetention", Type: Enum, Default: "limits", Immutable: true,
			Description: "Whether events are kept until a limit is reached, or until all consumers have received them.",
			Constraints: []Constraint{OneOf("limits", "interest")},
		},
		{
			Name: "streamDiscard", Type: Enum, Default: "old",
			Description: "Behaviour of a full stream: drop the oldest events (old), or refuse new ones (new).",
			Constraints: []Constraint{OneOf("old", "new")},
		},
		{
			Name: "streamMaxBytes", Type: Quantity, Default: "256Mi",
			Description: "Largest size of the stream.",
			Constraints: []Constraint{UnlimitedOrBytes("1Mi")},
		},
		{
			Name: "streamMaxMsgs", Type: Int, Default: "-1",
			Description: "Largest number of events in the stream.",
			Constraints: []Constraint{UnlimitedOrFrom(1)},
		},
		{
			Name: "streamMaxMsgsPerSubject", Type: Int, Default: "-1",
			Description: "Largest number of events of one subject in the stream.",
			Constraints: []Constraint{UnlimitedOrFrom(1)},
		},
		{
			Name: "streamMaxAge", Type: Duration, Default: "168h",
			Description: "Time for which events are kept.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, 10*365*24*time.Hour)},
		},
		{
			Name: "streamDuplicateWindow", Type: Duration, Default: "10m",
			Description: "Time within which the stream drops duplicates of an event. It should be longer than all retries of one event.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, 24*time.Hour)},
		},
		{
			Name: "maxReconnects", Type: Int, Default: "-1",
			Description: "Number of attempts to restore a lost connection before a new one is opened.",
			Constraints: []Constraint{UnlimitedOrFrom(0)},
		},
		{
			Name: "reconnectWait", Type: Duration, Default: "5s",
			Description: "Time between two such attempts.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, 5*time.Minute)},
		},
	}
	return Schema{
		Type: "nats", Title: "NATS JetStream", Keys: append(keys, publishing()...),
		Rules: []Rule{backoffGrows, windowWithinAge},
	}
}

// windowWithinAge: the server refuses a stream that deletes events before the end of the
// duplicate window.
func windowWithinAge(c Config) (key, text string) {
	if c.Duration("streamDuplicateWindow") > c.Duration("streamMaxAge") {
		return "streamDuplicateWindow", "must not be longer than streamMaxAge"
	}
	return "", ""
}
