package apps

import (
	"unique"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
)

// Kinds that have their own reader. Kustomization's API package is not a dependency: one
// name does not justify it.
var (
	HelmRelease   = schema.GroupKind{Group: helmv2.GroupVersion.Group, Kind: helmv2.HelmReleaseKind}
	Kustomization = schema.GroupKind{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}
	// Application is that of Argo CD.
	Application = schema.GroupKind{Group: "argoproj.io", Kind: "Application"}
)

// DefaultKinds returns the kinds that Pipelines may use if the administrator configures
// none.
func DefaultKinds() []schema.GroupKind { return []schema.GroupKind{HelmRelease, Kustomization} }

// App is the stored form of an application. Its metadata has only name, namespace, UID,
// resourceVersion, generation and deletionTimestamp.
type App struct {
	metav1.ObjectMeta
	// Observation was made when the object was read; its At is not set.
	Observation index.Observation
}

var _ client.Object = &App{}

// GetObjectKind implements runtime.Object. The kind is that of the watch, and is not stored.
func (a *App) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (a *App) DeepCopyObject() runtime.Object {
	c := *a
	a.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// Kind returns how a kind of application is read.
func Kind(kind schema.GroupKind) watchers.Kind {
	versions, fields, read := reading(kind)
	return watchers.Kind{
		GroupKind: kind,
		Versions:  versions,
		Reads:     fields,
		Reduce: func(u *unstructured.Unstructured) (client.Object, error) {
			return &App{ObjectMeta: metadata(u), Observation: read(u)}, nil
		},
		Observe: func(o client.Object) index.Observation {
			a, ok := o.(*App)
			if !ok {
				return index.Observation{Found: true, Message: "cannot be read"}
			}
			return a.Observation
		},
	}
}

// reads are the fields that the readers of Flux's kinds and of unknown kinds read.
var reads = []string{
	"metadata.generation", "metadata.deletionTimestamp", "spec.suspend",
	"status.observedGeneration", "status.conditions", "status.lastAppliedRevision", "status.history",
}

// reading returns the preferred versions of a kind, the fields that are read, and the function
// that reads any version.
func reading(kind schema.GroupKind) (versions, fields []string, read func(*unstructured.Unstructured) index.Observation) {
	switch kind {
	case HelmRelease:
		return []string{helmv2.GroupVersion.Version, v2beta2, v2beta1}, reads, helmRelease
	case Kustomization:
		return []string{"v1"}, reads, kustomization
	case Application:
		return []string{"v1alpha1"}, applicationReads, application
	default:
		return nil, reads, generic
	}
}

func metadata(u *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         shared(text(u.Object, "metadata", "namespace")),
		Name:              shared(text(u.Object, "metadata", "name")),
		UID:               types.UID(text(u.Object, "metadata", "uid")),
		ResourceVersion:   text(u.Object, "metadata", "resourceVersion"),
		Generation:        u.GetGeneration(),
		DeletionTimestamp: deletionTimestamp(u),
	}
}

// shared returns one copy for equal texts that are read at about the same time, as at a start:
// most clusters run the same applications, in the same namespaces and revisions.
func shared(s string) string { return unique.Make(s).Value() }

func deletionTimestamp(u *unstructured.Unstructured) *metav1.Time {
	if text(u.Object, "metadata", "deletionTimestamp") == "" {
		return nil
	}
	return u.GetDeletionTimestamp()
}
