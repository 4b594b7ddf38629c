package schema_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event" //nolint:depguard // The defaults select from the catalogue.
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

func types(t *testing.T, natsURL string) *schema.Registry {
	t.Helper()
	r, err := schema.Types(schema.Options{NATSURL: natsURL, SQSSourceNamespaces: schema.Namespaces{schema.AllNamespaces}, SQSSinkNamespaces: schema.Namespaces{schema.AllNamespaces}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// backend with the spec of a manifest.
func backend(t testing.TB, manifest string) *eventingv1.EventingBackend {
	t.Helper()
	b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "bus"}}
	if err := yaml.UnmarshalStrict([]byte(manifest), &b.Spec); err != nil {
		t.Fatal(err)
	}
	return b
}

// The errors of the design proposal, value for value. Its key foobar is a placeholder.
func TestErrorsOfTheProposal(t *testing.T) {
	g := NewWithT(t)
	r := schema.NewRegistry(schema.NATS("nats://nats:4222").With(schema.Key{
		Name: "foobar", Description: "Placeholder.", Type: schema.Int, Constraints: []schema.Constraint{schema.Between(1000, 9999)},
	}))
	_, found := r.Resolve(backend(t, `
type: "nats"
config:
- maxInFlightMessages: "ten"
- foobar: 100
- foo: bar
`))
	var want struct {
		ValidationErrors []eventingv1.ValidationError `json:"validationErrors"`
	}
	g.Expect(yaml.UnmarshalStrict([]byte(`
validationErrors:
- type: "invalid-data-type-error"
  config: "maxInFlightMessages"
  value: "ten"
  error: "should be of type int"
- type: "invalid-value-error"
  config: "foobar"
  value: "100"
  error: "must be set between 1000 and 9999"
- type: "unsupported-config-error"
  config: "foo"
  value: "bar"
  error: "config does not exist for backend type nats"
`), &want)).To(Succeed())
	g.Expect(found).To(Equal(want.ValidationErrors))
}

// The specs of the design proposal are valid without changes.
func TestSpecsOfTheProposal(t *testing.T) {
	g := NewWithT(t)
	r := types(t, "nats://nats.nats.svc:4222")
	c, found := r.Resolve(backend(t, "type: \"nats\"\nconfig:\n- maxInFlightMessages: 10\n"))
	g.Expect(found).To(BeEmpty())
	g.Expect(c.Int("maxInFlightMessages")).To(Equal(int64(10)))
	g.Expect(c.String("url")).To(Equal("nats://nats.nats.svc:4222"))
	c, found = r.Resolve(backend(t, "type: \"beb\"\nconfig:\n- secretRef: \"some-secret\"\n"))
	g.Expect(found).To(BeEmpty())
	g.Expect(c.String("secretRef")).To(Equal("some-secret"))
}

func one(kind eventingv1.ValidationErrorType, key, value, text string) []eventingv1.ValidationError {
	return []eventingv1.ValidationError{{Type: kind, Config: key, Value: value, Error: text}}
}

func TestResolve(t *testing.T) {
	const (
		dataType    = eventingv1.InvalidDataType
		value       = eventingv1.InvalidValue
		unsupported = eventingv1.UnsupportedConfig
		queue       = "{queueUrl: 'https://sqs.eu-west-1.amazonaws.com/111122223333/q'}"
		source      = "type: sqs\nconfig: [{role: source}, " + queue + ", "
	)
	for name, c := range map[string]struct {
		spec string
		want []eventingv1.ValidationError
	}{
		"empty list":           {"type: nats\nconfig: []", one(value, "url", "", "must be set: required for backend type nats")},
		"missing keys by name": {"type: beb", one(value, "secretRef", "", "must be set: required for backend type beb")},
		"unknown type":         {"type: kafka\nconfig: [{a: b}]", one(value, "type", "kafka", "must be one of nats, beb, sqs, http, flux, slack, msteams, commitstatus")},
		"no type":              {"type: ''", one(value, "type", "", "must be one of nats, beb, sqs, http, flux, slack, msteams, commitstatus")},
		"case of the type":     {"type: NATS\nconfig: [{url: 'nats://a:4222, tls://b'}]", nil},
		"integral float":       {"type: nats\nconfig: [{url: 'nats://a'}, {maxInFlightMessages: 1e1}]", nil},
		"fraction":             {"type: nats\nconfig: [{url: 'nats://a'}, {maxInFlightMessages: 1.5}]", one(dataType, "maxInFlightMessages", "1.5", "should be of type int")},
		"quoted number":        {"type: nats\nconfig: [{url: 'nats://a'}, {maxInFlightMessages: '10'}]", one(dataType, "maxInFlightMessages", "10", "should be of type int")},
		"null":                 {"type: nats\nconfig: [{url: 'nats://a'}, {maxInFlightMessages: null}]", one(dataType, "maxInFlightMessages", "", "should be of type int")},
		"object":               {"type: nats\nconfig: [{url: 'nats://a'}, {maxInFlightMessages: {a: [1, 2]}}]", one(dataType, "maxInFlightMessages", `{"a":[1,2]}`, "should be of type int")},
		"out of range":         {"type: nats\nconfig: [{url: 'nats://a'}, {maxInFlightMessages: 0}]", one(value, "maxInFlightMessages", "0", "must be set between 1 and 4000")},
		"duplicate": {"type: nats\nconfig: [{url: 'nats://a'}, {streamReplicas: 1}, {streamReplicas: 3}, {streamReplicas: 4}]",
			one(value, "streamReplicas", "3", "is set more than once")},
		"several keys in one item": {"type: nats\nconfig: [{url: 'nats://a', zzz: 1, aaa: true}]",
			append(one(unsupported, "aaa", "true", "config does not exist for backend type nats"), one(unsupported, "zzz", "1", "config does not exist for backend type nats")...)},
		"one error for a key": {"type: beb\nconfig: [{secretRef: s}, {x: 1}, {x: 2}]", one(unsupported, "x", "1", "config does not exist for backend type beb")},
		"keys have a case":    {"type: beb\nconfig: [{secretRef: s}, {QOS: AT_LEAST_ONCE}]", one(unsupported, "QOS", "AT_LEAST_ONCE", "config does not exist for backend type beb")},
		"enum":                {"type: beb\nconfig: [{secretRef: s}, {qos: never}]", one(value, "qos", "never", "must be one of AT_LEAST_ONCE, AT_MOST_ONCE")},
		"duration":            {"type: beb\nconfig: [{secretRef: s}, {requestTimeout: 5}]", one(dataType, "requestTimeout", "5", "should be of type duration")},
		"duration out of range": {"type: beb\nconfig: [{secretRef: s}, {requestTimeout: 61s}]",
			one(value, "requestTimeout", "61s", "must be set between 100ms and 1m")},
		"bool":              {"type: http\nconfig: [{url: 'https://a'}, {insecureHttp: 'yes'}]", one(dataType, "insecureHttp", "yes", "should be of type bool")},
		"unsigned":          {"type: http\nconfig: [{url: 'https://a'}, {signature: standard}]", one(value, "secretRef", "", "must be set when signature is standard")},
		"unknown signature": {"type: http\nconfig: [{url: 'https://a'}, {signature: v1}]", one(value, "signature", "v1", "must be one of v2, standard")},
		"template":          {"type: slack\nconfig: [{secretRef: s}, {template: '{{range .Text}}x{{end}}'}]", one(value, "template", "{{range .Text}}x{{end}}", `{{range .Text}}x{{end}}: only text, fields, if and with are allowed`)},
		"empty template":    {"type: msteams\nconfig: [{secretRef: s}, {template: ''}]", one(value, "template", "", "is empty")},
		"good template":     {"type: msteams\nconfig: [{secretRef: s}, {template: '{{.Title}}'}]", nil},
		"rule":              {"type: http\nconfig: [{url: 'http://a'}]", one(value, "url", "http://a", "must be https unless insecureHttp is true")},
		"list":              {"type: beb\nconfig: [{secretRef: s}, {eventTypes: promotion}]", one(dataType, "eventTypes", "promotion", "should be of type list")},
		"entries":           {"type: beb\nconfig: [{secretRef: s}, {eventTypes: [1]}]", one(dataType, "eventTypes", "[1]", "entries should be of type string")},
		"empty list value":  {"type: beb\nconfig: [{secretRef: s}, {eventTypes: []}]", one(value, "eventTypes", "[]", "must not be empty")},
		"secret of another namespace": {"type: beb\nconfig: [{secretRef: other/s}]",
			one(value, "secretRef", "other/s", "must be the name of a Secret in the same namespace")},
		"password in a URL": {"type: nats\nconfig: [{url: 'nats://joe:hunter2@a'}]",
			one(value, "url", "<redacted>", "must be URLs separated by commas, without user and password, of scheme nats, tls, ws, wss")},
		"password as a key": {"type: beb\nconfig: [{secretRef: s}, {Password: hunter2}]",
			one(unsupported, "Password", "<redacted>", "config does not exist for backend type beb")},
		"credentials as keys": {"type: nats\nconfig: [{url: 'nats://a'}, {creds: hunter2, hmac-key: hunter2, nkey: hunter2, tls.key: hunter2}]",
			slices.Concat(one(unsupported, "creds", "<redacted>", "config does not exist for backend type nats"), one(unsupported, "hmac-key", "<redacted>", "config does not exist for backend type nats"),
				one(unsupported, "nkey", "<redacted>", "config does not exist for backend type nats"), one(unsupported, "tls.key", "<redacted>", "config does not exist for backend type nats"))},
		"quantity": {"type: nats\nconfig: [{url: 'nats://a'}, {streamMaxBytes: 1Ki}]",
			one(value, "streamMaxBytes", "1Ki", "must be -1 (no limit) or at least 1Mi")},
		"sqs source":       {source + "{accounts: ['111122223333']}, {remediate: [spot-interruption]}]", nil},
		"sqs is a sink":    {"type: sqs\nconfig: [" + queue + ", {accounts: ['111122223333']}]", one(value, "accounts", `["111122223333"]`, "may only be set for role source")},
		"key of a sink":    {source + "{delaySeconds: 1}]", one(value, "delaySeconds", "1", "may only be set for role sink")},
		"wrong role":       {"type: sqs\nconfig: [{role: both}, " + queue + ", {delaySeconds: 1}]", one(value, "role", "both", "must be one of source, sink")},
		"no queue":         {"type: sqs\nconfig: [{role: source}]", one(value, "queueUrl", "", "must be set: one of queueUrl and queueName is required for backend type sqs")},
		"two queues":       {source + "{queueName: q}]", one(value, "queueName", "q", "must not be set together with queueUrl")},
		"wait":             {source + "{waitTimeSeconds: 21}]", one(value, "waitTimeSeconds", "21", "must be set between 1 and 20")},
		"pollers":          {source + "{pollersMin: 9}]", one(value, "pollersMax", "", "must not be less than pollersMin")},
		"number for id":    {source + "{accounts: [111122223333]}]", one(dataType, "accounts", "[111122223333]", "entries should be of type string")},
		"external id":      {source + "{externalId: abc}]", one(value, "externalId", "abc", "may only be set together with roleArn")},
		"plain http":       {"type: sqs\nconfig: [{queueUrl: 'http://sqs.example.com/q'}]", one(value, "queueUrl", "http://sqs.example.com/q", "must be an https URL without user and password; http only to the machine itself")},
		"http to loopback": {"type: sqs\nconfig: [{queueUrl: 'http://127.0.0.1:4100/q'}]", nil},
		"own dead letters": {source + "{deadLetterQueueUrl: 'https://sqs.eu-west-1.amazonaws.com/111122223333/q'}]",
			one(value, "deadLetterQueueUrl", "https://sqs.eu-west-1.amazonaws.com/111122223333/q", "must not be the queue itself")},
		"FIFO dead letters": {source + "{deadLetterQueueUrl: 'https://sqs.eu-west-1.amazonaws.com/111122223333/q.fifo'}]",
			one(value, "deadLetterQueueUrl", "https://sqs.eu-west-1.amazonaws.com/111122223333/q.fifo", "must not be a FIFO queue, because the queue is none")},
		"FIFO source":         {"type: sqs\nconfig: [{role: source}, {queueName: q.fifo}]", one(value, "queueName", "q.fifo", "must not be a FIFO queue for role source: one message that is retried would delay all later ones of its group")},
		"FIFO source, by URL": {"type: sqs\nconfig: [{role: source}, {queueUrl: 'https://sqs.eu-west-1.amazonaws.com/111122223333/q.fifo'}]", one(value, "queueUrl", "https://sqs.eu-west-1.amazonaws.com/111122223333/q.fifo", "must not be a FIFO queue for role source: one message that is retried would delay all later ones of its group")},
		"FIFO sink":           {"type: sqs\nconfig: [{queueName: q.fifo}]", nil},
		"handlers":            {source + "{handlers: [dns, drainer-2]}, {handlerTimeout: 1h}]", nil},
		"handler names":       {source + "{handlers: [Drainer]}]", one(value, "handlers", `["Drainer"]`, "must be at most 32 lower case letters, digits and hyphens, and begin and end with a letter or digit")},
		"many handlers":       {source + "{handlers: [a, b, c, d, e, f, g, h, i]}]", one(value, "handlers", `["a","b","c","d","e","f","g","h","i"]`, "must have at most 8 entries")},
		"long timeout":        {source + "{handlerTimeout: 61m}]", one(value, "handlerTimeout", "61m", "must be set between 10s and 1h")},
		"sink handlers":       {"type: sqs\nconfig: [" + queue + ", {handlers: [dns]}]", one(value, "handlers", `["dns"]`, "may only be set for role source")},
		"remediate": {source + "{remediate: [lunch]}]", one(value, "remediate", `["lunch"]`,
			"must be one of spot-interruption, capacity-reservation-interruption, scheduled-maintenance, rebalance-recommended, terminated")},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, found := types(t, "").Resolve(backend(t, c.spec))
			g.Expect(found).To(Equal(c.want))
		})
	}
}

// A quantity is parsed quickly, also with a huge exponent.
func TestQuantitiesAreBounded(t *testing.T) {
	for text, want := range map[string]int64{"256Mi": 256 << 20, "1.5Gi": 3 << 29, "2M": 2_000_000, "1048576": 1 << 20, "-1": -1} {
		g := NewWithT(t)
		c, found := types(t, "").Resolve(backend(t, "type: nats\nconfig: [{url: 'nats://a'}, {streamMaxBytes: '"+text+"'}]"))
		g.Expect(found).To(BeEmpty(), text)
		g.Expect(c.Int("streamMaxBytes")).To(Equal(want), text)
	}
	for _, text := range []string{
		"1e-999999999", "1.000e999999999", strings.Repeat("9", 100_000) + "e999999", strings.Repeat("9", 16), "1e6", "1m", "0." + strings.Repeat("0", 100_000) + "1", "", "Mi", "1 Mi",
	} {
		g := NewWithT(t)
		resolved := make(chan []eventingv1.ValidationError, 1)
		go func() {
			_, found := types(t, "").Resolve(backend(t, "type: nats\nconfig: [{url: 'nats://a'}, {streamMaxBytes: '"+text+"'}]"))
			resolved <- found
		}()
		var found []eventingv1.ValidationError
		g.Eventually(resolved, 5*time.Second).Should(Receive(&found), "%.40s", text)
		g.Expect(found).To(HaveLen(1))
		g.Expect(found[0].Error).To(Equal("should be of type quantity"), "%.40s", text)
	}
}

// Effective values of a source.
func TestSourceDefaults(t *testing.T) {
	g := NewWithT(t)
	c, found := types(t, "").Resolve(backend(t, "type: sqs\nconfig: [{role: source}, {queueName: capstan}, {visibilityTimeout: 30}]"))
	g.Expect(found).To(BeEmpty())
	g.Expect(c.Type).To(Equal("sqs"))
	g.Expect(c.Int("waitTimeSeconds")).To(Equal(int64(10)))
	g.Expect(c.Int("visibilityTimeout")).To(Equal(int64(30)))
	g.Expect(c.Int("pollersMin")).To(Equal(int64(2)))
	g.Expect(c.Int("pollersMax")).To(Equal(int64(8)))
	g.Expect(c.List("remediate")).To(BeEmpty())
	g.Expect(c.IsSet("visibilityTimeout")).To(BeTrue())
	g.Expect(c.IsSet("waitTimeSeconds")).To(BeFalse())
	g.Expect(func() { c.Int("waitTimeSecond") }).To(PanicWith(ContainSubstring("has no key waitTimeSecond")))
	g.Expect(func() { c.String("waitTimeSeconds") }).To(PanicWith(ContainSubstring("is of type int")))

	c, found = types(t, "").Resolve(backend(t, "type: sqs\nconfig: [{queueName: capstan}, {maxMessageBytes: 256Ki}]"))
	g.Expect(found).To(BeEmpty())
	g.Expect(c.String("role")).To(Equal(schema.RoleSink))
	g.Expect(c.Int("maxMessageBytes")).To(Equal(int64(256 << 10)))
	g.Expect(c.Duration("retryBackoffMax")).To(Equal(5 * time.Minute))
	g.Expect(c.Int("waitTimeSeconds")).To(BeZero(), "a sink has no waitTimeSeconds")
}

// Only required keys that have a default are written into the object.
func TestDefaults(t *testing.T) {
	g := NewWithT(t)
	s, known := types(t, "nats://a").Schema("SQS")
	g.Expect(known).To(BeTrue())
	given := backend(t, "type: sqs\nconfig: [{queueName: capstan}]").Spec.Config
	added := s.Defaults(given)
	g.Expect(json.Marshal(added)).To(MatchJSON(`[{"role":"sink"}]`))
	g.Expect(s.Defaults(append(given, added...))).To(BeEmpty())
	nats, _ := types(t, "nats://a").Schema("nats")
	g.Expect(nats.Defaults(nil)).To(BeEmpty())
}

func TestNATSURLIsChecked(t *testing.T) {
	g := NewWithT(t)
	_, err := schema.Types(schema.Options{NATSURL: "http://nats"})
	g.Expect(err).To(MatchError("--nats-url must be URLs separated by commas, without user and password, of scheme nats, tls, ws, wss"))
}

func TestDiscovery(t *testing.T) {
	g := NewWithT(t)
	r := types(t, "")
	g.Expect(r.Types()).To(Equal([]string{"nats", "beb", "sqs", "http", "flux", "slack", "msteams", "commitstatus"}))
	d, known := r.Describe("nats")
	g.Expect(known).To(BeTrue())
	raw, err := json.Marshal(d)
	g.Expect(err).NotTo(HaveOccurred())
	var body struct {
		Type   string
		Config []map[string]any
	}
	g.Expect(json.Unmarshal(raw, &body)).To(Succeed())
	g.Expect(body.Type).To(Equal("nats"))
	g.Expect(body.Config).To(ContainElement(map[string]any{
		"name": "maxInFlightMessages", "description": "How many events may be sent and not yet acknowledged.",
		"dataType": "int", "defaultValue": "10", "required": false, "constraint": "must be set between 1 and 4000",
	}))
	g.Expect(body.Config).To(ContainElement(map[string]any{
		"name": "streamStorage", "description": "Where the stream is kept.", "dataType": "enum", "defaultValue": "file",
		"required": false, "constraint": "must be one of file, memory", "allowedValues": []any{"file", "memory"}, "immutable": true,
	}))
	_, known = r.Describe("kafka")
	g.Expect(known).To(BeFalse())
}

// NewRegistry panics on inconsistent schemas.
func TestRegistryRefusesContradictions(t *testing.T) {
	g := NewWithT(t)
	key := schema.Key{Name: "n", Description: "N.", Type: schema.Int}
	for _, bad := range [][]schema.Schema{
		{{Type: "A"}},
		{{Type: "a"}, {Type: "a"}},
		{{Type: "a", Keys: []schema.Key{key, key}}},
		{{Type: "a", Keys: []schema.Key{{Name: "n", Description: "N.", Type: schema.Int, Default: "ten"}}}},
		{{Type: "a", Keys: []schema.Key{{Name: "n", Description: "N.", Type: schema.Int, Default: "1", Constraints: []schema.Constraint{schema.Between(2, 3)}}}}},
	} {
		g.Expect(func() { schema.NewRegistry(bad...) }).To(Panic())
	}
}

// For any configuration: no panic, at most one error for a key, bounded errors, and a
// valid configuration stays valid with its defaults written.
func FuzzResolve(f *testing.F) {
	for _, seed := range []string{
		`{"type":"nats","config":[{"maxInFlightMessages":10}]}`,
		`{"type":"sqs","config":[{"role":"source"},{"queueName":"q"},{"accounts":["111122223333"]}]}`,
		`{"type":"sqs","config":[{"role":null},{"queueUrl":"http://[::1"},{"maxMessageBytes":"1e400"}]}`,
		`{"type":"nats","config":[{"streamMaxBytes":"1e-999999999"}]}`,
		`{"type":"nats","config":[{"streamMaxBytes":"1.000e999999999"}]}`,
		`{"type":"nats","config":[{"streamMaxBytes":"` + strings.Repeat("9", 10_000) + `e999999"}]}`,
		`{"type":"beb","config":[{"secretRef":"a","qos":"x","x":{"y":[1]}}]}`,
		`{"type":"http","config":[{"url":"https://u:p@h"},{"requestTimeout":"9999999999h"}]}`,
	} {
		f.Add([]byte(seed))
	}
	r, err := schema.Types(schema.Options{NATSURL: "nats://a", SQSSinkNamespaces: schema.Namespaces{""}, SQSSourceNamespaces: schema.Namespaces{""}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var b eventingv1.EventingBackend
		if json.Unmarshal(raw, &b.Spec) != nil {
			return
		}
		_, found := r.Resolve(&b)
		seen := map[string]bool{}
		for _, e := range found {
			if len(e.Value) > 300 || len(e.Config) > 300 || e.Error == "" || strings.Contains(e.Value, "hunter2@") {
				t.Fatalf("%+v", e)
			}
			if seen[e.Config] && len(e.Config) < 200 {
				t.Fatalf("two errors for %s", e.Config)
			}
			seen[e.Config] = true
		}
		if len(found) > 100 {
			t.Fatalf("%d errors", len(found))
		}
		known, ok := r.Schema(b.Spec.Type)
		if len(found) > 0 || !ok {
			return
		}
		b.Spec.Config = append(b.Spec.Config, known.Defaults(b.Spec.Config)...)
		if _, found = r.Resolve(&b); len(found) > 0 {
			t.Fatalf("with its defaults: %+v", found)
		}
	})
}

// Only namespaces that the administrator of the hub names may use its AWS credentials.
func TestNamespacesOfSQS(t *testing.T) {
	const source, sink = "type: sqs\nconfig: [{role: source}, {queueName: q}]", "type: sqs\nconfig: [{queueName: q}]"
	team, other, all := schema.Namespaces{"team"}, schema.Namespaces{"other", "hub"}, schema.Namespaces{schema.AllNamespaces}
	refused := func(role, flag, allows string) []eventingv1.ValidationError {
		return one(eventingv1.InvalidValue, "role", role, "must not be "+role+" in namespace team: it uses the AWS credentials of the hub, which --"+flag+" allows "+allows)
	}
	for name, c := range map[string]struct {
		spec           string
		sources, sinks schema.Namespaces
		want           []eventingv1.ValidationError
	}{
		"source":                  {source, team, nil, nil},
		"source, all":             {source, all, nil, nil},
		"source, elsewhere":       {source, other, all, refused("source", "sqs-source-namespaces", "only in other, hub")},
		"source, nowhere":         {source, nil, all, refused("source", "sqs-source-namespaces", "in no namespace")},
		"sink":                    {sink, nil, team, nil},
		"sink, all":               {sink, nil, all, nil},
		"sink, elsewhere":         {sink, all, other, refused("sink", "sqs-sink-namespaces", "only in other, hub")},
		"sink, nowhere":           {sink, all, nil, refused("sink", "sqs-sink-namespaces", "in no namespace")},
		"another type is anyones": {"type: http\nconfig: [{url: 'https://example.com'}]", nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, err := schema.Types(schema.Options{SQSSourceNamespaces: c.sources, SQSSinkNamespaces: c.sinks})
			g.Expect(err).NotTo(HaveOccurred())
			_, found := r.Resolve(backend(t, c.spec))
			g.Expect(found).To(Equal(c.want))
		})
	}
}

// Equal compares values in any notation; immutable keys cannot be changed.
func TestEqualAndFixed(t *testing.T) {
	g := NewWithT(t)
	r := types(t, "nats://nats:4222")
	resolve := func(manifest string) schema.Config {
		c, found := r.Resolve(backend(t, manifest))
		g.Expect(found).To(BeEmpty())
		return c
	}
	plain := resolve(`{type: nats}`)
	g.Expect(resolve(`{type: NATS, config: [{streamMaxAge: 10080m}, {maxInFlightMessages: 10.0}]}`).Equal(plain)).To(BeTrue())
	g.Expect(resolve(`{type: nats, config: [{maxInFlightMessages: 11}]}`).Equal(plain)).To(BeFalse())
	g.Expect(resolve(`{type: http, config: [{url: "https://example.com"}]}`).Equal(plain)).To(BeFalse())
	g.Expect(plain.Fixed()).To(Equal(map[string]string{"streamName": "capstan", "streamStorage": "file", "streamRetention": "limits"}))
	g.Expect(resolve(`{type: http, config: [{url: "https://example.com"}]}`).Fixed()).To(BeNil())

	resolve(`{type: nats, config: [{deadLetterBackend: spare}]}`)
	_, found := r.Resolve(backend(t, `{type: nats, config: [{deadLetterBackend: bus}]}`))
	g.Expect(found).To(Equal(one(eventingv1.InvalidValue, "deadLetterBackend", "bus", "must be the name of another EventingBackend")))

	g.Expect(plain.CheckFixed(nil)).To(BeEmpty())
	g.Expect(resolve(`{type: nats, config: [{streamName: capstan}, {streamDiscard: new}]}`).CheckFixed(plain.Fixed())).To(BeEmpty())
	g.Expect(resolve(`{type: nats, config: [{streamStorage: memory}, {streamName: other}]}`).CheckFixed(plain.Fixed())).To(Equal([]eventingv1.ValidationError{
		{Type: eventingv1.InvalidValue, Config: "streamName", Value: "other", Error: "cannot be changed from capstan while the backend exists"},
		{Type: eventingv1.InvalidValue, Config: "streamStorage", Value: "memory", Error: "cannot be changed from file while the backend exists"},
	}))
}

// By default a channel receives what waits for an approval, and the warnings and errors of promotions.
func TestChatDefaults(t *testing.T) {
	g := NewWithT(t)
	for _, s := range []schema.Schema{schema.Slack(), schema.MSTeams()} {
		entries, err := eventingv1.NewConfig(map[string]any{"secretRef": "s"})
		g.Expect(err).NotTo(HaveOccurred())
		c, invalid := s.Resolve(entries)
		g.Expect(invalid).To(BeEmpty())
		for _, entry := range event.Catalogue() {
			wanted := entry.Kind == event.PromotionWaiting || entry.Kind.Object() == "promotion" && entry.Severity != event.Info
			g.Expect(entry.Kind.Matches(c.List("eventTypes"))).To(Equal(wanted), string(entry.Kind))
		}
	}
}
