package backend_test

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/backend"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/sink/chat/chattest"
)

// TestChat: the conditions of backends of types slack and msteams say what is wrong with the Secret and the
// template, and whether the webhook exists. The address is in no status, Event, log and metric.
func TestChat(t *testing.T) {
	for kind, accepts := range map[string]http.HandlerFunc{
		"slack": chattest.Status(http.StatusOK, "ok"), "msteams": chattest.Status(http.StatusAccepted, ""),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			hook := chattest.Serve(t, accepts)
			r := w.start(false)
			w.g.Expect(w.registry.Register(r.Publisher())).To(Succeed())
			w.g.Expect(w.registry.Register(&backend.Collector{Reader: w.Client})).To(Succeed())

			w.backend("b", `{type: `+kind+`, config: [{secretRef: chat}, {template: "{{.Revison}}"}]}`)
			w.awaits("b").Should(HaveKeyWithValue("Ready", "False The provided spec.config has validation errors: template: .Revison: there is no field Revison"))
			w.g.Expect(w.get("b").Status.ValidationErrors).To(Equal([]eventingv1.ValidationError{
				{Type: eventingv1.InvalidValue, Config: "template", Value: "{{.Revison}}", Error: ".Revison: there is no field Revison"},
			}))
			right := `{type: ` + kind + `, config: [{secretRef: chat}, {template: "{{.Revision}} {{.URL}}"}, {retryBackoff: 100ms}, {retryBackoffMax: 200ms}]}`
			w.change("b", right)
			w.awaits("b").Should(HaveKeyWithValue("Backend Ready", "False Backend not ready: Secret chat of secretRef does not exist in namespace "+w.namespace))
			w.secret("chat", map[string][]byte{"url": []byte("http://hooks.example.org/" + canary)})
			w.awaits("b").Should(And(
				HaveKeyWithValue("Backend Ready", "False Backend not ready: secretRef chat: Secret cannot be used: key url must be one https URL without user and fragment"),
				HaveKeyWithValue("Publisher Proxy Ready", HavePrefix("False Publisher proxy secret sync failed: ")),
			))
			w.secret("chat", hook.Secret())
			w.awaits("b").Should(good(kind))

			p := chattest.Promotion(capstanv1.PhaseAwaitingApproval)
			r.Publisher().Publish(chattest.Event(t, p, event.PromotionDetected), nil) // Not one of the default event types.
			r.Publisher().Publish(chattest.Event(t, p, event.PromotionWaiting), nil)
			w.g.Eventually(hook.Bodies).Should(ConsistOf(ContainSubstring(p.Spec.Revision)))

			hook.Answer(chattest.Status(http.StatusNotFound, "no_service"))
			r.Publisher().Publish(chattest.Event(t, chattest.Promotion(capstanv1.PhaseFailed), event.PromotionFailed), nil)
			meaning := map[string]types.GomegaMatcher{
				"slack":   HaveSuffix("404 Not Found: no_service (the webhook was removed or disabled: make a new one)"),
				"msteams": HaveSuffix("404 Not Found: the workflow was deleted or is off, or the address is wrong"),
			}
			w.awaits("b").Should(HaveKeyWithValue("Publisher Proxy Ready", And(HavePrefix("False Publisher proxy deployment not ready: events are held back: "), meaning[kind])))
			// With another webhook, the event that was held back is posted.
			hook.Answer(accepts)
			w.awaits("b").Should(good(kind))
			w.g.Eventually(func() string { return hook.Last(t) }).Should(ContainSubstring("1.2.0"))
			w.noCanary()
		})
	}
}
