package apps

import (
	"fmt"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/capstan-hub/capstan/index"
)

// typedReader reads a HelmRelease v2 by helm-controller's own types and functions. It is the
// model of helmRelease, which reads unstructured objects.
func typedReader(release *helmv2.HelmRelease) index.Observation {
	o := index.Observation{Found: true}
	ready := apimeta.FindStatusCondition(release.Status.Conditions, fluxmeta.ReadyCondition)
	current := release.Status.ObservedGeneration == release.Generation
	switch {
	case release.DeletionTimestamp != nil:
		o.Message = "is being deleted"
	case !current && release.Spec.Suspend:
		o.Message = fmt.Sprintf("is suspended and has not reconciled generation %d (observed: %d)", release.Generation, release.Status.ObservedGeneration)
	case ready == nil:
		o.Message = "has not reported Ready yet"
	case ready.Status != metav1.ConditionTrue:
		o.Progressing = ready.Status == metav1.ConditionUnknown && !release.Spec.Suspend
		o.Reason, o.Message = ready.Reason, ready.Message
		if ready.Reason == "" && ready.Message == "" {
			o.Message = "is not Ready, and gives no reason"
		}
	case !current:
		o.Progressing = true
		o.Message = fmt.Sprintf("has not reconciled generation %d yet (observed: %d)", release.Generation, release.Status.ObservedGeneration)
	default:
		o.Ready = true
	}
	newest := release.Status.History.Latest() // It sorts the history.
	if newest == nil {
		if o.Ready {
			o.Ready, o.Reason, o.Message = false, index.ReasonNoRevision, "is Ready, but status.history is empty"
		}
		return o
	}
	if newest.Status != statusDeployed && o.Ready {
		o.Ready, o.Message = false, "has a newest release that is "+newest.Status+", not deployed"
	}
	for _, status := range []string{statusDeployed, statusSuperseded} {
		for _, s := range release.Status.History {
			if s.Status == status && o.Revision == "" {
				o.Revision, o.Digest = normalise(s.ChartVersion, s.OCIDigest)
			}
		}
	}
	if o.Ready && o.Revision == "" {
		o.Ready, o.Reason, o.Message = false, index.ReasonNoRevision, "is Ready, but no release in status.history is deployed"
	}
	return o
}

// generated draws a HelmRelease as helm-controller may write it.
func generated(t *rapid.T) *helmv2.HelmRelease {
	release := &helmv2.HelmRelease{
		TypeMeta: metav1.TypeMeta{APIVersion: helmv2.GroupVersion.String(), Kind: helmv2.HelmReleaseKind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", Generation: rapid.Int64Range(1, 3).Draw(t, "generation"),
		},
	}
	if rapid.IntRange(0, 5).Draw(t, "deleted") == 0 {
		release.DeletionTimestamp = &metav1.Time{Time: time.Unix(1700000000, 0)}
	}
	release.Spec.Suspend = rapid.Bool().Draw(t, "suspend")
	release.Status.ObservedGeneration = rapid.Int64Range(0, 3).Draw(t, "observed")
	for _, kind := range rapid.Permutation([]string{fluxmeta.ReadyCondition, fluxmeta.ReconcilingCondition, helmv2.ReleasedCondition}).Draw(t, "conditions") {
		if rapid.IntRange(0, 3).Draw(t, "has "+kind) == 0 {
			continue
		}
		release.Status.Conditions = append(release.Status.Conditions, metav1.Condition{
			Type: kind, Status: rapid.SampledFrom([]metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}).Draw(t, "status of "+kind),
			Reason:             rapid.SampledFrom([]string{helmv2.InstallSucceededReason, helmv2.UpgradeFailedReason}).Draw(t, "reason"),
			Message:            rapid.SampledFrom([]string{"", "Helm upgrade failed: timed out"}).Draw(t, "message"),
			LastTransitionTime: metav1.Unix(1700000000, 0),
		})
	}
	const digest = "0cc9a8446c95"
	for _, version := range rapid.SliceOfNDistinct(rapid.IntRange(1, 9), 0, 5, rapid.ID[int]).Draw(t, "history") {
		release.Status.History = append(release.Status.History, &helmv2.Snapshot{
			Version:      version,
			Status:       rapid.SampledFrom([]string{statusDeployed, statusSuperseded, "failed", "pending-upgrade", "uninstalled"}).Draw(t, "status"),
			ChartVersion: rapid.SampledFrom([]string{"6.6.0", "6.6.1", "6.6.1+" + digest, "6.6.1+build"}).Draw(t, "chart version"),
			OCIDigest:    rapid.SampledFrom([]string{"", "sha256:" + digest + "0000", "6.6.1@sha256:" + digest + "0000"}).Draw(t, "oci digest"),
			Action:       helmv2.ReleaseActionUpgrade,
		})
	}
	return release
}

// The reader of unstructured objects and a reader by helm-controller's types agree on every
// object that the types can express.
func TestTolerantReaderEqualsTyped(t *testing.T) {
	read := Kind(HelmRelease)
	rapid.Check(t, func(t *rapid.T) {
		release := generated(t)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(release)
		if err != nil {
			t.Fatal(err)
		}
		app, err := read.Reduce(whatIsRead(&unstructured.Unstructured{Object: content}, read))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := read.Observe(app), typedReader(release); got != want {
			t.Fatalf("the tolerant reader says\n%+v\nthe typed reader\n%+v", got, want)
		}
	})
}

// Latest and Previous of helm-controller take the same releases for running ones as the
// constants here do.
func TestStatusesAreHelmControllers(t *testing.T) {
	for _, status := range []string{statusDeployed, statusSuperseded} {
		history := helmv2.Snapshots{{Version: 2, Status: "failed"}, {Version: 1, Status: status}}
		if previous := history.Previous(true); previous == nil || previous.Status != status {
			t.Errorf("helm-controller does not count a release that is %s", status)
		}
	}
	history := helmv2.Snapshots{{Version: 2, Status: "failed"}, {Version: 1, Status: "uninstalled"}}
	if previous := history.Previous(true); previous != nil {
		t.Errorf("helm-controller counts a release that is %s", previous.Status)
	}
}
