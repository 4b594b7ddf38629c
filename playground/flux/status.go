package flux

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Statuses of a snapshot, as in Helm.
const (
	snapshotDeployed   = "deployed"
	snapshotSuperseded = "superseded"
	snapshotFailed     = "failed"
)

// ociDigestChars is the number of characters of a digest in the build metadata of a version.
const ociDigestChars = 12

// attempt is one attempt to bring a HelmRelease to a version.
type attempt struct {
	version string
	digest  string // of the OCI artifact; empty for a chart of a HelmRepository
	cause   error  // error of Helm; nil when it succeeds
	began   time.Time
}

// steps returns the status changes of helm-controller, one patch each.
func (a attempt) steps(obj *helmv2.HelmRelease) []func(*helmv2.HelmRelease) {
	steps := []func(*helmv2.HelmRelease){a.fulfil}
	if obj.HasChartTemplate() && obj.Status.ObservedGeneration > 0 {
		// The HelmChart made from the template also has a new spec, which its own
		// controller has not reconciled yet.
		steps = append(steps, a.awaitSource)
	}
	steps = append(steps, a.run)
	if a.cause != nil {
		return append(steps, a.fail)
	}
	return append(steps, a.succeed, a.settle)
}

func (a attempt) fulfil(obj *helmv2.HelmRelease) {
	set(obj, meta.ReconcilingCondition, metav1.ConditionTrue, meta.ProgressingReason, "Fulfilling prerequisites")
	remove(obj, meta.StalledCondition)
	if obj.HasChartTemplate() {
		obj.Status.HelmChart = obj.Spec.Chart.GetNamespace(obj.Namespace) + "/" + obj.GetHelmChartName()
	}
}

func (a attempt) awaitSource(obj *helmv2.HelmRelease) {
	set(obj, meta.ReadyCondition, metav1.ConditionFalse, "SourceNotReady", fmt.Sprintf(
		"HelmChart '%s' is not ready: latest generation of object has not been reconciled", obj.Status.HelmChart))
}

// run is written before Helm is called, because that can take long.
func (a attempt) run(obj *helmv2.HelmRelease) {
	status := &obj.Status
	if status.LastAttemptedRevision != a.chartVersion() || status.LastAttemptedGeneration != obj.Generation {
		status.ClearFailures()
	}
	status.StorageNamespace = obj.GetStorageNamespace()
	status.LastAttemptedGeneration = obj.Generation
	status.LastAttemptedRevision = a.chartVersion()
	status.LastAttemptedRevisionDigest = a.digest
	status.LastAttemptedConfigDigest = sum("")

	message := fmt.Sprintf("Running '%s' action with timeout of %s", a.action(obj), obj.GetTimeout().Duration)
	set(obj, meta.ReconcilingCondition, metav1.ConditionTrue, meta.ProgressingReason, message)
	set(obj, meta.ReadyCondition, metav1.ConditionUnknown, meta.ProgressingReason, message)
}

// succeed is written when Helm has succeeded: the new snapshot is first, and
// observedGeneration is still the old one.
func (a attempt) succeed(obj *helmv2.HelmRelease) {
	reason, verb := helmv2.UpgradeSucceededReason, "upgrade"
	if a.action(obj) == helmv2.ReleaseActionInstall {
		reason, verb = helmv2.InstallSucceededReason, "install"
	}
	for _, s := range obj.Status.History {
		if s.Status == snapshotDeployed {
			s.Status = snapshotSuperseded
		}
	}
	current := a.release(obj, snapshotDeployed)
	message := fmt.Sprintf("Helm %s succeeded for release %s with chart %s",
		verb, current.FullReleaseName(), current.VersionedChartName())
	set(obj, helmv2.ReleasedCondition, metav1.ConditionTrue, reason, message)
	set(obj, meta.ReadyCondition, metav1.ConditionTrue, reason, message)
	remove(obj, meta.StalledCondition)
}

// settle is written when the reconciliation is complete.
func (a attempt) settle(obj *helmv2.HelmRelease) {
	remove(obj, meta.ReconcilingCondition)
	obj.Status.History.Truncate(false)
	obj.Status.ObservedGeneration = obj.Generation
}

// fail is written when Helm has failed and no retry is configured. The deployed snapshot
// stays deployed, below the failed one.
func (a attempt) fail(obj *helmv2.HelmRelease) {
	action := a.action(obj)
	reason, count := helmv2.UpgradeFailedReason, &obj.Status.UpgradeFailures
	if action == helmv2.ReleaseActionInstall {
		reason, count = helmv2.InstallFailedReason, &obj.Status.InstallFailures
	}
	a.release(obj, snapshotFailed)
	obj.Status.Failures++
	*count++
	message := fmt.Sprintf("Helm %s failed for release %s/%s with chart %s@%s: %s", action,
		obj.GetReleaseNamespace(), obj.GetReleaseName(), obj.Name, a.chartVersion(), strings.TrimSpace(a.cause.Error()))
	set(obj, helmv2.ReleasedCondition, metav1.ConditionFalse, reason, message)
	set(obj, meta.ReadyCondition, metav1.ConditionFalse, reason, message)
	remove(obj, meta.ReconcilingCondition)
	set(obj, meta.StalledCondition, metav1.ConditionTrue, "RetriesExceeded",
		fmt.Sprintf("Failed to %s after %d attempt(s)", action, *count))
	obj.Status.ObservedGeneration = obj.Generation
}

// release adds the snapshot of a Helm release at the top of the history.
func (a attempt) release(obj *helmv2.HelmRelease, status string) *helmv2.Snapshot {
	action := a.action(obj)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	snapshot := &helmv2.Snapshot{
		APIVersion:    helmv2.CurrentSnapshotAPIVersion,
		Name:          obj.GetReleaseName(),
		Namespace:     obj.GetReleaseNamespace(),
		Version:       1,
		Status:        status,
		Action:        action,
		ChartName:     obj.Name,
		ChartVersion:  a.chartVersion(),
		AppVersion:    a.version,
		ConfigDigest:  sum(""),
		FirstDeployed: now,
		LastDeployed:  now,
		OCIDigest:     a.digest,
	}
	if last := obj.Status.History.Latest(); last != nil {
		snapshot.Version = last.Version + 1
		snapshot.FirstDeployed = last.FirstDeployed
	}
	if action == helmv2.ReleaseActionInstall {
		obj.Status.ClearHistory()
	}
	snapshot.Digest = sum(snapshot.FullReleaseName() + snapshot.VersionedChartName() + status)
	obj.Status.History = append(helmv2.Snapshots{snapshot}, obj.Status.History...)
	obj.Status.LastAttemptedReleaseAction = action
	obj.Status.LastAttemptedReleaseActionDuration = &metav1.Duration{Duration: time.Since(a.began)}
	obj.Status.Inventory = &helmv2.ResourceInventory{Entries: []helmv2.ResourceRef{{
		ID: fmt.Sprintf("%s_%s_apps_Deployment", snapshot.Namespace, snapshot.Name), Version: "v1",
	}}}
	return snapshot
}

// action is install until the first release, then upgrade.
func (a attempt) action(obj *helmv2.HelmRelease) helmv2.ReleaseAction {
	for _, s := range obj.Status.History {
		if s.Status == snapshotDeployed || s.Status == snapshotSuperseded {
			return helmv2.ReleaseActionUpgrade
		}
	}
	return helmv2.ReleaseActionInstall
}

// chartVersion is the reported version: with the digest of an OCI artifact.
func (a attempt) chartVersion() string {
	_, hexes, ok := strings.Cut(a.digest, ":")
	if !ok {
		return a.version
	}
	return a.version + "+" + hexes[:min(ociDigestChars, len(hexes))]
}

func sum(s string) string {
	digest := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(digest[:])
}
