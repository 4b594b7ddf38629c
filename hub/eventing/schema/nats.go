package schema

import "time"

// NATS is the schema of type nats: a stream of NATS JetStream. defaultURL is that of
// --nats-url; empty when the flag is not set.
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
			Description: "What the subject of every event begins with.",
			Constraints: []Constraint{Matching(`^[^\s.*>]+(\.[^\s.*>]+)*$`, "must be words separated by dots, without space, * and >")},
		},
		{
			Name: "streamStorage", Type: Enum, Default: "file", Immutable: true,
			Description: "Where the stream is kept.",
			Constraints: []Constraint{OneOf("file", "memory")},
		},
		{
			Name: "streamReplicas", Type: Int, Default: "1",
			Description: "How many servers keep the stream; more than one needs a NATS cluster.",
			Constraints: []Constraint{Between(1, 5)},
		},
		{
			Name: "streamRetention", Type: Enum, Default: "limits", Immutable: true,
			Description: "Whether events are kept until a limit is reached, or until all consumers have them.",
			Constraints: []Constraint{OneOf("limits", "interest")},
		},
		{
			Name: "streamDiscard", Type: Enum, Default: "old",
			Description: "What a full stream does: drop the oldest events, or refuse new ones.",
			Constraints: []Constraint{OneOf("old", "new")},
		},
		{
			Name: "streamMaxBytes", Type: Quantity, Default: "256Mi",
			Description: "How large the stream may grow.",
			Constraints: []Constraint{UnlimitedOrBytes("1Mi")},
		},
		{
			Name: "streamMaxMsgs", Type: Int, Default: "-1",
			Description: "How many events the stream may hold.",
			Constraints: []Constraint{UnlimitedOrFrom(1)},
		},
		{
			Name: "streamMaxMsgsPerSubject", Type: Int, Default: "-1",
			Description: "How many events of one subject the stream may hold.",
			Constraints: []Constraint{UnlimitedOrFrom(1)},
		},
		{
			Name: "streamMaxAge", Type: Duration, Default: "168h",
			Description: "How long events are kept.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, 10*365*24*time.Hour)},
		},
		{
			Name: "streamDuplicateWindow", Type: Duration, Default: "10m",
			Description: "For how long the stream drops an event that it has already. It should be longer than all retries of one event.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, 24*time.Hour)},
		},
		{
			Name: "maxReconnects", Type: Int, Default: "-1",
			Description: "How often a lost connection is tried again before it is made anew.",
			Constraints: []Constraint{UnlimitedOrFrom(0)},
		},
		{
			Name: "reconnectWait", Type: Duration, Default: "5s",
			Description: "How long to wait between such tries.",
			Constraints: []Constraint{DurationBetween(100*time.Millisecond, 5*time.Minute)},
		},
	}
	return Schema{
		Type: "nats", Title: "NATS JetStream", Keys: append(keys, publishing()...),
		Rules: []Rule{backoffGrows, windowWithinAge},
	}
}

// windowWithinAge: the server refuses a stream that forgets before it stops comparing.
func windowWithinAge(c Config) (key, text string) {
	if c.Duration("streamDuplicateWindow") > c.Duration("streamMaxAge") {
		return "streamDuplicateWindow", "must not be longer than streamMaxAge"
	}
	return "", ""
}
