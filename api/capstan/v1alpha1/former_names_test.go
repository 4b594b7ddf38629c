package v1alpha1

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	if err := json.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func encode(t *testing.T, o any) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A status of the former shape becomes one of the present shape with the same times.
func TestFormerNamesOfAPromotion(t *testing.T) {
	s := decode[PromotionStatus](t, `{
		"startedAt":"2026-01-01T00:00:00Z","finishedAt":"2026-01-02T00:00:00Z",
		"approval":{"by":"ann","method":"HTTP","at":"2026-01-01T01:00:00Z"},
		"attempt":{"number":3,"holder":"hub","at":"2026-01-01T02:00:00.000001Z","notBefore":"2026-01-01T03:00:00.000002Z"}}`)
	s.DropFormerNames()
	want := `{"startTime":"2026-01-01T00:00:00Z","finishTime":"2026-01-02T00:00:00Z",` +
		`"approval":{"by":"ann","approvalTime":"2026-01-01T01:00:00Z","method":"HTTP"},` +
		`"attempt":{"number":3,"startTime":"2026-01-01T02:00:00.000001Z","holder":"hub","nextAttemptTime":"2026-01-01T03:00:00.000002Z"}}`
	if got := encode(t, s); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := encode(t, decode[PromotionStatus](t, want)); got != want {
		t.Errorf("the present shape is decoded as\n%s", got)
	}
}

// An earlier version that was put back writes former names next to present ones: its
// values are the newer ones.
func TestAFormerNameIsNewer(t *testing.T) {
	s := decode[PromotionStatus](t, `{"startTime":"2026-01-01T00:00:00Z","finishTime":"2026-01-02T00:00:00Z","startedAt":"2026-01-03T00:00:00Z",
		"attempt":{"number":1,"holder":"hub","startTime":"2026-01-01T00:00:00.000000Z","nextAttemptTime":"2026-01-01T00:00:00.000000Z","notBefore":"2026-01-04T00:00:00.000000Z"}}`)
	if want := time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC); !s.StartTime.Equal(&metav1.Time{Time: want}) {
		t.Errorf("startTime is %s", s.StartTime)
	}
	if s.FinishTime != nil {
		t.Errorf("finishTime is %s: it was of the run before", s.FinishTime)
	}
	if want := time.Date(2026, 1, 4, 0, 0, 0, 0, time.UTC); !s.Attempt.NextAttemptTime.Time.Equal(want) {
		t.Errorf("nextAttemptTime is %s", s.Attempt.NextAttemptTime)
	}
}

// Decoding into an object that was of the former shape leaves no former name in it.
func TestDecodingIntoAnObjectOfTheFormerShape(t *testing.T) {
	s := decode[ClusterConnectionStatus](t, `{"since":"2026-01-01T00:00:00Z","credentialExpiry":"2026-01-02T00:00:00Z"}`)
	if s.LastTransitionTime == nil || s.CredentialExpiryTime == nil {
		t.Fatalf("the times are lost: %+v", s)
	}
	present := `{"lastTransitionTime":"2026-01-03T00:00:00Z","credentialExpiryTime":"2026-01-02T00:00:00Z"}`
	if err := json.Unmarshal([]byte(present), s); err != nil {
		t.Fatal(err)
	}
	if got := encode(t, s); got != present {
		t.Errorf("got %s", got)
	}
}
