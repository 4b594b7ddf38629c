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
	"github.com/capstan-hub/capstan/internal/capa"
)

// Explanation says why a node group has its capacity annotations, or has none.
type Explanation struct {
	// Cluster of the group as namespace/name; empty when there is none.
	Cluster string
	// InstanceTypes of its nodes; none when they are not known.
	InstanceTypes []string
	// Region of AWS, and the kind and name of the object that names it; empty when not known.
	Region, RegionBy string
	// RoleARN of the calls to EC2 for the group; empty for the hub's own identity.
	RoleARN string
	// Role is the ARN of the role with which EC2 is called for its cluster; empty for the hub's own
	// identity. RoleRefused is why the role of its cluster's identity is not used; empty if it is, or if there is none.
	Role, RoleRefused string
	// Values of its capacity annotations.
	Values []annotation.Value
	// Why, in one sentence.
	Why string
}

// Explain returns what the Reconciler would decide about a node group in the management
// cluster. It reads only Kubernetes objects, through a reader of the API server, and does not
// call EC2. events are the group's Events, the newest first; Explain uses those of this
// package. Errors are the reader's.
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
	if role, err := roleOf(ctx, c, from.where); err == nil {
		e.RoleARN = role.ARN
	}
	// What the user may not read is not shown: the rest is useful without it.
	if role, refused, err := capa.RoleOf(ctx, c, from.where.IdentityOf); err == nil {
		e.Role, e.RoleRefused = role.ARN, refused
	}
	switch {
	case errors.Is(err, errForeign):
		e.Why = "its nodes belong to another infrastructure provider: the hub annotates only node groups of Cluster API Provider AWS."
	case err != nil:
		problems := unread(err).notices
		if len(problems) == 0 || problems[0].reason == ReasonReconcileError {
			return e, err
		}
		e.Why = problems[0].word + ": " + problems[0].message + "."
	case group.GetDeletionTimestamp() != nil:
		e.Why = "it is being deleted: the hub does not annotate it."
	case capa.OwnedByDeployment(group):
		e.Why = "a MachineDeployment owns it: the hub annotates that one instead."
	case from.leave != "":
		e.Why = from.leave + ": the hub does not annotate it."
	default:
		e.Why = annotated(group, from.made.types, e.Region, events)
	}
	return e, nil
}

// annotated returns why a node group is annotated or not, if all its objects are known.
func annotated(group *unstructured.Unstructured, types []string, region string, events []corev1.Event) string {
	_, applied := group.GetAnnotations()[annotation.Applied]
	of := strings.Join(types, ", ") + " in " + region
	last := newest(events)
	switch {
	case applied && last == nil:
		return "its annotations have the values that EC2 reports for " + of + "."
	case applied:
		return fmt.Sprintf("its annotations have earlier values of EC2; its nodes are now of %s. Last Event: %s.", of, trimmed(last.Message))
	case last != nil:
		return "nothing has been written yet. Last Event: " + trimmed(last.Message) + "."
	}
	return "nothing has been written yet, and there is no Event: the hub waits for EC2's answer about " + of + "; if this does not change, the hub does not run, or runs without --annotator."
}

func trimmed(sentence string) string { return strings.TrimSuffix(sentence, ".") }

// newest returns the newest Warning of this package, unless a later Event says that it is over.
// Events are sorted, the newest first.
func newest(events []corev1.Event) *corev1.Event {
	for i := range events {
		switch events[i].Reason {
		case ReasonFailedUpdate, ReasonReconcileError, ReasonInvalidAnnotation:
			return &events[i]
		case ReasonResolved:
			return nil
		}
	}
	return nil
}
