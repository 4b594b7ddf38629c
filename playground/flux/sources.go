package flux

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// sourceOwner is the field manager of source-controller.
	sourceOwner = client.FieldOwner("source-controller")

	reasonPulled = "Succeeded"
	reasonNoPull = "OCIArtifactPullFailed"
)

// ociRepository is source-controller's kind. It is read without its Go types: their module
// requires newer libraries than this one.
var ociRepository = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "OCIRepository"}

// SourceAgentOptions has the options of a SourceAgent.
type SourceAgentOptions struct {
	// Config of the cluster that the agent runs in.
	Config *rest.Config
	// Charts has the chart of every OCIRepository.
	Charts *Charts
	// Logger of the agent.
	Logger logr.Logger
}

// SourceAgent simulates source-controller for the OCIRepositories of one cluster. When the
// tag in a spec changes, the chart of that version becomes the artifact, which the real
// helm-controller installs.
type SourceAgent struct {
	manager manager.Manager
	dialer  *connrotation.Dialer
	client  client.Client
	charts  *Charts
}

// NewSourceAgent returns an agent; Start runs it.
func NewSourceAgent(o SourceAgentOptions) (*SourceAgent, error) {
	m, dialer, direct, err := newManager(o.Config, o.Logger)
	if err != nil {
		return nil, err
	}
	a := &SourceAgent{manager: m, dialer: dialer, client: direct, charts: o.Charts}
	watched := &unstructured.Unstructured{}
	watched.SetGroupVersionKind(ociRepository)
	if err := ctrl.NewControllerManagedBy(m).Named("source-controller").For(watched).Complete(a); err != nil {
		return nil, fmt.Errorf("creating a source agent: %w", err)
	}
	return a, nil
}

// Start runs the agent until the context ends.
func (a *SourceAgent) Start(ctx context.Context) error {
	defer a.dialer.CloseAll()
	return a.manager.Start(ctx)
}

// Reconcile simulates the controller for one OCIRepository.
func (a *SourceAgent) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(ociRepository)
	if err := a.client.Get(ctx, request.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	observed, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
	suspended, _, _ := unstructured.NestedBool(obj.Object, "spec", "suspend")
	if observed == obj.GetGeneration() || suspended || obj.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	before := obj.DeepCopy()
	if err := a.pull(obj); err != nil {
		return ctrl.Result{}, fmt.Errorf("OCIRepository %s: %w", request, err)
	}
	if err := a.client.Status().Patch(ctx, obj, client.MergeFrom(before), sourceOwner); err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the status of OCIRepository %s: %w", request, err)
	}
	return ctrl.Result{}, nil
}

// pull writes the artifact that the spec requests into the status.
func (a *SourceAgent) pull(obj *unstructured.Unstructured) error {
	url, _, _ := unstructured.NestedString(obj.Object, "spec", "url")
	tag, _, _ := unstructured.NestedString(obj.Object, "spec", "ref", "tag")
	chart := path.Base(url)
	now := metav1.Now().UTC().Format(time.RFC3339)
	status := map[string]any{"observedGeneration": obj.GetGeneration()}

	ready := metav1.Condition{Type: meta.ReadyCondition, ObservedGeneration: obj.GetGeneration()}
	if err := exact(tag); err != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonNoPull, fmt.Sprintf("spec.ref.tag: %v: %q", err, tag)
		if artifact, ok, _ := unstructured.NestedMap(obj.Object, "status", "artifact"); ok {
			status["artifact"] = artifact // The last good one stays.
		}
	} else {
		packed, err := archive(chart, tag)
		if err != nil {
			return err
		}
		sum := digest(packed)
		ready.Status, ready.Reason = metav1.ConditionTrue, reasonPulled
		ready.Message = fmt.Sprintf("stored artifact for digest '%s@%s'", tag, sum)
		status["artifact"] = map[string]any{
			"url":            a.charts.url(chart, tag),
			"path":           archivePath(chart, tag)[1:],
			"revision":       tag + "@" + sum,
			"digest":         sum,
			"size":           int64(len(packed)),
			"lastUpdateTime": now,
		}
	}
	status["conditions"] = []any{map[string]any{
		"type": ready.Type, "status": string(ready.Status), "reason": ready.Reason, "message": ready.Message,
		"observedGeneration": ready.ObservedGeneration, "lastTransitionTime": now,
	}}
	obj.Object["status"] = status
	return nil
}
