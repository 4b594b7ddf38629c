package instancestate

import (
	"context"
	"encoding/json"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
)

// maxRemediated is how many remediations a process remembers.
const maxRemediated = 1000

// remediatedFor is a Machine that was annotated for an event.
type remediatedFor struct {
	machine types.UID
	event   string
}

// remediate annotates the Machine of an object, in the object's cluster, if the source of a fact
// configures it and the instance was not alive after the fact. It does not check whether the label
// shows the fact: so the order of events does not matter, and a retry does the same. A message
// that waits for a handler is delivered again: then the Machine is not annotated again.
func (r *Labeler) remediate(ctx context.Context, key owner.Key, at seen, w work) error {
	if key.Pool() || len(w.from.remediate) == 0 {
		return nil
	}
	known, err := guard.ParseInstance(at.annotations[AnnotationGuard])
	if err != nil {
		return nil //nolint:nilerr // It was just written; a later wrong change is logged at the next merge.
	}
	if !slices.Contains(w.from.remediate, remediation(w.fact)) || known.Outlived(w.fact) || paused(ctx, r.reader(key.Cluster), at.cluster, &metav1.ObjectMeta{Namespace: key.Namespace, Annotations: at.annotations}) {
		return nil
	}
	for _, o := range at.owners {
		done := remediatedFor{o.UID, w.fact.ID}
		if _, before := r.remediated.Get(done); before || !capa.IsOwner(o, capa.Machine) {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": o.UID, "annotations": map[string]any{clusterv1.RemediateMachineAnnotation: ""},
		}})
		if err != nil {
			return err
		}
		switch err := r.writer.annotateMachine(ctx, key, o, patch); {
		case err == nil:
			r.remediated.Add(done, nil)
			r.metrics.remediated.WithLabelValues(string(w.fact.Kind)).Inc()
		case apierrors.IsForbidden(err):
			r.events.forbidden(ctx, key, at, o.Name, err)
			return err
		case !notFound(err) && !otherUID(err):
			return err
		}
	}
	return nil
}

// remediation returns the value for a fact in the remediate key of a source; empty when
// there is none.
func remediation(f message.Fact) string {
	switch f.Kind { //nolint:exhaustive // The other kinds cannot be configured.
	case message.SpotInterruption:
		return schema.RemediateSpot
	case message.CapacityReservation:
		return schema.RemediateReservation
	case message.ScheduledChange:
		if !f.Over {
			return schema.RemediateMaintenance
		}
	case message.Rebalance:
		return schema.RemediateRebalance
	case message.StateChange:
		if f.Label == message.LabelTerminated {
			return schema.RemediateTerminated
		}
	}
	return ""
}
