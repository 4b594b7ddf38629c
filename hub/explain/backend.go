package explain

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// WriteBackend prints what becomes of the events of an EventingBackend at a time, and in one
// sentence why it is not ready.
func WriteBackend(out io.Writer, o *eventingv1.EventingBackend, now time.Time) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "EventingBackend %s/%s (%s)\n", o.Namespace, o.Name, o.Spec.Type)
	table := tabwriter.NewWriter(b, 0, 0, gap, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s%s\t%s\n", indent, name, fmt.Sprintf(format, args...))
	}
	ready := o.Status.Condition(eventingv1.ReadyCondition)
	switch {
	case ready == nil:
	case ready.Status == metav1.ConditionTrue:
		row("ready", "yes, for %s", duration.HumanDuration(now.Sub(ready.LastTransitionTime.Time)))
	default:
		row("ready", "no, for %s", duration.HumanDuration(now.Sub(ready.LastTransitionTime.Time)))
	}
	if d := o.Status.Delivery; d != nil {
		row("waiting", "%s", waiting(d, now))
		row("last success", "%s", agoOf(d.LastSuccess, now))
		if d.RefusedInARow > 0 {
			row("refused", "%d events since the last one was accepted", d.RefusedInARow)
		}
		if d.DeadLetters > 0 {
			row("dead letters", "%d in the dead-letter queue", d.DeadLetters)
		}
		if d.GivenUp > 0 {
			last := ptr.Deref(d.LastGivenUp, eventingv1.GivenUp{})
			row("given up", "%d events so far, the last one %s: %s", d.GivenUp, agoOf(&last.Time, now), last.Reason)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	b.WriteString("\n" + wrap("Why: "+whyBackend(o, ready), ""))
	for _, e := range o.Status.ValidationErrors {
		b.WriteString(wrap(fmt.Sprintf("%s: %s", e.Config, e.Error), indent))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// waiting describes the events that wait.
func waiting(d *eventingv1.Delivery, now time.Time) string {
	text := fmt.Sprintf("%d events", d.Waiting)
	if d.InFlight > 0 {
		text += fmt.Sprintf(", and %d in flight", d.InFlight)
	}
	if d.OldestWaiting != nil {
		text += fmt.Sprintf("; the oldest for %s", duration.HumanDuration(now.Sub(d.OldestWaiting.Time)))
	}
	return text
}

func agoOf(t *metav1.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	return duration.HumanDuration(now.Sub(t.Time)) + " ago"
}

// whyBackend says in one sentence why a backend is ready or not.
func whyBackend(o *eventingv1.EventingBackend, ready *eventingv1.Condition) string {
	switch {
	case ready == nil || o.Status.ObservedGeneration < o.Generation:
		return "the hub has not observed this EventingBackend, or its last change: check that the hub runs and leads."
	case ready.Status != metav1.ConditionTrue:
		return ready.Reason + ": " + strings.TrimSuffix(ready.Message, ".") + "."
	case ready.Message != "":
		return "it is ready; " + strings.TrimSuffix(ready.Message, ".") + "."
	}
	return "it is ready."
}
