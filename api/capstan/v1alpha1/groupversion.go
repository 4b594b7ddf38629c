package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of the Capstan API.
	GroupVersion = schema.GroupVersion{Group: "capstan.dev", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Promotion{}, &PromotionList{}, &ClusterConnection{}, &ClusterConnectionList{}, &PromotionWindow{}, &PromotionWindowList{},
		&PromotionRequest{}, &PromotionRequestList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
