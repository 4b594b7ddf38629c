package v1alpha1

// DryRunNothingDue is the message of a dry run in which everything could be read and no promotion is due.
const DryRunNothingDue = "Dry run: no promotion is due"

// MaxDryRunEnvironments is how many environments the status of a dry run lists.
const MaxDryRunEnvironments = 100

// DryRunStatus is what a hub in dry run observes and would do. It is the only field of the status that such a hub
// writes: the others belong to the controller that promotes at present.
type DryRunStatus struct {
	// ObservedGeneration is the generation of the spec that this belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Message says for users which promotions the hub would create now, and what it could not read.
	// +optional
	Message string `json:"message,omitempty"`

	// Environments in the order of the spec, with one entry for each wave. If there are more than 100, the first are
	// listed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Environments []DryRunEnvironment `json:"environments,omitempty"`
}

// DryRunEnvironment is what a hub in dry run observes of an environment, and would do with it.
type DryRunEnvironment struct {
	// Name of the environment.
	// +required
	Name string `json:"name"`

	// Runs are the revisions that the hub observes there, at most five.
	// +optional
	Runs []string `json:"runs,omitempty"`

	// Promotion that the hub would create now; absent if none is due.
	// +optional
	Promotion *DryRunPromotion `json:"promotion,omitempty"`
}

// DryRunPromotion is a promotion that a hub in dry run would create.
type DryRunPromotion struct {
	// Revision that would be promoted.
	// +required
	Revision string `json:"revision"`

	// Source is the environment that the revision comes from.
	// +optional
	Source string `json:"source,omitempty"`

	// Strategy is pull-request or notification.
	// +optional
	Strategy string `json:"strategy,omitempty"`

	// Manual is set if the promotion would wait for an approval.
	// +optional
	Manual bool `json:"manual,omitempty"`
}

// Due returns the environments for which the hub would create a promotion.
func (s *DryRunStatus) Due() []*DryRunEnvironment {
	var all []*DryRunEnvironment
	for i := range s.Environments {
		if s.Environments[i].Promotion != nil {
			all = append(all, &s.Environments[i])
		}
	}
	return all
}

// Of returns the entry of an environment; nil if there is none.
func (s *DryRunStatus) Of(environment string) *DryRunEnvironment {
	for i := range s.Environments {
		if s.Environments[i].Name == environment {
			return &s.Environments[i]
		}
	}
	return nil
}
