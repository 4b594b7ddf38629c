package v1alpha1

import "k8s.io/apimachinery/pkg/util/json"

// UnmarshalJSON decodes the status of a target. A time that an earlier version stored
// under its former name is copied to the present name. The former field is kept: it
// shows that the stored object has the former shape.
func (s *TargetStatus) UnmarshalJSON(data []byte) error {
	type plain TargetStatus
	s.FormerObservedAt = nil
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return err
	}
	if s.FormerObservedAt != nil {
		s.ObservedTime = s.FormerObservedAt.DeepCopy()
	}
	return nil
}
