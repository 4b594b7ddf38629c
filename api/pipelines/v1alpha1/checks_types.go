package v1alpha1

// Check is a condition that is measured. Set exactly one of cel and prometheus.
//
// A measurement passes, fails, or has no result: no data, or an error. One without a result neither
// passes nor fails: a gate stays closed, and a verification waits until its deadline.
type Check struct {
	// Name of the check, unique in its list.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// CEL judges what is observed of the targets.
	// +optional
	CEL *CELCheck `json:"cel,omitempty"`

	// Prometheus judges the result of a query.
	// +optional
	Prometheus *PrometheusCheck `json:"prometheus,omitempty"`

	// Interval between two measurements: from 30s (prometheus) or 1s (cel) to 24h; 1m if it is
	// not set. A gate judges a cel check whenever it is judged, without an interval.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Interval string `json:"interval,omitempty"`

	// Passes is how many measurements in sequence must pass; 1 if it is not set. A cel check of
	// a gate needs one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Passes int32 `json:"passes,omitempty"`

	// Failures is how many measurements in sequence must fail until a verification fails; 3 if
	// it is not set. It has no meaning in gates.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Failures int32 `json:"failures,omitempty"`
}

// CELCheck judges what the status of the Pipeline shows of the targets. While one of them cannot be
// observed, the measurement has no result.
type CELCheck struct {
	// Expression in the Common Expression Language that is true if the check passes. It has
	// the variables revision, environment and source (texts: the revision that is promoted, the
	// environment that it is promoted into, and the one that it comes from), from (the list of
	// the revisions that the environment ran when the promotion was created), and targets and
	// sourceTargets (the targets of these environments; each has cluster, namespace, revision,
	// ready, progressing and message). isSemver(a) and compareSemver(a, b) are for revisions
	// that are semantic versions.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`
}

// PrometheusCheck judges the result of an instant query.
type PrometheusCheck struct {
	// Endpoint is the name of a Prometheus server, as the administrator of the hub has set it
	// with --check-endpoint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Endpoint string `json:"endpoint"`

	// Query in PromQL. Its result must be one number: a scalar, or a vector with one series.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`

	// Expression in the Common Expression Language that is true if the check passes. value is
	// the result of the query, such as in "value < 0.01".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Expression string `json:"expression"`
}
