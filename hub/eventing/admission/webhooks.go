package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// Paths that are served.
const (
	ValidatePath = "/validate-eventingbackend"
	DefaultPath  = "/default-eventingbackend"
)

// Validation is the treatment of invalid objects.
type Validation string

// Values of Validation.
const (
	// Warn admits the object with warnings, which the client shows.
	Warn Validation = "warn"
	// Deny rejects the object.
	Deny Validation = "deny"
)

// Defaulting selects the defaults that are written into an object.
type Defaulting string

// Values of Defaulting.
const (
	// Off writes nothing.
	Off Defaulting = "off"
	// Required writes the label, and required keys that have a default.
	Required Defaulting = "required"
)

// Errors of the values of flags.
var (
	errValidation = fmt.Errorf("must be %s or %s", Warn, Deny)
	errDefaulting = fmt.Errorf("must be %s or %s", Off, Required)
)

// ParseValidation reads the value of --eventing-validation.
func ParseValidation(s string) (Validation, error) {
	switch v := Validation(s); v {
	case Warn, Deny:
		return v, nil
	}
	return "", fmt.Errorf("%q is not a validation mode: %w", s, errValidation)
}

// ParseDefaulting reads the value of --eventing-defaulting.
func ParseDefaulting(s string) (Defaulting, error) {
	switch d := Defaulting(s); d {
	case Off, Required:
		return d, nil
	}
	return "", fmt.Errorf("%q is not a defaulting mode: %w", s, errDefaulting)
}

// maxWarnings is the number of warnings in an answer: the API server passes on 4 KiB.
const maxWarnings = 20

// handlers returns the handlers of both webhooks, by path.
func handlers(o Options) map[string]http.Handler {
	return map[string]http.Handler{
		ValidatePath: admission.WithValidator(o.Scheme, validator{o.Registry, o.Validation, o.Namespaces}),
		DefaultPath:  admission.WithDefaulter(o.Scheme, defaulter{o.Registry, o.Defaulting}),
	}
}

type validator struct {
	registry *schema.Registry
	mode     Validation
	// namespaces that the hub serves; all if there are none. Its settings say nothing of others: the status of an
	// EventingBackend there has its mistakes.
	namespaces []string
}

var _ admission.Validator[*eventingv1.EventingBackend] = validator{}

// ValidateCreate implements admission.Validator.
func (v validator) ValidateCreate(_ context.Context, b *eventingv1.EventingBackend) (admission.Warnings, error) {
	_, invalid := v.registry.Resolve(b)
	return v.answer(b, invalid)
}

// ValidateUpdate implements admission.Validator.
func (v validator) ValidateUpdate(_ context.Context, old, b *eventingv1.EventingBackend) (admission.Warnings, error) {
	if b.DeletionTimestamp != nil || equality.Semantic.DeepEqual(old.Spec, b.Spec) {
		return nil, nil
	}
	config, invalid := v.registry.Resolve(b)
	if len(invalid) == 0 && old.Status.BackendType == config.Type {
		invalid = config.CheckFixed(old.Status.FixedConfig)
	}
	return v.answer(b, invalid)
}

// ValidateDelete implements admission.Validator.
func (validator) ValidateDelete(context.Context, *eventingv1.EventingBackend) (admission.Warnings, error) {
	return nil, nil
}

func (v validator) answer(b *eventingv1.EventingBackend, invalid []eventingv1.ValidationError) (admission.Warnings, error) {
	if len(invalid) == 0 || len(v.namespaces) > 0 && !slices.Contains(v.namespaces, b.Namespace) {
		return nil, nil
	}
	if v.mode == Deny {
		var all field.ErrorList
		for _, one := range invalid {
			all = append(all, fieldError(one))
		}
		return nil, apierrors.NewInvalid(eventingv1.GroupVersion.WithKind(eventingv1.EventingBackendKind).GroupKind(), b.Name, all)
	}
	var warnings admission.Warnings
	for i, one := range invalid {
		if i == maxWarnings {
			warnings = append(warnings, fmt.Sprintf("and %d more", len(invalid)-i))
			break
		}
		warnings = append(warnings, fmt.Sprintf("%s: %s %s", pathOf(one), one.Error, one.Type))
	}
	return warnings, nil
}

func pathOf(one eventingv1.ValidationError) *field.Path {
	if one.Config == "type" && one.Type == eventingv1.InvalidValue {
		return field.NewPath("spec", "type")
	}
	return field.NewPath("spec", "config").Key(one.Config)
}

func fieldError(one eventingv1.ValidationError) *field.Error {
	switch one.Type {
	case eventingv1.InvalidDataType:
		return field.TypeInvalid(pathOf(one), one.Value, one.Error)
	case eventingv1.UnsupportedConfig:
		return field.Forbidden(pathOf(one), one.Error)
	case eventingv1.InvalidValue:
	}
	return field.Invalid(pathOf(one), one.Value, one.Error)
}

// sameSpec reports whether a call is for an update that does not change the spec, such as
// the hub's update of a finalizer. Such an update must not add defaults in the name of
// its client.
func sameSpec(ctx context.Context, b *eventingv1.EventingBackend) bool {
	request, err := admission.RequestFromContext(ctx)
	if err != nil || request.Operation != admissionv1.Update {
		return false
	}
	var old eventingv1.EventingBackend
	return json.Unmarshal(request.OldObject.Raw, &old) == nil && equality.Semantic.DeepEqual(old.Spec, b.Spec)
}

type defaulter struct {
	registry *schema.Registry
	mode     Defaulting
}

var _ admission.Defaulter[*eventingv1.EventingBackend] = defaulter{}

// Default implements admission.Defaulter.
func (d defaulter) Default(ctx context.Context, b *eventingv1.EventingBackend) error {
	if d.mode == Off || b.DeletionTimestamp != nil || sameSpec(ctx, b) {
		return nil
	}
	if b.Labels[eventingv1.BackendLabel] == "" {
		if b.Labels == nil {
			b.Labels = map[string]string{}
		}
		b.Labels[eventingv1.BackendLabel] = eventingv1.BackendLabelValue
	}
	if s, known := d.registry.Schema(b.Spec.Type); known {
		b.Spec.Config = append(b.Spec.Config, s.Defaults(b.Spec.Config)...)
	}
	return nil
}
