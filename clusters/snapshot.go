package clusters

import (
	"time"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters/kubeconfig"
)

// Snapshot is the state of a connection at one moment.
type Snapshot struct {
	Name            multicluster.ClusterName
	State           capstanv1.ConnectionState
	Reason, Message string
	// Since is when State was entered.
	Since time.Time
	// LastContact is the time of the last byte received from the API server.
	LastContact time.Time
	// Epoch of the Connection; 0 before the first.
	Epoch             int64
	KubernetesVersion string
	Server            string
	// ClusterUID is the UID of the namespace kube-system. It shows whether a new epoch is
	// still the same cluster. It is "" if it is not known or may not be read.
	ClusterUID string
	// Credential is the time in which the credentials in use are valid.
	Credential kubeconfig.Validity
}

// Listener is notified of changes, from goroutines of the Manager with no lock held.
// It must not block, and may call the Manager.
type Listener interface {
	// ConnectionChanged is called after a change of state, reason or epoch, of the message while
	// the cluster does not answer, and when another ClusterUID is read than before. For one
	// cluster, the calls are in order and do not overlap.
	ConnectionChanged(from, to Snapshot)
	// ReferenceChanged is called when the result of Resolve(ref) may have changed.
	ReferenceChanged(ref Ref)
}
