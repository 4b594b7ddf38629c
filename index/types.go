package index

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// LocalCluster is the name of the management cluster. Other names are those that
// clusters.Ref.ClusterName gives, such as "Cluster/team/prod".
const LocalCluster = ""

// Kind of an application. The version is the cluster's to say.
type Kind struct{ Group, Kind string }

// Object is an application in a cluster.
type Object struct {
	Cluster   string
	Kind      Kind
	Namespace string
	Name      string
}

// Observation is what was seen of an application.
type Observation struct {
	// Found is false when the kind is synced and the object does not exist.
	Found bool
	// Ready is whether the application is ready at Revision.
	Ready bool
	// Revision that it runs, normalised ("6.6.1"); empty for none.
	Revision string
	// Digest of an OCI chart, kept apart from the revision; empty for none.
	Digest string
	// Message says why it is not ready; empty when nothing is wrong.
	Message string
	// At is when these values were first seen.
	At time.Time
}

// equal ignores At: the time of an observation is not a change.
func (o Observation) equal(p Observation) bool {
	o.At, p.At = time.Time{}, time.Time{}
	return o == p
}

// Freshness is whether observations of a kind in a cluster can be relied upon now.
type Freshness struct {
	Fresh bool
	// Reason in one word, and a message for people, when not.
	Reason, Message string
}

// NotWatched is the reason of the Freshness of a kind that nobody has spoken of.
const NotWatched = "NotWatched"

// Use is what a Pipeline uses.
type Use struct {
	// Refs are the declared cluster references, resolved or not, as cluster names.
	Refs []string
	// Objects are the applications whose cluster could be resolved.
	Objects []Object
}

// Stats counts what the index holds.
type Stats struct {
	Pipelines, Objects, Observations int
}

// place is a kind in a cluster.
type place struct {
	cluster string
	kind    Kind
}

// keys is a set of Pipelines, sorted: most hold one, and a map of one is ten times
// the size.
type keys []types.NamespacedName
