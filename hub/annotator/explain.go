package annotator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/annotator/annotation"
)

// Explanation of why a node group bears its capacity annotations, or lacks them.
type Explanation struct {
	// Cluster of the group as namespace/name; empty when there is none.
	Cluster string
	// InstanceTypes of its nodes; none when that cannot be told.
	InstanceTypes []string
	// Region of AWS, and the kind and name of what names it; empty when that cannot be told.
	Region, RegionBy string
	// Values that it bears.
	Values []annotation.Value
	// Why, in one sentence.
	Why string
}

// Explain says of a node group in the management cluster what the Reconciler would
// decide of it, as far as that is in Kubernetes' objects: EC2 is not asked. Of its Events, the
// newest first, those of this package count. It is for a reader of the API server.
// Errors are the reader's, where something that is needed may not be read.
func Explain(ctx context.Context, c client.Reader, group *unstructured.Unstructured, defaultRegion string, events []corev1.Event) (Explanation, error) {
	e := Explanation{Values: annotation.Values(group.GetAnnotations())}
	from, err := originOf(ctx, c, group, defaultRegion)
	if from.cluster != nil {
		e.Cluster = from.cluster.GetNamespace() + "/" + from.cluster.GetName()
	}
	e.InstanceTypes, e.Region, e.RegionBy = from.made.types, from.where.Region, "an annotation, or --default-region"
	if by := from.where.NamedBy; by != nil {
		e.RegionBy = by.GetKind() + " " + by.GetName()
	}
	switch {
	case errors.Is(err, errForeign):
		e.Why = "its nodes are another infrastructure provider's: the hub annotates those of Cluster API Provider AWS alone."
	case err != nil:
		told := unread(err).notices
		if len(told) == 0 || told[0].reason == ReasonReconcileError {
			return e, err
		}
		e.Why = told[0].word + ": " + told[0].message + "."
	case group.GetDeletionTimestamp() != nil:
		e.Why = "it is being deleted, and left alone."
	case ownedByDeployment(group):
		e.Why = "it is a MachineDeployment's, which is annotated in its place."
	case from.leave != "":
		e.Why = from.leave + ", and left alone until it is not."
	default:
		e.Why = annotated(group, from.made.types, e.Region, events)
	}
	return e, nil
}

// annotated says why a node group of which everything is known is annotated or not.
func annotated(group *unstructured.Unstructured, types []string, region string, events []corev1.Event) string {
	_, applied := group.GetAnnotations()[annotation.Applied]
	of := strings.Join(types, ", ") + " in " + region
	told := newest(events)
	switch {
	case applied && told == nil:
		return "it bears what EC2 says of " + of + "."
	case applied:
		return fmt.Sprintf("it bears what EC2 said of its nodes, which are of %s now. Last told: %s.", of, trimmed(told.Message))
	case told != nil:
		return "nothing was written yet. Last told: " + trimmed(told.Message) + "."
	}
	return "nothing was written yet, and nothing told: the hub waits for what EC2 says of " + of + "; if this stays, it does not run, or without --annotator."
}

func trimmed(sentence string) string { return strings.TrimSuffix(sentence, ".") }

// newest Warning of this package among Events that are sorted, the newest first.
func newest(events []corev1.Event) *corev1.Event {
	for i := range events {
		switch events[i].Reason {
		case ReasonFailedUpdate, ReasonReconcileError, ReasonInvalidAnnotation:
			return &events[i]
		}
	}
	return nil
}
