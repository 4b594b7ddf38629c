package backend_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// proposed is the part of a status that the design proposal defines, without the
// condition Ready and messages.
func proposed(b *eventingv1.EventingBackend) eventingv1.EventingBackendStatus {
	s := eventingv1.EventingBackendStatus{BackendType: b.Status.BackendType, ValidationErrors: b.Status.ValidationErrors, EventingReady: b.Status.EventingReady}
	for _, c := range b.Status.Conditions {
		if c.Type != eventingv1.ReadyCondition {
			c.Message = ""
			s.Conditions = append(s.Conditions, c)
		}
	}
	return s
}

func statusOf(g *WithT, manifest string) eventingv1.EventingBackendStatus {
	var s eventingv1.EventingBackendStatus
	g.Expect(yaml.UnmarshalStrict([]byte(manifest), &s)).To(Succeed())
	return s
}

// The two statuses of the design proposal, value for value. The key foobar of the second
// one is a placeholder, which the schema nats has in this test. Its "Backend ready" is the
// condition that the proposal calls "Backend Ready" everywhere else.
func TestStatusesOfTheProposal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := w.jetstream()
	at, err := time.Parse(time.RFC3339, "2022-05-06T08:35:11Z")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.options.Clock = clocktesting.NewFakeClock(at)
	w.options.Registry = schema.NewRegistry(schema.NATS(server.URL()).With(schema.Key{
		Name: "foobar", Description: "Placeholder.", Type: schema.Int, Constraints: []schema.Constraint{schema.Between(1000, 9999)},
	}), schema.BEB())
	w.start(false)
	w.backend("any", `
type: "nats"
config:
- maxInFlightMessages: 10
`)
	w.awaits("any").Should(ready())
	w.g.Expect(proposed(w.get("any"))).To(Equal(statusOf(w.g, `
backendType: nats
conditions:
- lastTransitionTime: "2022-05-06T08:35:11Z"
  reason: Backend ready
  status: "True"
  type: Backend Ready
- lastTransitionTime: "2022-05-06T08:35:11Z"
  reason: Publisher proxy deployment ready
  status: "True"
  type: Publisher Proxy Ready
- lastTransitionTime: "2022-05-06T08:35:11Z"
  reason: Subscription controller started
  status: "True"
  type: Subscription Controller Ready
eventingReady: true
`)))
	w.g.Expect(w.get("any").Status.ObservedGeneration).To(BeEquivalentTo(1))

	w.change("any", `
type: "nats"
config:
- maxInFlightMessages: "ten"
- foobar: 100
- foo: bar
`)
	w.awaits("any").Should(Not(ready()))
	w.g.Expect(proposed(w.get("any"))).To(Equal(statusOf(w.g, `
backendType: nats
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
conditions:
- lastTransitionTime: "2022-05-06T08:35:11Z"
  reason: The provided spec.config has validation errors
  status: "False"
  type: Backend Ready
- lastTransitionTime: "2022-05-06T08:35:11Z"
  reason: Publisher proxy deployment ready
  status: "True"
  type: Publisher Proxy Ready
- lastTransitionTime: "2022-05-06T08:35:11Z"
  reason: Subscription controller started
  status: "True"
  type: Subscription Controller Ready
eventingReady: false
`)))
	w.g.Expect(w.get("any").Status.ObservedGeneration).To(BeEquivalentTo(2))
	w.g.Eventually(func() []string { return w.events("any") }).Should(ConsistOf(
		"Normal EventingReady the backend of type nats is ready",
		"Warning InvalidConfig maxInFlightMessages: should be of type int; foobar: must be set between 1000 and 9999; foo: config does not exist for backend type nats"))
}

// The second spec of the design proposal. Its Secret is created later.
func TestSecretOfTheProposal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.mesh()
	w.start(false)
	w.backend("beb", `
type: "beb"
config:
- secretRef: "some-secret"
`)
	w.awaits("beb").Should(Equal(map[string]string{
		"type": "beb", "eventingReady": "false",
		"Backend Ready":                 "False Backend not ready: Secret some-secret of secretRef does not exist in namespace " + w.namespace,
		"Publisher Proxy Ready":         "False Publisher proxy secret sync failed: Secret some-secret of secretRef does not exist in namespace " + w.namespace,
		"Subscription Controller Ready": "False Subscription controller not ready: Secret some-secret of secretRef does not exist in namespace " + w.namespace,
		"Ready":                         "False Backend not ready: Secret some-secret of secretRef does not exist in namespace " + w.namespace,
	}))
	w.secret("some-secret", m.serviceKey(canary))
	w.awaits("beb").Should(good("beb"))
	w.noCanary()
}
