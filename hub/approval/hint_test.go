package approval

import (
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

func secretOfWorld(w *world) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "hmac"}}
}

// tell sends a hint that dev has a revision.
func (w *world) tell(url, pipeline, revision string) answer {
	w.t.Helper()
	path := PromotionPath(w.ns, pipeline, "dev")
	body := `{"involvedObject":{"apiVersion":"helm.toolkit.fluxcd.io/v2beta2","kind":"HelmRelease","namespace":"shop","name":"web"},"metadata":{"revision":"` + revision + `"}}`
	return w.post(url, path, Sign(key, http.MethodPost, path, time.Now(), []byte(body)), body)
}

// C21, C22: the answer of a hint is the result of the promotion of its revision.
func TestAnswerOfHint(t *testing.T) {
	w := newWorld(t)
	url := w.serve()
	for name, tc := range map[string]struct {
		status         capstanv1.PromotionStatus
		code           int
		says, location string
	}{
		"pull-request": {capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingMerge, URL: pull}, 201, "", pull},
		"carried-out":  {capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout}, 204, "", ""},
		"succeeded":    {capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, URL: pull}, 201, "", pull},
		"failed":       {capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "BadCredentials", Message: "401"}, 500, weaveFailed + ": Promotion " + w.ns + "/failed-prod-1: BadCredentials: 401", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w.promotion(w.pipeline(name), 1, "1.1.0", tc.status)
			NewWithT(t).Expect(w.tell(url, name, "1.1.0")).To(Equal(answer{tc.code, tc.says, tc.location}))
			w.mu.Lock()
			defer w.mu.Unlock()
			NewWithT(t).Expect(w.woken).To(ContainElement(types.NamespacedName{Namespace: w.ns, Name: name}))
		})
	}
}

// The call does not wait if the environment already runs the revision, or if the Pipeline is
// suspended.
func TestNothingToWaitFor(t *testing.T) {
	w := newWorld(t)
	url := w.serve()
	p := w.pipeline("there")
	p.Status.Environments = map[string]*pipelinesv1.EnvironmentStatus{"prod": {Targets: []pipelinesv1.TargetStatus{
		{ClusterAppRef: pipelinesv1.ClusterAppReference{LocalAppReference: p.Spec.AppRef}, Ready: true, Revision: "1.1.0"},
	}}}
	w.Expect(w.c.Status().Update(t.Context(), p)).To(Succeed())
	begun := time.Now()
	w.Expect(w.tell(url, "there", "1.1.0+0cc9a8446c95").Code).To(Equal(204))
	p = w.pipeline("suspended")
	p.Spec.Suspend = true
	w.Expect(w.c.Update(t.Context(), p)).To(Succeed())
	w.Expect(w.tell(url, "suspended", "1.1.0").Code).To(Equal(204))
	w.Expect(time.Since(begun)).To(BeNumerically("<", patience))
}

// A promotion of another revision does not end the wait.
func TestHintWaitsForItsOwnRevision(t *testing.T) {
	w := newWorld(t)
	p := w.pipeline("own")
	w.promotion(p, 1, "1.0.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingMerge, URL: "https://git.example.org/fleet/pulls/1"})
	done := make(chan answer, 1)
	url := w.serve()
	go func() { done <- w.tell(url, "own", "1.1.0") }()
	w.Consistently(done, time.Second).ShouldNot(Receive())
	w.promotion(p, 2, "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingMerge, URL: pull})
	w.Eventually(done, 2*patience).Should(Receive(Equal(answer{201, "", pull})))
}

// A standby triggers the leader through an annotation, and changes nothing else.
func TestStandbyAnnotates(t *testing.T) {
	w := newWorld(t)
	w.options.Leads = func() bool { return false }
	p := w.pipeline("standby")
	w.promotion(p, 1, "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded})
	w.Expect(w.tell(w.serve(), "standby", "1.1.0").Code).To(Equal(204))
	w.Expect(w.woken).To(BeEmpty())
	now := &pipelinesv1.Pipeline{}
	w.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(p), now)).To(Succeed())
	at, err := time.Parse(time.RFC3339Nano, now.Annotations[pipelinesv1.RequestedAtAnnotation])
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(at).To(BeTemporally("~", time.Now(), time.Minute))
	w.Expect(now.Generation).To(Equal(p.Generation))
}

func TestSameRevision(t *testing.T) {
	g := NewWithT(t)
	g.Expect(same("1.1.0", "1.1.0")).To(BeTrue())
	g.Expect(same("1.1.0+0cc9a8446c95", "1.1.0")).To(BeTrue())
	g.Expect(same("1.1.0+build.7", "1.1.0+build.7")).To(BeTrue())
	g.Expect(same("1.1.0", "1.1.0+build.7")).To(BeFalse())
	g.Expect(same("1.1.01", "1.1.0")).To(BeFalse())
	g.Expect(same("+x", "")).To(BeFalse())
}

// The answer repeats names of the path unchanged, and as plain text.
func TestAnswersAreText(t *testing.T) {
	w := newWorld(t)
	w.pipeline("text")
	path := PromotionPath(w.ns, "text", "<script>")
	body := `{"metadata":{"revision":"1"}}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.serve()+path, strings.NewReader(body))
	w.Expect(err).NotTo(HaveOccurred())
	request.Header = Sign(key, http.MethodPost, path, time.Now(), []byte(body))
	response, err := http.DefaultClient.Do(request)
	w.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	w.Expect(response.StatusCode).To(Equal(422))
	w.Expect(response.Header.Get("Content-Type")).To(Equal("text/plain; charset=utf-8"))
	w.Expect(response.Header.Get("X-Content-Type-Options")).To(Equal("nosniff"))
}
