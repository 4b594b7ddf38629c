package eventnote

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/capstan-hub/capstan/internal/truncate"
)

// Max is the longest note that an API server accepts, in bytes.
const Max = 1024

// Bounded returns a recorder that shortens notes to Max.
func Bounded(r recorder.EventRecorder) recorder.EventRecorder { return bounded{r} }

type bounded struct{ recorder.EventRecorder }

// Eventf implements events.EventRecorder.
func (b bounded) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	b.EventRecorder.Eventf(regarding, related, kind, reason, action, "%s", truncate.Bytes(fmt.Sprintf(note, args...), Max))
}

// AnnotatedEventf implements events.AnnotatedEventRecorder.
func (b bounded) AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, kind, reason, action, note string, args ...any) {
	b.EventRecorder.AnnotatedEventf(regarding, related, annotations, kind, reason, action, "%s", truncate.Bytes(fmt.Sprintf(note, args...), Max))
}
