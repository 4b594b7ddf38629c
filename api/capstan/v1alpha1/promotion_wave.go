package v1alpha1

// PromotionWave is the part of an environment that a promotion is for.
type PromotionWave struct {
	// Environment of the Pipeline that has the wave.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Environment string `json:"environment"`

	// Name of the wave, or of its batch.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`

	// Last is whether it is the last wave of the environment. What Git has without a cluster belongs
	// to it.
	// +optional
	Last bool `json:"last,omitempty"`

	// Clusters of the wave when the promotion was created, as namespace/name, without the management
	// cluster.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=320
	Clusters []string `json:"clusters,omitempty"`

	// Ambiguous are the names, without a namespace, that clusters of this wave and of another one had when
	// the promotion was created. The promotion fails if Git has such a name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=256
	Ambiguous []string `json:"ambiguous,omitempty"`
}

// BaseEnvironment returns the environment of the Pipeline's spec that the promotion is for: a wave is a part of it.
func (s *PromotionSpec) BaseEnvironment() string {
	if s.Wave != nil {
		return s.Wave.Environment
	}
	return s.Environment
}
