package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// OverrideVerb is the right to override a gate of a promotion: on promotions.capstan.dev for those of
// its Pipeline, and on promotionwindows.capstan.dev for PromotionWindows. Only an admission policy
// checks it. No request of the Kubernetes API has it.
const OverrideVerb = "override"

// PromotionWindowSpec says when promotions may begin, or may not, and which ones. All parts of the
// selection must match; one that is absent matches everything.
//
// +kubebuilder:validation:XValidation:rule="self.type in ['Allow', 'Deny']",message="type must be Allow or Deny"
// +kubebuilder:validation:XValidation:rule="!has(self.rollbacks) || self.rollbacks in ['Allow', 'Block']",message="rollbacks must be Allow or Block"
type PromotionWindowSpec struct {
	pipelinesv1.WindowSpec `json:",inline"`

	// NamespaceSelector selects the namespaces of Pipelines by their labels. It is the only part
	// of the selection that teams cannot avoid: they own the labels of their Pipelines and
	// the names of their environments.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// PipelineSelector selects Pipelines by their labels.
	// +optional
	PipelineSelector *metav1.LabelSelector `json:"pipelineSelector,omitempty"`

	// Environments selects the environments that are promoted into, by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Environments []string `json:"environments,omitempty"`

	// Rollbacks is Allow if the window does not apply to rollbacks, Block if it does. If it is not
	// set, it is Block for a window of type Deny without times, which stops everything, and Allow
	// for others.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Rollbacks RollbackPolicy `json:"rollbacks,omitempty"`
}

// RollbackPolicy says whether a PromotionWindow applies to rollbacks.
type RollbackPolicy string

// Policies for rollbacks.
const (
	// AllowRollbacks: the window does not apply to rollbacks.
	AllowRollbacks RollbackPolicy = "Allow"
	// BlockRollbacks: the window applies to rollbacks.
	BlockRollbacks RollbackPolicy = "Block"
)

// PromotionWindowStatus is what the hub observed last, for users. Nothing is decided by it.
type PromotionWindowStatus struct {
	// Conditions are Valid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation of the spec that the status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Active is whether the window is active. A Deny that is not valid is always active, and
	// an Allow that is not valid never is.
	// +optional
	Active bool `json:"active"`

	// LastTransitionTime is when Active changed last.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`

	// NextChangeTime is when Active changes next; absent if it does not within 400 days.
	// +optional
	NextChangeTime *metav1.Time `json:"nextChangeTime,omitempty"`

	// Pipelines that the window selects: those with at least one selected environment
	// that is promoted into. 0 if several hubs share the management cluster.
	// +optional
	Pipelines int32 `json:"pipelines"`
}

// ValidCondition of a PromotionWindow is False if its spec cannot be understood. The message names the
// field and what to write.
const ValidCondition = "Valid"

// PromotionWindow is a time in which promotions may begin, or may not, for the Pipelines of many
// namespaces. A promotion may begin while no Deny that selects it is active and, if an Allow selects
// it, one of those is. The windows of the Pipeline itself must permit it, too. Without times, a Deny stops
// all promotions that it selects until it is deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=capstan,shortName=pwin
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=".spec.type"
// +kubebuilder:printcolumn:name="Active",type=boolean,JSONPath=".status.active"
// +kubebuilder:printcolumn:name="Next Change",type=string,JSONPath=".status.nextChangeTime"
// +kubebuilder:printcolumn:name="Pipelines",type=integer,JSONPath=".status.pipelines"
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=".status.conditions[?(@.type=='Valid')].status"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".spec.reason"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type PromotionWindow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PromotionWindowSpec   `json:"spec"`
	Status PromotionWindowStatus `json:"status,omitempty"`
}

// PromotionWindowList is a list of PromotionWindows.
//
// +kubebuilder:object:root=true
type PromotionWindowList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PromotionWindow `json:"items"`
}
