package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Observed returns the value of observedTime, also of an object that an earlier version stored
// with the former name; nil if there is none. A former name that is present has the newer
// value: this version never writes it.
func (s *TargetStatus) Observed() *metav1.Time {
	if s.FormerObservedAt != nil {
		return s.FormerObservedAt
	}
	return s.ObservedTime
}
