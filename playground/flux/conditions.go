package flux

import (
	"slices"
	"strings"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// set sets a condition as Flux does: the transition time changes with any field of the
// condition, the generation is the object's, and Ready is first.
func set(obj *helmv2.HelmRelease, kind string, status metav1.ConditionStatus, reason, message string) {
	wanted := metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: obj.Generation,
		LastTransitionTime: metav1.NewTime(time.Now().UTC().Truncate(time.Second)),
	}
	conditions := &obj.Status.Conditions
	i := slices.IndexFunc(*conditions, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		*conditions = append(*conditions, wanted)
	} else {
		same := (*conditions)[i]
		same.LastTransitionTime = wanted.LastTransitionTime
		if same == wanted {
			return
		}
		(*conditions)[i] = wanted
	}
	slices.SortStableFunc(*conditions, func(a, b metav1.Condition) int {
		if d := rank(a.Type) - rank(b.Type); d != 0 {
			return d
		}
		return strings.Compare(a.Type, b.Type)
	})
}

func remove(obj *helmv2.HelmRelease, kind string) {
	obj.Status.Conditions = slices.DeleteFunc(obj.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
}

func rank(kind string) int {
	switch kind {
	case meta.ReadyCondition:
		return 0
	case meta.ReconcilingCondition:
		return 1
	case meta.StalledCondition:
		return 2
	default:
		return 3
	}
}
