package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CheckVerdict is the result of one measurement of a check.
// +kubebuilder:validation:Enum=Pass;Fail;NoData;Error
type CheckVerdict string

// Verdicts. Only Fail counts against a revision.
const (
	// CheckPass: the expression is true.
	CheckPass CheckVerdict = "Pass"
	// CheckFail: the expression is false.
	CheckFail CheckVerdict = "Fail"
	// CheckNoData: there was nothing to judge, such as an empty result of a query, or a target that
	// cannot be observed.
	CheckNoData CheckVerdict = "NoData"
	// CheckError: it could not be measured.
	CheckError CheckVerdict = "Error"
)

// CheckStatus is the state of one check. It is written when the verdict changes, and when enough
// measurements in sequence have passed or failed.
type CheckStatus struct {
	// Name of the check.
	// +required
	Name string `json:"name"`

	// Verdict of the last measurement; absent until there is one.
	// +optional
	Verdict CheckVerdict `json:"verdict,omitempty"`

	// Done is true when as many measurements in sequence as required have passed, or, in a
	// verification, as many as that takes have failed.
	// +optional
	Done bool `json:"done,omitempty"`

	// Value that was judged; absent for a cel check.
	// +optional
	Value string `json:"value,omitempty"`

	// Message for users.
	// +optional
	Message string `json:"message,omitempty"`

	// LastTransitionTime is when verdict or done changed last.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}
