package eventnote_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/capstan-hub/capstan/internal/eventnote"
)

// An Event with a long message reaches the API server, and is cut at a character.
func TestLongNotesAreCut(t *testing.T) {
	for name, tc := range map[string]struct {
		args []any
		want string
	}{
		"short":                  {[]any{"100%"}, "Warning Failed cause: 100%"},
		"longer than the server": {[]any{strings.Repeat("ä", 2000)}, "Warning Failed cause: " + strings.Repeat("ä", (eventnote.Max-len("cause: ")-3)/2) + "…"},
		"not UTF-8":              {[]any{"a\xffb"}, "Warning Failed cause: a?b"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := events.NewFakeRecorder(1)
			eventnote.Bounded(recorder).Eventf(&corev1.ConfigMap{}, nil, corev1.EventTypeWarning, "Failed", "Promote", "cause: %s", tc.args...)
			got := <-recorder.Events
			g.Expect(got).To(Equal(tc.want))
			g.Expect(utf8.ValidString(got)).To(BeTrue())
			g.Expect(len(strings.TrimPrefix(got, "Warning Failed "))).To(BeNumerically("<=", eventnote.Max))
		})
	}
}
