package schema

import "strings"

// BEB returns the schema of type beb: SAP Event Mesh, formerly Business Event Bus.
func BEB() Schema {
	keys := []Key{
		secretKey(true, "a service key of Event Mesh: `messaging` and `namespace`"),
		{
			Name: "namespace", Type: String, Example: "default/sap.capstan/1",
			Description: "Namespace of the message client; by default that in the Secret.",
			Constraints: []Constraint{Matching(`^[A-Za-z0-9/_]([A-Za-z0-9/_.-]{0,62}[A-Za-z0-9/_])?$`,
				"must be at most 64 letters, digits, and ./_- that stand neither first nor last")},
		},
		{
			Name: "qos", Type: Enum, Default: "AT_LEAST_ONCE",
			Description: "Quality of service that the hub requests from Event Mesh.",
			Constraints: []Constraint{orDashes(OneOf("AT_LEAST_ONCE", "AT_MOST_ONCE"))},
		},
		{
			Name: "contentMode", Type: Enum, Default: "BINARY",
			Description: "Whether an event's attributes are headers or part of the body.",
			Constraints: []Constraint{OneOf("BINARY", "STRUCTURED")},
		},
	}
	return Schema{Type: "beb", Title: "SAP Event Mesh", Keys: append(keys, publishing()...), Rules: []Rule{backoffGrows}}
}

// orDashes also allows dashes in place of underscores, as Kyma did.
func orDashes(c Constraint) Constraint {
	strict := c.ok
	c.ok = func(v any) bool { return strict(strings.ReplaceAll(v.(string), "-", "_")) }
	return c
}

// HTTP returns the schema of type http: a webhook that receives CloudEvents.
func HTTP() Schema {
	keys := []Key{
		{
			Name: "url", Type: URL, Required: true, Example: "https://events.example.com/hub",
			Description: "URL to which the hub posts events.",
			Constraints: []Constraint{Schemes("https", "http")},
		},
		{
			Name: "insecureHttp", Type: Bool, Default: "false",
			Description: "Whether url may be plain http. Then the events are not encrypted on the network.",
		},
		secretKey(false, "`token`, or `username` and `password`; `hmac-key`, and `hmac-key-previous` for signature standard, to sign with; and `ca.crt`, `tls.crt` and `tls.key`"),
		{
			Name: "contentMode", Type: Enum, Default: "structured",
			Description: "Whether an event's attributes are headers or part of the body.",
			Constraints: []Constraint{OneOf("binary", "structured")},
		},
		{
			Name: SignatureKey, Type: Enum, Default: SignatureV2,
			Description: "Form of the signature with `hmac-key`: that of calls to the hub (v2), or of Standard Webhooks (standard).",
			Constraints: []Constraint{OneOf(SignatureV2, SignatureStandard)},
		},
		{
			Name: "abuseProtection", Type: Bool, Default: "false",
			Description: "Whether the hub first requests the receiver's permission to send events (OPTIONS with WebHook-Request-Origin).",
		},
		{
			Name: "proxyUrl", Type: URL, Example: "http://proxy.example.com:3128",
			Description: "Proxy for all requests to url.",
			Constraints: []Constraint{Schemes("https", "http")},
		},
	}
	return Schema{Type: "http", Title: "CloudEvents webhook", Keys: append(keys, publishing()...), Rules: []Rule{backoffGrows, httpIsMeant, standardIsSigned}}
}

// SignatureKey is the key of the form of signatures, and its values.
const (
	SignatureKey      = "signature"
	SignatureV2       = "v2"
	SignatureStandard = "standard"
)

// standardIsSigned: who chooses a form of signatures has a key to sign with.
func standardIsSigned(c Config) (key, text string) {
	if c.String(SignatureKey) == SignatureStandard && !c.IsSet("secretRef") {
		return "secretRef", "must be set when signature is standard"
	}
	return "", ""
}

func httpIsMeant(c Config) (key, text string) {
	if strings.HasPrefix(strings.ToLower(c.String("url")), "http:") && !c.Bool("insecureHttp") {
		return "url", "must be https unless insecureHttp is true"
	}
	return "", ""
}

// Flux returns the schema of type flux: Flux's notification-controller. defaultURL is the value
// of --events-addr; empty when the flag is not set.
func Flux(defaultURL string) Schema {
	keys := []Key{{
		Name: "url", Type: URL, Required: defaultURL == "", Default: defaultURL, Example: "http://notification-controller.flux-system.svc/",
		Description: "URL of the events endpoint of notification-controller; by default that of --events-addr, if that has no user and password.",
		Constraints: []Constraint{Schemes("https", "http")},
	}}
	s := Schema{Type: "flux", Title: "Flux Alerts", Keys: append(keys, publishing()...), Rules: []Rule{backoffGrows}}
	return s.With(promotionEvents())
}
