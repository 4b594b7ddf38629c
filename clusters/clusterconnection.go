package clusters

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "capstan"
	// clusterKindLabel selects the ClusterConnections of one kind of cluster object.
	clusterKindLabel = "capstan.dev/cluster-kind"

	// maxObjectName is the limit of Kubernetes; a longer name is shortened and ends in a hash.
	maxObjectName = 253
	hashLength    = 8

	conditionReady = "Ready"
)

// connectionName of the ClusterConnection of a cluster: "<kind lower>.<name>".
func connectionName(ref Ref) string {
	name := strings.ToLower(ref.Kind) + "." + ref.Name
	if len(name) <= maxObjectName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:maxObjectName-hashLength-1], "-.") + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

func newClusterConnection(key client.ObjectKey, ref Ref, owner clusterObject) *capstanv1.ClusterConnection {
	object := &capstanv1.ClusterConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{
			APIVersion: owner.APIVersion, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name,
		}},
	}
	setOwner(object, ref, owner)
	return object
}

// setOwner labels the object and makes the cluster object its owner. The API server then
// deletes both together, also when no hub runs.
func setOwner(object *capstanv1.ClusterConnection, ref Ref, owner clusterObject) {
	if object.Labels == nil {
		object.Labels = map[string]string{}
	}
	object.Labels[managedByLabel] = managedBy
	object.Labels[clusterKindLabel] = ref.Kind
	object.OwnerReferences = []metav1.OwnerReference{{APIVersion: owner.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: owner.UID}}
}

// statusOf returns the status that shows a snapshot.
func statusOf(s Snapshot, kinds []capstanv1.WatchedKind, apps int) capstanv1.ClusterConnectionStatus {
	status := capstanv1.ClusterConnectionStatus{
		State: s.State, Reason: s.Reason, Message: s.Message,
		LastTransitionTime: &metav1.Time{Time: s.Since.Truncate(time.Second)},
		KubernetesVersion:  s.KubernetesVersion,
		Server:             s.Server,
		Kinds:              kinds,
		Apps:               int32(apps),
	}
	if at := s.Credential.Expires; !at.IsZero() {
		status.CredentialExpiryTime = &metav1.Time{Time: at.Truncate(time.Second)}
	}
	if at := s.Credential.Issued; !at.IsZero() {
		status.CredentialIssuedTime = &metav1.Time{Time: at.Truncate(time.Second)}
	}
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionFalse, Reason: s.Reason, Message: s.Message, LastTransitionTime: *status.LastTransitionTime}
	switch s.State {
	case capstanv1.ConnectionReady:
		ready.Status = metav1.ConditionTrue
	case capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting:
		ready.Status = metav1.ConditionUnknown
	case capstanv1.ConnectionDegraded, capstanv1.ConnectionUnreachable, capstanv1.ConnectionAuthFailed, capstanv1.ConnectionRemoved:
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	return status
}

// merged returns the status to write over an existing status.
//
// Existing values that mean the same are kept, above all the times. A restarted hub, whose
// connections go through Connecting to their previous state, then writes nothing. brief is
// whether that may be the case.
func merged(old, want capstanv1.ClusterConnectionStatus, brief bool) capstanv1.ClusterConnectionStatus {
	if brief && isLasting(old.State) {
		return old
	}
	if old.State == want.State && old.LastTransitionTime != nil {
		want.LastTransitionTime = old.LastTransitionTime
	}
	if want.KubernetesVersion == "" && isLasting(want.State) {
		want.KubernetesVersion = old.KubernetesVersion // It is read after the first contact.
	}
	conditions := append([]metav1.Condition(nil), old.Conditions...)
	for _, c := range want.Conditions {
		meta.SetStatusCondition(&conditions, c)
	}
	want.Conditions = conditions
	return want
}

// connectingLimit is how long a ClusterConnection continues to show its last state while the
// hub connects. A cluster that answers is connected within seconds.
const connectingLimit = time.Minute

// isBrief reports whether a state is expected to change within seconds: the hub is
// connecting, nothing prevents that, and it began less than connectingLimit ago.
func isBrief(s Snapshot, now time.Time) bool {
	return s.State == capstanv1.ConnectionConnecting && s.Reason != ReasonEndpointChanged && s.Reason != ReasonHubUnreadable &&
		now.Sub(s.Since) < connectingLimit
}

// isLasting reports whether a ClusterConnection keeps showing a state until the outcome of
// a new attempt is known, which takes seconds.
func isLasting(s capstanv1.ConnectionState) bool {
	switch s {
	case capstanv1.ConnectionReady, capstanv1.ConnectionDegraded, capstanv1.ConnectionUnreachable:
		return true
	case capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting, capstanv1.ConnectionAuthFailed, capstanv1.ConnectionRemoved:
	}
	return false
}
