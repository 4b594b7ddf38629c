package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// Objects that were stored before times were named by the Kubernetes API conventions
// contain them under their former names. Decoding copies such a time to its present name,
// where every reader finds it. It keeps the former field, which shows that the stored
// object has the former shape.
//
// A former name that is present has the newer value: this version removes former
// names with its first write, so an earlier version wrote it after that.

// UnmarshalJSON decodes the status, of the present or the former shape.
func (s *PromotionStatus) UnmarshalJSON(data []byte) error {
	type plain PromotionStatus
	s.FormerStartedAt, s.FormerFinishedAt = nil, nil
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return err
	}
	s.TakeFormerNames()
	return nil
}

// TakeFormerNames copies values under former names of the status itself to the present names.
// Decoding does it; a decoder that does not call UnmarshalJSON has to.
func (s *PromotionStatus) TakeFormerNames() {
	if s.FormerStartedAt != nil || s.FormerFinishedAt != nil {
		// Both are of one run: an earlier version that retried the promotion left the
		// time at which the run before it ended under the present name.
		s.StartTime, s.FinishTime = s.FormerStartedAt.DeepCopy(), s.FormerFinishedAt.DeepCopy()
	}
}

// PatchBase returns the object that a merge patch of the status starts from: p itself,
// or, where the stored object has former names, a copy in which the present names have
// no value. A patch between the decoded objects would remove the former names, and not
// contain the values under their present names.
func (p *Promotion) PatchBase() *Promotion {
	s := &p.Status
	run := s.FormerStartedAt != nil || s.FormerFinishedAt != nil
	approval := s.Approval != nil && s.Approval.FormerAt != nil
	attempt := s.Attempt != nil && (s.Attempt.FormerAt != nil || s.Attempt.FormerNotBefore != nil)
	if !run && !approval && !attempt {
		return p
	}
	base := p.DeepCopy()
	if run {
		// A zero time is null in JSON: the patch removes a value that does not exist any more.
		base.Status.StartTime, base.Status.FinishTime = &metav1.Time{}, &metav1.Time{}
	}
	if approval {
		base.Status.Approval.ApprovalTime = metav1.Time{}
	}
	if attempt {
		base.Status.Attempt.StartTime, base.Status.Attempt.NextAttemptTime = metav1.MicroTime{}, metav1.MicroTime{}
	}
	return base
}

// DropFormerNames removes the former names. Decoding copied their values to the
// present names.
func (s *PromotionStatus) DropFormerNames() {
	s.FormerStartedAt, s.FormerFinishedAt = nil, nil
	if s.Approval != nil {
		s.Approval.FormerAt = nil
	}
	if s.Attempt != nil {
		s.Attempt.FormerAt, s.Attempt.FormerNotBefore = nil, nil
	}
}

// UnmarshalJSON decodes the record, of the present or the former shape.
func (a *ApprovalRecord) UnmarshalJSON(data []byte) error {
	type plain ApprovalRecord
	a.FormerAt = nil
	if err := json.Unmarshal(data, (*plain)(a)); err != nil {
		return err
	}
	a.TakeFormerNames()
	return nil
}

// TakeFormerNames is that of PromotionStatus.
func (a *ApprovalRecord) TakeFormerNames() {
	if a.FormerAt != nil {
		a.ApprovalTime = *a.FormerAt.DeepCopy()
	}
}

// UnmarshalJSON decodes the attempt, of the present or the former shape.
func (a *Attempt) UnmarshalJSON(data []byte) error {
	type plain Attempt
	a.FormerAt, a.FormerNotBefore = nil, nil
	if err := json.Unmarshal(data, (*plain)(a)); err != nil {
		return err
	}
	a.TakeFormerNames()
	return nil
}

// TakeFormerNames is that of PromotionStatus.
func (a *Attempt) TakeFormerNames() {
	if a.FormerAt != nil {
		a.StartTime = *a.FormerAt.DeepCopy()
	}
	if a.FormerNotBefore != nil {
		a.NextAttemptTime = *a.FormerNotBefore.DeepCopy()
	}
}

// UnmarshalJSON decodes the status, of the present or the former shape.
func (s *ClusterConnectionStatus) UnmarshalJSON(data []byte) error {
	type plain ClusterConnectionStatus
	s.FormerSince, s.FormerCredentialExpiry = nil, nil
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return err
	}
	take := func(present **metav1.Time, former *metav1.Time) {
		if former != nil {
			*present = former.DeepCopy()
		}
	}
	take(&s.LastTransitionTime, s.FormerSince)
	take(&s.CredentialExpiryTime, s.FormerCredentialExpiry)
	return nil
}

// PatchBase returns the object that a merge patch of the status starts from, like that
// of a Promotion.
func (c *ClusterConnection) PatchBase() *ClusterConnection {
	if c.Status.FormerSince == nil && c.Status.FormerCredentialExpiry == nil {
		return c
	}
	base := c.DeepCopy()
	base.Status.LastTransitionTime, base.Status.CredentialExpiryTime = &metav1.Time{}, &metav1.Time{}
	return base
}

// DropFormerNames removes the former names. Decoding copied their values to the
// present names.
func (s *ClusterConnectionStatus) DropFormerNames() {
	s.FormerSince, s.FormerCredentialExpiry = nil, nil
}
