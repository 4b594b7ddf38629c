package apps

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
)

// Groups and kinds with a reading of their own.
var (
	HelmRelease   = schema.GroupKind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}
	Kustomization = schema.GroupKind{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}
)

// DefaultKinds are those that Pipelines may follow unless the administrator says
// otherwise.
func DefaultKinds() []schema.GroupKind { return []schema.GroupKind{HelmRelease, Kustomization} }

// App is what is stored of an application.
type App struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Observation index.Observation
}

var _ client.Object = &App{}

// DeepCopyObject implements runtime.Object.
func (a *App) DeepCopyObject() runtime.Object {
	c := *a
	a.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// Kind is how a kind of application is read.
func Kind(kind schema.GroupKind) watchers.Kind {
	k := watchers.Kind{
		GroupKind: kind,
		Observe: func(o client.Object) index.Observation {
			if a, ok := o.(*App); ok {
				return a.Observation
			}
			return index.Observation{Found: true, Message: "not read"}
		},
	}
	read := generic
	switch kind {
	case HelmRelease:
		k.Versions = []string{"v2", "v2beta2", "v2beta1"}
		read = helmRelease
	case Kustomization:
		k.Versions = []string{"v1"}
	}
	k.Reduce = func(u *unstructured.Unstructured) (client.Object, error) {
		a := &App{ObjectMeta: metav1.ObjectMeta{
			Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		}}
		a.Observation = read(status(u))
		return a, nil
	}
	return k
}
