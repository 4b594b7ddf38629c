package clusters

import (
	"time"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// Snapshot is what is known of a connection at one moment.
type Snapshot struct {
	Name            multicluster.ClusterName
	State           capstanv1.ConnectionState
	Reason, Message string
	// Since is when State was entered.
	Since time.Time
	// LastContact is when the API server was last heard.
	LastContact time.Time
	// Epoch of the Connection; 0 before the first.
	Epoch             int64
	KubernetesVersion string
	Server            string
	// ClusterUID is that of the namespace kube-system, which tells whether a new
	// epoch is still the same cluster; "" if it is not known or may not be read.
	ClusterUID       string
	CredentialExpiry time.Time
}

// Listener is told of changes, from goroutines of the Manager with no lock held.
// It must not block, and may call the Manager.
type Listener interface {
	// ConnectionChanged is called after a change of state, reason or epoch. For one
	// cluster calls come in order and not at once.
	ConnectionChanged(from, to Snapshot)
	// ReferenceChanged is called when what Resolve(ref) answers may have changed.
	ReferenceChanged(ref Ref)
}
