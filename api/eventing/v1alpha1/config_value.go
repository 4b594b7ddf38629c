package v1alpha1

import "bytes"

// The JSON type of k8s.io/apiextensions-apiserver has the same form as ConfigValue. Its
// module requires the API server's libraries, which importers of this one do not need.

// ConfigValue is a JSON value of any type, as the user wrote it.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:pruning:PreserveUnknownFields
type ConfigValue struct {
	// Raw is the value in JSON; empty for null.
	Raw []byte `json:"-"`
}

var null = []byte("null")

// MarshalJSON returns the value unchanged.
func (v ConfigValue) MarshalJSON() ([]byte, error) {
	if len(v.Raw) == 0 {
		return null, nil
	}
	return v.Raw, nil
}

// UnmarshalJSON stores the value unchanged.
func (v *ConfigValue) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, null) {
		v.Raw = nil
		return nil
	}
	v.Raw = append(v.Raw[:0], data...)
	return nil
}
