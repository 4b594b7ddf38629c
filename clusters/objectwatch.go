package clusters

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// SelfManagedLabel on a Cluster, with the value "true", says that the cluster holds its own
// CAPI objects. The label is a demand of its own.
const SelfManagedLabel = "capstan.dev/self-managed"

// objectWatch reads the cluster objects of one scope into objects, while the management
// cluster serves their kind. The kind need not be installed.
type objectWatch struct {
	kind clusterKind
	// scope is that of all objects that it reads. alone: its kind has no other scope.
	scope     string
	namespace string
	alone     bool
	// mapping reads the served version from the management cluster.
	mapping  func(schema.GroupKind) (*meta.RESTMapping, error)
	metadata metadata.Interface
	dynamic  dynamic.Interface
	retry    time.Duration
	clock    clock.Clock
	log      logr.Logger
	objects  *objects
	// changed is called with references whose object, or whose problem, changed.
	changed func([]Ref)
	// decided is called when the scope was read for the first time, or its kind is known not to be
	// served. It gets the references that could not be resolved before.
	decided func(scope string, unresolved []Ref)
}

// run until ctx ends.
func (w *objectWatch) run(ctx context.Context) {
	for ctx.Err() == nil {
		mapping, err := w.mapping(w.kind.GroupKind)
		switch {
		case meta.IsNoMatchError(err):
			w.note(kindState{absent: true})
		case err != nil:
			w.reportProblem(err)
		default:
			w.watch(ctx, mapping)
		}
		select {
		case <-ctx.Done():
		case <-w.clock.After(w.retry):
		}
	}
}

// watch returns when ctx ends or the server does not serve the kind any more.
//
// The known objects are kept then. While a CRD is removed, its objects are deleted one by
// one. A 404 without that comes from an API server whose aggregation has failed for a
// moment, which must not close every connection.
func (w *objectWatch) watch(ctx context.Context, mapping *meta.RESTMapping) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	informer := w.informer(mapping)
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) {
			cancel()
			return
		}
		w.reportProblem(err)
	})
	if err == nil {
		err = informer.SetTransform(reduceObject)
	}
	var registration cache.ResourceEventHandlerRegistration
	if err == nil {
		registration, err = informer.AddEventHandler(w.handler(mapping.GroupVersionKind))
	}
	if err != nil { // Only an informer that was started or stopped before returns one.
		w.reportProblem(err)
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	select {
	case <-ctx.Done():
	case <-registration.HasSyncedChecker().Done():
		w.changed(w.objects.retain(w.scope, func(ref Ref) bool {
			_, stored, _ := informer.GetStore().GetByKey(cache.NewObjectName(ref.Namespace, ref.Name).String())
			return stored
		}))
		w.note(kindState{synced: true})
	}
	<-ended
}

func (w *objectWatch) note(state kindState) {
	if unresolved, changed := w.objects.setKind(w.scope, state); changed {
		w.log.Info("cluster objects", "kind", w.kind.String(), "namespace", w.namespace, "installed", !state.absent, "read", state.synced)
		w.decided(w.scope, unresolved)
	}
}

// reportProblem stores a problem, and logs it when it differs from the last one.
func (w *objectWatch) reportProblem(err error) {
	if waiting, changed := w.objects.setProblem(w.scope, err.Error()); changed {
		w.changed(waiting) // They show it.
		w.log.Error(err, "cluster objects cannot be read", "kind", w.kind.String(), "namespace", w.namespace)
		if !w.alone {
			w.decided(w.scope, nil) // A right that is missing in one namespace must not delay the other clusters.
		}
	}
}

func (w *objectWatch) informer(mapping *meta.RESTMapping) cache.SharedIndexInformer {
	only := func(o *metav1.ListOptions) { o.LabelSelector = w.kind.labels.String() }
	if w.kind.content {
		return dynamicinformer.NewFilteredDynamicInformer(w.dynamic, mapping.Resource, w.namespace, 0, cache.Indexers{}, only).Informer()
	}
	return metadatainformer.NewFilteredMetadataInformer(w.metadata, mapping.Resource, w.namespace, 0, cache.Indexers{}, only).Informer()
}

func (w *objectWatch) handler(kind schema.GroupVersionKind) cache.ResourceEventHandler {
	put := func(o any) {
		if object, ok := o.(metav1.Object); ok {
			w.changed(w.objects.put(w.refOf(object), objectOf(object, kind)))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, o any) { put(o) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if object, ok := o.(metav1.Object); ok {
				w.changed(w.objects.drop(w.refOf(object)))
			}
		},
	}
}

func (w *objectWatch) refOf(object metav1.Object) Ref {
	return Ref{Kind: w.kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// reduceObject keeps the fields of an object that objectOf reads.
func reduceObject(o any) (any, error) {
	switch object := o.(type) {
	case *metav1.PartialObjectMetadata:
		return &metav1.PartialObjectMetadata{TypeMeta: object.TypeMeta, ObjectMeta: reduceMeta(object)}, nil
	case *unstructured.Unstructured:
		reduced := &unstructured.Unstructured{Object: map[string]any{}}
		reduced.SetGroupVersionKind(object.GroupVersionKind())
		kept := reduceMeta(object)
		reduced.SetName(kept.Name)
		reduced.SetNamespace(kept.Namespace)
		reduced.SetUID(kept.UID)
		reduced.SetResourceVersion(kept.ResourceVersion)
		reduced.SetCreationTimestamp(kept.CreationTimestamp)
		reduced.SetDeletionTimestamp(kept.DeletionTimestamp)
		reduced.SetLabels(kept.Labels)
		for _, field := range []string{"secretRef", "capiClusterRef"} {
			if name, _, _ := unstructured.NestedString(object.Object, "spec", field, "name"); name != "" {
				_ = unstructured.SetNestedField(reduced.Object, name, "spec", field, "name")
			}
		}
		reduceAccess(reduced, object)
		if ready := readyCondition(object); ready != nil {
			_ = unstructured.SetNestedSlice(reduced.Object, []any{ready}, "status", "conditions")
		}
		return reduced, nil
	}
	return o, nil
}

func reduceMeta(object metav1.Object) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{
		Name:              object.GetName(),
		Namespace:         object.GetNamespace(),
		UID:               object.GetUID(),
		ResourceVersion:   object.GetResourceVersion(),
		CreationTimestamp: object.GetCreationTimestamp(),
		DeletionTimestamp: object.GetDeletionTimestamp(),
	}
	kept.Labels = object.GetLabels()
	return kept
}

// readyCondition returns the status and message of the condition Ready; nil if there is none.
func readyCondition(object *unstructured.Unstructured) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok || condition["type"] != conditionReady {
			continue
		}
		kept := map[string]any{"type": conditionReady}
		for _, field := range []string{"status", "message"} {
			if value, ok := condition[field].(string); ok {
				kept[field] = value
			}
		}
		return kept
	}
	return nil
}

// objectOf makes a clusterObject of a reduced object.
func objectOf(object metav1.Object, kind schema.GroupVersionKind) clusterObject {
	read := clusterObject{
		APIVersion:  kind.GroupVersion().String(),
		UID:         object.GetUID(),
		Created:     object.GetCreationTimestamp().UTC(),
		Deleting:    object.GetDeletionTimestamp() != nil,
		SelfManaged: kind.Kind == pipelinesv1.ClusterKindCluster && object.GetLabels()[SelfManagedLabel] == "true",
		Labels:      object.GetLabels(),
	}
	content, ok := object.(*unstructured.Unstructured)
	if !ok {
		return read
	}
	read.SecretRef, _, _ = unstructured.NestedString(content.Object, "spec", "secretRef", "name")
	read.CAPIRef, _, _ = unstructured.NestedString(content.Object, "spec", "capiClusterRef", "name")
	read.Access = accessOf(content)
	if ready := readyCondition(content); ready != nil && ready["status"] == string(metav1.ConditionFalse) {
		read.Unready = true
		read.Problem, _ = ready["message"].(string)
	}
	return read
}
