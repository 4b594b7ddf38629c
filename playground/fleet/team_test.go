package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

func post(t *testing.T, to *team, body string) int {
	t.Helper()
	answer := httptest.NewRecorder()
	to.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	return answer.Code
}

func promoteEvent(t *testing.T, id string) string {
	t.Helper()
	raw, err := json.Marshal(eventv1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: "Pipeline", Namespace: "apps", Name: "shop"},
		Reason:         "Promote",
		Metadata: map[string]string{
			"pipelines.weave.works/environment":  "staging",
			"pipelines.weave.works/revision":     "1.1.0",
			"pipelines.weave.works/promotion-id": id,
		},
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

func TestTeamActsOnceForEachID(t *testing.T) {
	g := NewWithT(t)
	var acts []notification
	to := newTeam(func(_ context.Context, n notification) error {
		acts = append(acts, n)
		return nil
	})
	g.Expect(post(t, to, promoteEvent(t, "a.0"))).To(Equal(http.StatusAccepted))
	g.Expect(post(t, to, promoteEvent(t, "a.0"))).To(Equal(http.StatusAccepted))
	g.Expect(post(t, to, promoteEvent(t, "a.1"))).To(Equal(http.StatusAccepted))
	g.Expect(acts).To(HaveLen(2))
	g.Expect(acts[0].Environment).To(Equal("staging"))
	g.Expect(acts[0].Revision).To(Equal("1.1.0"))
	g.Expect(acts[0].Pipeline).To(Equal("shop"))
	g.Expect(to.deliveries("a.0")).To(Equal(2))
	g.Expect(to.deliveries("a.1")).To(Equal(1))
	g.Expect(to.deliveries("b.0")).To(BeZero())
}

func TestTheTeamGetsTheEventAgainAfterAFailure(t *testing.T) {
	g := NewWithT(t)
	trouble := errors.New("the cluster does not answer")
	to := newTeam(func(context.Context, notification) error { return trouble })
	g.Expect(post(t, to, promoteEvent(t, "a.0"))).To(Equal(http.StatusInternalServerError))
	g.Expect(to.all()).To(BeEmpty())
	trouble = nil
	g.Expect(post(t, to, promoteEvent(t, "a.0"))).To(Equal(http.StatusAccepted))
	g.Expect(to.deliveries("a.0")).To(Equal(1))
}

// A user adds an environment with a name of their own: the team accepts the notification,
// which the hub would repeat otherwise.
func TestTeamAcceptsOtherEnvironments(t *testing.T) {
	g := NewWithT(t)
	to := newTeam(workloads{}.act)
	g.Expect(post(t, to, promoteEvent(t, "a.0"))).To(Equal(http.StatusAccepted))
	g.Expect(to.deliveries("a.0")).To(Equal(1))
}

func TestTeamRefusesWhatIsNoPromoteEvent(t *testing.T) {
	g := NewWithT(t)
	to := newTeam(func(context.Context, notification) error { return errors.New("unwanted") })
	g.Expect(post(t, to, "no JSON")).To(Equal(http.StatusBadRequest))
	g.Expect(post(t, to, `{"reason":"Promote","metadata":{"environment":"staging"}}`)).To(Equal(http.StatusUnprocessableEntity))
	g.Expect(post(t, to, `{"reason":"Updated"}`)).To(Equal(http.StatusAccepted))
	g.Expect(to.all()).To(BeEmpty())
}
