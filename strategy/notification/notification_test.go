package notification

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/internal/netguard/netguardtest"
	"github.com/capstan-hub/capstan/strategy"
)

func promotion(attempt int64) *capstanv1.Promotion {
	at := metav1.NewTime(time.Unix(1_800_000_000, 0))
	p := &capstanv1.Promotion{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web-prod-1", UID: "uid-1"}}
	p.Spec.Pipeline = capstanv1.PipelineReference{Name: "web", UID: "uid-p"}
	p.Spec.Environment, p.Spec.Revision = "prod", "1.1.0"
	p.Status.StartTime = &at
	p.Status.Attempt = &capstanv1.Attempt{Number: attempt}
	return p
}

// C26
func TestHandles(t *testing.T) {
	g := NewWithT(t)
	s := New(Options{})
	g.Expect(s.Handles(pipelinesv1.Strategy{})).To(BeFalse())
	g.Expect(s.Handles(pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}})).To(BeTrue())
}

// C27: reason and message are exactly weave's.
func TestMessageIsWeaves(t *testing.T) {
	e := fluxEvent(promotion(1))
	g := NewWithT(t)
	g.Expect(e.Message).To(Equal("Promote pipeline team/web to prod with version 1.1.0"))
	g.Expect(e.Reason).To(Equal("Promote"))
	g.Expect(e.InvolvedObject.Kind).To(Equal("Pipeline"))
	g.Expect(e.InvolvedObject.UID).To(BeEquivalentTo("uid-p"))
}

// notification-controller keeps metadata only under the prefix of the object's
// group (cleanupMetadata in its event server).
func TestMetadataSurvivesNotificationController(t *testing.T) {
	g := NewWithT(t)
	e := fluxEvent(promotion(1))
	for k := range e.Metadata {
		g.Expect(strings.HasPrefix(k, "pipelines.weave.works/")).To(BeTrue(), k)
	}
	g.Expect(e.Metadata).To(HaveKeyWithValue("pipelines.weave.works/promotion-id", "uid-1.0"))
	g.Expect(e.Metadata).To(HaveKeyWithValue("pipelines.weave.works/token", "uid-1.0"))
}

func TestRepetitionIsTheSameEvent(t *testing.T) {
	g := NewWithT(t)
	first, err := json.Marshal(fluxEvent(promotion(1)))
	g.Expect(err).NotTo(HaveOccurred())
	second, err := json.Marshal(fluxEvent(promotion(2)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).To(Equal(first))

	again := promotion(1)
	again.Status.Retry = 1
	g.Expect(fluxEvent(again).Metadata[KeyPromotionID]).To(Equal("uid-1.1"), "spec.retry makes another action")
}

func TestAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		code     int
		after    string
		attempt  int64
		accepted bool
		wait     time.Duration
	}{
		"accepted":                   {http.StatusAccepted, "", 1, true, 0},
		"ok":                         {http.StatusOK, "", 1, true, 0},
		"a duplicate, on repetition": {http.StatusTooManyRequests, "", 2, true, 0},
		"too many, at first":         {http.StatusTooManyRequests, "7", 1, false, 7 * time.Second},
		"unavailable":                {http.StatusServiceUnavailable, "", 1, false, 0},
		"unavailable for a while":    {http.StatusServiceUnavailable, "30", 3, false, 30 * time.Second},
		"unavailable until a date":   {http.StatusServiceUnavailable, "Sun, 22 Nov 2026 08:01:00 GMT", 1, false, time.Minute},
		"unavailable for years":      {http.StatusServiceUnavailable, "99999999", 1, false, time.Hour},
		"unavailable for no time":    {http.StatusServiceUnavailable, "0", 1, false, 0},
		"not found":                  {http.StatusNotFound, "", 1, false, 0},
		"moved":                      {http.StatusFound, "", 1, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			response := &http.Response{StatusCode: tc.code, Status: http.StatusText(tc.code), Header: http.Header{"Date": {"Sun, 22 Nov 2026 08:00:00 GMT"}}}
			if tc.after != "" {
				response.Header.Set("Retry-After", tc.after)
			}
			err := accepted(response, "no\xff", promotion(tc.attempt))
			g.Expect(err == nil).To(Equal(tc.accepted))
			var later *strategy.RetryAfterError
			if errors.As(err, &later) {
				g.Expect(later.After).To(Equal(tc.wait))
			} else {
				g.Expect(tc.wait).To(BeZero())
			}
		})
	}
}

// TestForbiddenAddresses proves the policy of internal/netguard for --events-addr and for the
// redirects of its receiver: forbidden addresses are refused, loopback is allowed.
func TestForbiddenAddresses(t *testing.T) {
	g := NewWithT(t)
	target := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case to := <-target:
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		default:
		}
	}))
	t.Cleanup(receiver.Close)
	post := func(address string) error {
		s := New(Options{Address: address})
		defer s.o.HTTPClient.CloseIdleConnections()
		return s.post(t.Context(), promotion(1))
	}
	g.Expect(post(receiver.URL)).To(Succeed())
	for _, a := range netguardtest.Forbidden {
		g.Expect(post("http://"+a.HostPort("1"))).To(MatchError(netguard.ErrForbidden), a.IP)
		target <- "http://" + a.HostPort("1")
		g.Expect(post(receiver.URL)).To(MatchError(netguard.ErrForbidden), a.IP)
	}
}
