package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Gates are the conditions that must hold when a revision is promoted into an environment. All must
// be open before each step that has an effect outside of the management cluster: a push, a pull
// request, a merge, a notification.
//
// Gates are not part of the intent of a promotion. They are read when they are needed, so an edit
// takes effect at once, and needs no new promotion and no new approval.
//
// Durations are texts as Go parses them, such as 90m or 2h30m. The hub checks them, and all other
// values, so that one invalid Pipeline does not prevent others from being read.
type Gates struct {
	// Soak is open when the source environment was healthy with the revision for long enough.
	// +optional
	Soak *Soak `json:"soak,omitempty"`

	// Windows are times in which promotions may begin, or may not. While a Deny is active they
	// may not; if there is an Allow, one must be active.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Windows []Window `json:"windows,omitempty"`

	// Checks must pass. They are measured when the other gates are open, or soon will be.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Checks []Check `json:"checks,omitempty"`
}

// Soak is a time that the source environment must be healthy with a revision.
type Soak struct {
	// For is how long, in total, every target of the source environment must have been ready
	// with the revision, and observed: from 1s to 744h, in whole seconds. Time in which a
	// target could not be observed, or its controller was at work on it, does not count.
	// +required
	// +kubebuilder:validation:MaxLength=32
	For string `json:"for"`

	// Tolerate is how long a target may be unready without a restart of the soak; 5m if it
	// is not set. Unready time never counts.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Tolerate string `json:"tolerate,omitempty"`
}

// Window is a time in which promotions may begin, or may not.
type Window struct {
	// Name of the window, unique in its list.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	WindowSpec `json:",inline"`
}

// WindowType says what a window does while it is active.
type WindowType string

// Types of windows.
const (
	// AllowWindow: promotions may begin only while one of the windows of this type is active.
	AllowWindow WindowType = "Allow"
	// DenyWindow: promotions may not begin while it is active.
	DenyWindow WindowType = "Deny"
)

// WindowSpec says when a window is active. One without schedule, from and until is always active.
type WindowSpec struct {
	// Type is Allow or Deny.
	// +required
	// +kubebuilder:validation:MaxLength=16
	Type WindowType `json:"type"`

	// Reason for users, such as "winter freeze".
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`

	// Schedule has the five fields of cron: minute, hour, day of month, month, day of week
	// (0 is Sunday). The minute is one number. The window begins at these times of
	// timeZone, and lasts for duration. Day of month and day of week cannot both be set.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule,omitempty"`

	// Duration of the window in civil time, from 1m to 744h: one that begins at 22:00 and
	// lasts for 8h ends at 06:00, also in the night in which clocks change.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Duration string `json:"duration,omitempty"`

	// TimeZone of the schedule: a name of the IANA database, such as Europe/Riga or UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// From is the first instant of the window in RFC 3339, such as 2026-12-20T00:00:00Z. With
	// a schedule, the window is not active before it.
	// +optional
	// +kubebuilder:validation:MaxLength=35
	From string `json:"from,omitempty"`

	// Until is the end of the window in RFC 3339. With a schedule, the window is not active
	// from then on.
	// +optional
	// +kubebuilder:validation:MaxLength=35
	Until string `json:"until,omitempty"`
}

// SoakState is the state of a soak.
// +kubebuilder:validation:Enum=Ready;Progressing;Unready
type SoakState string

// States of a soak.
const (
	// SoakReady: every target was ready with the revision.
	SoakReady SoakState = "Ready"
	// SoakProgressing: a controller was at work on a target.
	SoakProgressing SoakState = "Progressing"
	// SoakUnready: a target was not ready.
	SoakUnready SoakState = "Unready"
)

// SoakStatus is how long an environment has been healthy with its agreed revision. It is kept only
// for an environment from which a soak is required.
type SoakStatus struct {
	// Seconds in which every target was ready with the revision, and observed. The number is
	// written when the soak is done, at least every 15 minutes while it counts, and with
	// every other change of the status.
	// +required
	// +kubebuilder:validation:Minimum=0
	Seconds int64 `json:"seconds"`

	// CountedTime is when the seconds were counted, while they increase; absent while they do not.
	// +optional
	CountedTime *metav1.Time `json:"countedTime,omitempty"`

	// State that was observed last.
	// +required
	State SoakState `json:"state"`

	// Digest of the content that the targets run, if they report one. Another content of the
	// same revision soaks anew.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// GatesFor returns the gates that apply to promotions into an environment: its own, else those of
// the pipeline. It returns nil when neither is set.
func (p *Pipeline) GatesFor(env *Environment) *Gates {
	if env.Gates != nil {
		return env.Gates
	}
	return p.Spec.Gates
}

// StatusSchema and StatusSchemaFleets are the values of status.schema and status.schemaFleets of every Pipeline
// that is served by the CRD of this version.
const (
	StatusSchema       = "gates1"
	StatusSchemaFleets = "fleets1"
)

// ServedInFull returns whether the Pipeline was read through a CRD that keeps everything that decides about
// promotions. An older CRD, or that of another product, removes gates, quorums and selectors of clusters silently:
// it is then not known whether a promotion may continue, and where.
func (p *Pipeline) ServedInFull() bool {
	return p.Status.Schema == StatusSchema && p.Status.SchemaFleets == StatusSchemaFleets
}
