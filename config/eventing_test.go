package config_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/outbox"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// The samples are valid for their schemas.
func TestSampleBackendsAreValid(t *testing.T) {
	g := NewWithT(t)
	r, err := schema.Types(schema.Options{NATSURL: "nats://nats:4222", SQSSourceNamespaces: []string{schema.AllNamespaces}})
	g.Expect(err).NotTo(HaveOccurred())
	var documents []string
	for _, file := range []string{"eventingbackend.yaml", "eventing.yaml"} {
		text, err := os.ReadFile("samples/" + file)
		g.Expect(err).NotTo(HaveOccurred())
		documents = append(documents, strings.Split(string(text), "\n---\n")...)
	}
	g.Expect(documents).To(HaveLen(4))
	for _, document := range documents {
		var b eventingv1.EventingBackend
		g.Expect(yaml.UnmarshalStrict([]byte(document), &b)).To(Succeed())
		_, invalid := r.Resolve(&b)
		g.Expect(invalid).To(BeEmpty(), b.Name)
		g.Expect(b.Labels).To(HaveKeyWithValue(eventingv1.BackendLabel, eventingv1.BackendLabelValue))
	}
}

func TestHubChangesOnlyItsMarksOfEventingBackends(t *testing.T) {
	g := NewWithT(t)
	inForce(t)
	ns := namespace(t, "backends")
	b := &eventingv1.EventingBackend{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "b", Annotations: map[string]string{"owner": "team"}, Finalizers: []string{"team.example.com/own"}},
		Spec:       eventingv1.EventingBackendSpec{Type: "nats"},
	}
	g.Expect(world.admin.Create(t.Context(), b)).To(Succeed())
	hub := as(t, hubUser)
	patch := func(json string) error {
		return hub.Patch(t.Context(), b.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(json)))
	}
	g.Eventually(func() bool { return apierrors.IsForbidden(patch(`{"spec":{"type":"http"}}`)) }).WithTimeout(patience).Should(BeTrue())
	for _, json := range []string{
		`{"spec":{"config":[{"url":"nats://elsewhere"}]}}`,
		`{"metadata":{"annotations":{"owner":null}}}`,
		`{"metadata":{"annotations":{"another":"x"}}}`,
		`{"metadata":{"finalizers":["capstan.dev/eventing-backend"]}}`,
		`{"metadata":{"finalizers":["team.example.com/own","capstan.dev/x"]}}`,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`,
	} {
		g.Expect(patch(json)).To(MatchError(ContainSubstring("of an EventingBackend, the hub may change only the finalizer capstan.dev/eventing-backend and the annotation capstan.dev/told")), json)
	}
	for _, json := range []string{
		`{"metadata":{"finalizers":["team.example.com/own","` + eventingv1.BackendFinalizer + `"]}}`,
		`{"metadata":{"annotations":{"` + outbox.RecordAnnotation + `":"{}"}}}`,
		`{"metadata":{"finalizers":["team.example.com/own"]}}`,
	} {
		g.Expect(patch(json)).To(Succeed(), json)
	}
	g.Expect(world.admin.Patch(t.Context(), b, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null},"spec":{"type":"http"}}`)))).To(Succeed())
}

// kubectl prints the columns of a backend. The names of its conditions contain spaces.
func TestColumnsOfEventingBackends(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t, "columns")
	b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "bus"}, Spec: eventingv1.EventingBackendSpec{Type: "nats"}}
	g.Expect(world.admin.Create(t.Context(), b)).To(Succeed())
	b.Status = eventingv1.EventingBackendStatus{BackendType: "nats", EventingReady: ptr.To(false), Conditions: []eventingv1.Condition{
		{Type: "Backend Ready", Status: metav1.ConditionFalse, Reason: "Backend not ready"},
		{Type: "Publisher Proxy Ready", Status: metav1.ConditionTrue, Reason: "Publisher proxy deployment ready"},
		{Type: "Subscription Controller Ready", Status: metav1.ConditionUnknown, Reason: "Subscription controller not ready"},
		{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Backend not ready", Message: "unreachable"},
	}, Delivery: &eventingv1.Delivery{
		Waiting: 3, RefusedInARow: 4, GivenUp: 5,
		OldestWaiting: &metav1.Time{Time: time.Now().Add(-5*time.Minute - 30*time.Second)}, LastSuccess: &metav1.Time{Time: time.Now().Add(-time.Hour - 30*time.Second)},
	}}
	g.Expect(world.admin.Status().Update(t.Context(), b)).To(Succeed())
	shown := func(args ...string) [][]string {
		out, _, err := kubectl(t.Context(), append([]string{"get", "-n", ns}, args...)...)
		g.Expect(err).NotTo(HaveOccurred())
		var rows [][]string
		for line := range strings.Lines(out) {
			// At least two spaces separate two columns.
			rows = append(rows, regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1))
		}
		return rows
	}
	header := []string{"NAME", "TYPE", "EVENTING READY", "BACKEND", "PUBLISHER", "SUBSCRIPTIONS", "AGE"}
	row := []any{"bus", "nats", "false", "False", "True", "Unknown", Not(BeEmpty())}
	g.Expect(shown("ebe")).To(HaveExactElements(Equal(header), HaveExactElements(row...)))
	g.Expect(shown("eventingbackends", "-o", "wide")).To(HaveExactElements(
		Equal(append(header, "WAITING", "OLDEST", "LAST SUCCESS", "REFUSED", "GIVEN UP", "MESSAGE")),
		HaveExactElements(append(row, "3", HavePrefix("5m"), HavePrefix("60m"), "4", "5", "unreachable")...)))
}
